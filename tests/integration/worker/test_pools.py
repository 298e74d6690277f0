"""Every pool of workers, where the transfer worker runs, and workers that the ``celery`` command has not started."""

import json
import time
from typing import Any

import pytest

from celery_ext.waiting import by_id
from tests.support.conditions import stays, until
from tests.support.workers.harness import Proj

pytestmark = pytest.mark.wide


def _leader_pid(proj: Proj) -> int | None:
    lease = proj.server.client().get("{delayq}:transfer")
    return int(lease.split(":")[1]) if lease else None


@pytest.mark.journey
@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent", "solo"])
def test_delayed_tasks_run_once_in_every_pool(proj: Proj, pool: str) -> None:
    """In each pool tasks with a countdown run once and not early, those without at once, and the worker stops clean."""
    worker = proj.worker(pool=pool)
    due = time.time() + 1.5
    for n in range(20):
        proj.send("record", n, countdown=1.5)
    proj.send("record", "now")
    proj.send("flaky", 1, kwargs={"countdown": 0.5})
    runs = proj.await_runs(23)
    values = [run["value"] for run in runs if run["name"] == "record"]
    assert sorted(map(str, values)) == sorted([*map(str, range(20)), "now"])
    assert all(run["at"] >= due for run in runs if isinstance(run.get("value"), int))
    until(lambda: proj.server.client().hlen("unacked") == 0)
    until(lambda: _leader_pid(proj) == worker.process.pid)
    assert worker.stop() == 0
    assert len(proj.runs()) == 23
    assert proj.server.client().get("{delayq}:transfer") is None


@pytest.mark.nightly
def test_transfer_goes_on_beside_a_long_solo_task(proj: Proj) -> None:
    """A worker with ``transfer=False`` runs no transfer worker; a solo worker in a long task does it for others."""
    other = proj.worker("-Q", "other", pool="solo", broker_transport_options={"transfer": False})
    proj.send("record", "first", queue="other", countdown=1)
    stays(lambda: proj.delayed("other") == 1 and _leader_pid(proj) is None, 2)
    assert proj.runs() == []

    solo = proj.worker("-Q", "long", pool="solo")
    [first] = proj.await_runs(1)
    assert first["pid"] == other.process.pid
    long = proj.send("busy", 5, queue="long")
    proj.await_runs(1, name="busy")
    due = time.time() + 1
    proj.send("record", "second", queue="other", countdown=1)
    proj.send("record", "third", queue="long", countdown=1)
    [second] = proj.await_runs(1, value="second")
    assert second["at"] >= due
    assert _leader_pid(proj) == solo.process.pid
    # The solo worker's own message is ready, and runs after the long task.
    until(lambda: proj.delayed("long") == 0)
    assert not long.ready()
    [third] = proj.await_runs(1, value="third")
    assert long.get(timeout=30) is None
    assert third["pid"] == solo.process.pid


def told(proj: Proj, *program: str) -> dict[str, Any]:
    """Runs a program; returns what it printed."""
    done = proj.program(*program)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.timeout(600)
@pytest.mark.journey
def test_a_worker_in_a_test_inspects_and_revokes_what_waits(proj: Proj) -> None:
    """It tells of a waiting task in Celery's words, as Celery's own test asks, removes it, and knows delay chains.

    A worker of stock Redis in the same process, after it, is none the wiser.
    """
    found = told(proj, "embedded.py", "with_other_transport")
    [scheduled] = found["scheduled"]
    scheduled["request"].pop("hostname")
    assert scheduled == {
        "eta": found["eta"],
        "priority": 6,
        "request": {
            "id": found["id"],
            "name": "embedded.add",
            "args": [1, 2],
            "kwargs": {"z": 3},
            "type": "embedded.add",
            "time_start": None,
            "acknowledged": False,
            "delivery_info": {"exchange": "", "routing_key": "celery", "priority": 0, "redelivered": False},
            "worker_pid": None,
        },
    }
    assert (found["state"], found["left"]) == (True, [])
    assert [each["request"]["name"] for each in found["retry"]] == ["embedded.notify"]
    assert _step(proj) == ("4m,1h", 1)
    assert found.get("stock") == {"host": True, "sender": False}


@pytest.mark.timeout(600)
def test_an_idle_worker_in_a_test_ends_at_once(proj: Proj) -> None:
    """It notices within a second that it is to stop, although nothing comes to its loop."""
    found = told(proj, "embedded.py", "ended_idle")
    assert (
        min(found["ended_s"]) < 6
    )  # else it takes ten; of three, because a machine that is busy makes any of them late


@pytest.mark.timeout(600)
def test_the_pool_of_an_embedded_worker_knows_delay_chains(proj: Proj) -> None:
    """Children that such a worker forks retry by the task's chain."""
    assert told(proj, "embedded.py", "forked")["retry"]
    assert _step(proj) == ("4m,1h", 1)


@pytest.mark.timeout(600)
def test_a_call_that_nobody_reads_is_refused(proj: Proj) -> None:
    """Without ``install`` a publisher's ``delay_level`` is an error, and so is a chain that is none.

    A chain is left for the worker to read.
    """
    found = told(proj, "uninstalled.py")
    for name in ("level", "fanout"):
        assert found[name].startswith("InvalidDelayLevel: delay_level=3")
        assert "celery_ext.install(app)" in found[name]
    assert found["no level"] == found["chain"] == "sent"
    assert found["wrong chain"].startswith("InvalidDelayChain: step 2, 'x'")
    assert proj.server.client().llen("celery") == 2


def _step(proj: Proj) -> tuple[str | None, int]:
    with proj.connection() as connection:
        [waiting] = by_id.browse(connection.default_channel.store, "celery")
    message = json.loads(waiting.body)
    return message["properties"].get("delay_chain"), message["headers"]["retries"]
