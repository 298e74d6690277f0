"""However a task ends, its place is free afterwards, and the next task of its key runs."""

import os
import signal
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import pytest
from celery import chain, chord, group

from celery_ext.limits import LIMIT_HEADER
from tests.support.conditions import until, until_equal
from tests.support.workers.harness import MakeProj, Proj

OPTIONS = {"limits": {"account": {"running": 1}}, "consumer_ttl": 4.0, "poll_interval": 0.2}

pytestmark = pytest.mark.wide

#: Sends a task with an end of its own, with headers that have its key.
Send = Callable[[Proj, dict[str, Any]], Any]


@pytest.fixture
def fleet(make_proj: MakeProj) -> Proj:
    """The app, whose keys run one task at once."""
    return make_proj(broker_transport_options=OPTIONS, include=["stock_tasks", "limit_tasks"])


def task(name: str, *args: Any, **options: Any) -> Send:
    """Returns what sends a task."""
    return lambda proj, headers: proj.send(name, *args, headers=headers, **options)


def _undecodable(proj: Proj, headers: dict[str, Any]) -> None:
    with proj.connection() as connection:
        about = {"task": "proj.record", "id": "undecodable", **headers}
        connection.Producer().publish(
            b"\xff no JSON",
            content_type="application/json",
            content_encoding="utf-8",
            headers=about,
            routing_key="celery",
        )


def _no_task(proj: Proj, headers: dict[str, Any]) -> None:
    with proj.connection() as connection:
        connection.Producer().publish({"a": 1}, serializer="json", headers=headers, routing_key="celery")


def _revoked(proj: Proj, headers: dict[str, Any]) -> None:
    identity = f"revoked {headers[LIMIT_HEADER]}"
    proj.app.control.revoke(identity)
    proj.send("record", task_id=identity, headers=headers)


def _signature(proj: Proj, name: str, *args: Any, headers: dict[str, Any]) -> Any:
    return proj.app.signature(f"proj.{name}", args, headers=headers, app=proj.app)


def _chain(proj: Proj, headers: dict[str, Any]) -> None:
    chain(*(_signature(proj, "record", 1, headers=headers).set(immutable=True) for _ in range(3))).apply_async()


def _group(proj: Proj, headers: dict[str, Any]) -> None:
    group(*(_signature(proj, "record", 1, headers=headers) for _ in range(3)), app=proj.app).apply_async()


def _chord(proj: Proj, headers: dict[str, Any]) -> None:
    members = [_signature(proj, "add", number, headers=headers) for number in range(3)]
    chord(members, _signature(proj, "add", headers=headers), app=proj.app).apply_async()


#: Ends in every pool.
ENDS: dict[str, Send] = {
    "early-acked": task("record"),
    "late-acked": task("late_acked"),
    "failed": task("fail"),
    "failed, not acknowledged": task("fail_unacked"),
    "ignored": task("ignored"),
    "put back": task("requeued"),
    "rejected": task("dropped"),
    "retried at once": task("again"),
    "retried later": task("flaky", 1, 0.2),
    "with a countdown": task("record", countdown=0.3),
    "expired": task("record", expires=datetime.now(UTC) - timedelta(hours=1)),
    "unknown": task("nothing"),
    "wrong arguments": task("record", 1, 2, 3),
    "not to be decoded": _undecodable,
    "of no task": _no_task,
    "revoked": _revoked,
    "backs off": task("backs_off"),
    "backs off, late-acked": task("backs_off_late"),
    "backs off, with autoretry_for": task("backs_off_retried"),
    "chain": _chain,
    "group": _group,
    "chord": _chord,
}
#: Ends of processes of a pool, and by time limits.
OF_PROCESSES: dict[str, Send] = {
    "soft time limit": task("softly"),
    "time limit": task("too_long"),
    "time limit, not acknowledged": task("too_long_unacked"),
    "killed, early-acked": task("die_early"),
    "killed, late-acked": task("die"),
    "killed, and comes again": task("die_once"),
}


def key_of(end: str) -> str:
    """Returns the key of tasks with an end."""
    return "account:" + end.replace(" ", "_").replace(",", "")


def send_all(proj: Proj, ends: dict[str, Send]) -> None:
    """Sends a task of each end, and behind each another one of its key."""
    for end, send in ends.items():
        headers = {LIMIT_HEADER: key_of(end)}
        send(proj, headers)
        proj.send("record", f"behind {end}", headers=headers)


def missing(proj: Proj, ends: Iterable[str]) -> list[str]:
    """Returns the ends behind which the next task has not run."""
    behind = {run.get("value") for run in proj.runs(name="record")}
    return [end for end in ends if f"behind {end}" not in behind]


def places(proj: Proj) -> dict[str, Any]:
    """Returns what is left of limits: places, messages in sub-queues, and keys that are known."""
    client = proj.server.client()
    known = client.hgetall("delayq:celery:places:known")
    known.pop("\0", None)
    return {
        "places": client.hgetall("{delayq}:places"),
        "parked": client.zrange("delayq:celery:places:parked", 0, -1),
        "known": known,
        "in hand": client.hlen("unacked"),
    }


EMPTY: dict[str, Any] = {"places": {}, "parked": [], "known": {}, "in hand": 0}


def all_end(proj: Proj, ends: Iterable[str], timeout_s: float = 60.0) -> None:
    """Waits until the task behind each end has run, and sees that no place is taken."""
    logs = "\n".join(worker.log[-3000:] for worker in proj.workers)
    until_equal(lambda: missing(proj, ends), [], timeout_s, logs)
    until_equal(lambda: places(proj), EMPTY, 20)


@pytest.mark.parametrize("patched", [True, False], ids=["patched", "celerys"])
@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_place_is_free_after_each_end(fleet: Proj, pool: str, patched: bool) -> None:
    """Tasks of every end, each of a key of its own: the next one of each key runs, and no place stays taken."""
    fleet.worker(pool=pool, concurrency=4, delayq_patch_celery=patched)
    fleet.await_answers()
    ends = ENDS | (OF_PROCESSES if pool == "prefork" else {})
    send_all(fleet, ends)
    all_end(fleet, ends)


@pytest.mark.nightly
@pytest.mark.parametrize("pool", ["solo", "gevent"])
def test_a_place_is_free_in_other_pools(fleet: Proj, pool: str) -> None:
    """The same where one process does all."""
    fleet.worker(pool=pool, concurrency=4)
    fleet.await_answers()
    send_all(fleet, ENDS)
    all_end(fleet, ENDS)


@pytest.mark.parametrize("pool", ["threads", "prefork"])
@pytest.mark.parametrize("name", ["backs_off", "backs_off_late", "backs_off_retried"])
@pytest.mark.parametrize("key", ["account:a", ""])
def test_a_task_that_backs_off_runs_again(fleet: Proj, pool: str, name: str, key: str) -> None:
    """It runs once more, after the rest; neither a retry nor a delivery is counted; its result is RETRY until then."""
    fleet.worker(pool=pool, concurrency=1)
    result = fleet.send(name, headers={LIMIT_HEADER: key} if key else {})
    until(lambda: result.state == "RETRY")
    first, second = fleet.await_runs(2)
    assert second["at"] - first["at"] >= 0.3
    assert (second["retries"], second["deaths"]) == (0, None)
    assert result.get(timeout=20) == 2
    until_equal(lambda: places(fleet), EMPTY)


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_killed_worker_frees_its_keys(fleet: Proj, pool: str) -> None:
    """After ``kill -9`` of a worker whose task runs, the next task of its key begins within 5 s in another one."""
    killed = fleet.worker(pool=pool, concurrency=1)
    for name in ("gated", "gated_late"):
        fleet.send(name, "gate", name, headers={LIMIT_HEADER: f"account:{name}"})
        fleet.send("record", f"behind {name}", headers={LIMIT_HEADER: f"account:{name}"})
    fleet.await_runs(1)
    other = fleet.worker(pool=pool, concurrency=2)
    [run] = fleet.runs()[:1]
    until(lambda: len([each for each in fleet.runs() if each["name"].startswith("gated")]) == 2)
    fleet.journal.set("gate", 1)
    killed.kill()
    killed_at = monotonic()
    until(lambda: not missing(fleet, [run["value"]]), 20)
    assert monotonic() - killed_at < 5
    until_equal(lambda: places(fleet), EMPTY)
    assert other.alive()


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_terminated_task_frees_its_key(fleet: Proj, pool: str) -> None:
    """A task that is revoked while it waits in a worker, or with ``terminate`` while it runs, frees its key."""
    fleet.worker(pool=pool, concurrency=1)
    fleet.await_answers()
    running = fleet.send("busy", 3, headers={LIMIT_HEADER: "account:a"})
    fleet.send("record", "behind a", headers={LIMIT_HEADER: "account:a"})
    fleet.await_runs(1)
    fleet.app.control.revoke(running.id, terminate=pool == "prefork")
    all_end(fleet, ["a"])


@pytest.mark.parametrize("pool", ["threads", "prefork"])
@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGQUIT], ids=["warm", "cold"])
def test_a_worker_that_ends_leaves_no_place(fleet: Proj, pool: str, kind: signal.Signals) -> None:
    """After a warm or a cold shutdown the next tasks of its keys run elsewhere, and no place stays taken."""
    ended = fleet.worker(pool=pool, concurrency=2)
    for name in ("busy", "late_acked"):
        fleet.send(name, 1, headers={LIMIT_HEADER: f"account:{name}"})
        fleet.send("record", f"behind {name}", headers={LIMIT_HEADER: f"account:{name}"})
    fleet.await_runs(2)
    os.kill(ended.process.pid, kind)
    ended.process.wait(30)
    fleet.worker(pool=pool, concurrency=2)
    all_end(fleet, ["busy", "late_acked"])


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_lost_connection_frees_the_keys(fleet: Proj, pool: str) -> None:
    """Where the connections end while tasks run, their places are free once they have ended."""
    fleet.worker(pool=pool, concurrency=2)
    for name in ("gated", "gated_late"):
        fleet.send(name, "gate", headers={LIMIT_HEADER: f"account:{name}"})
        fleet.send("record", f"behind {name}", headers={LIMIT_HEADER: f"account:{name}"})
    fleet.await_runs(2)
    fleet.server.client().client_kill_filter(_type="normal", skipme=True)
    fleet.server.client().client_kill_filter(_type="pubsub", skipme=True)
    fleet.journal.set("gate", 1)
    all_end(fleet, ["gated", "gated_late"])
