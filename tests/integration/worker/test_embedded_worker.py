"""Workers that are not started by the ``celery`` command, in programs that do not know of kombu-delayq."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.support.workers.harness import APPS, Proj

pytestmark = pytest.mark.timeout(600)


def told(proj: Proj, *program: str) -> dict[str, Any]:
    """Runs a program; returns what it printed."""
    done = subprocess.run(
        [sys.executable, *program],
        cwd=APPS,
        env={**os.environ, **proj.environment()},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


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


def test_an_idle_worker_in_a_test_ends_at_once(proj: Proj) -> None:
    """It notices within a second that it is to stop, although nothing comes to its loop."""
    found = told(proj, "embedded.py", "ended_idle")
    assert min(found["ended_s"]) < 3  # of three, because a machine that is busy makes any of them late


def test_the_pool_of_an_embedded_worker_knows_delay_chains(proj: Proj) -> None:
    """Children that such a worker forks retry by the task's chain."""
    assert told(proj, "embedded.py", "forked")["retry"]
    assert _step(proj) == ("4m,1h", 1)


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
        [waiting] = connection.default_channel.store.scan.browse("celery").messages
    message = json.loads(waiting.body)
    return message["properties"].get("delay_chain"), message["headers"]["retries"]
