"""Running tasks that ask whether they are to stop."""

import signal
import time
from contextlib import suppress
from importlib.util import find_spec

import pytest
from celery.exceptions import TaskRevokedError
from kombu.exceptions import OperationalError

from celery_ext import cancel, cancelled, check_cancelled
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.waiting import places
from tests.support.commands.shell import run
from tests.support.conditions import until
from tests.support.workers.harness import MakeProj, Proj

pytestmark = pytest.mark.wide

needs_eventlet = pytest.mark.skipif(not find_spec("eventlet"), reason="eventlet is not installed")
POOLS = ["prefork", "threads", "gevent", "solo", pytest.param("eventlet", marks=[needs_eventlet, pytest.mark.nightly])]


@pytest.mark.journey
@pytest.mark.parametrize("pool", POOLS)
def test_a_cancel_stops_a_running_task_that_asks(proj: Proj, pool: str) -> None:
    """In each pool it hears of the cancel, ends at its next look, is acknowledged, and its result is REVOKED.

    Before, it can be looked up; later, and without asking, nobody can stop it.
    """
    worker = proj.worker(pool=pool)
    sent, other = proj.send("late_look", 600), proj.send("late_acked", 1)
    proj.await_runs(2 if pool != "solo" else 1)
    until(lambda: "running, and asks cancelled()" in _shown(proj, sent.id))
    assert cancel(proj.app, [sent.id, other.id]) == {sent.id: "asked_to_stop", other.id: "not_delayed"}
    with pytest.raises(TaskRevokedError, match="cancelled while it ran"):
        sent.get(timeout=30)
    assert other.get(timeout=30) is None
    until(lambda: proj.server.client().hlen("unacked") == 0)
    until(lambda: cancel(proj.app, sent.id) == "not_delayed")
    assert worker.stop() == 0
    assert len(proj.runs()) == 2


def _shown(proj: Proj, task_id: str) -> str:
    with proj.connection() as connection:
        store = connection.default_channel.store
        return " ".join(sighting.words for place in places() for sighting in place.find(store, [task_id]).values())


@pytest.mark.parametrize("pool", POOLS)
def test_revoke_with_terminate_in_each_pool(proj: Proj, pool: str) -> None:
    """It ends what runs in processes and greenlets, and asks what runs in threads, or alone, as far as that asks.

    A worker with the pool solo does not read it while its task runs: here another worker asks that task.
    """
    worker, _ = proj.worker("-Q", "ours", pool=pool), proj.worker("-Q", "other", concurrency=1)
    sent, deaf = proj.send("look", 600, queue="ours"), None
    proj.await_runs(1)
    if pool != "solo":
        deaf = proj.send("busy", 3, "end", queue="ours")
        proj.await_runs(2)
    until(lambda: _shown(proj, sent.id))
    [reply] = proj.app.control.revoke(
        [task.id for task in (sent, deaf) if task], terminate=True, reply=True, limit=1, timeout=30,
        destination=[proj.workers[pool == "solo"].node],
    )  # fmt: skip
    assert all("ok" in answer for answer in reply.values())
    with pytest.raises(TaskRevokedError):
        sent.get(timeout=30)
    if deaf is not None and pool == "threads":
        assert deaf.get(timeout=30) == "end"
    elif deaf is not None:
        with pytest.raises(TaskRevokedError):
            deaf.get(timeout=30)
    assert worker.stop() == 0


@pytest.mark.parametrize("pool", POOLS)
def test_a_worker_that_is_told_to_stop_asks_its_tasks_after_its_grace(make_proj: MakeProj, pool: str) -> None:
    """After ``delayq_shutdown_grace`` a late-acked task goes back to its queue, and runs in the next worker.

    One that is acknowledged early can only return.
    """
    proj = make_proj(delayq_shutdown_grace=1)
    worker = proj.worker(pool=pool)
    early = proj.send("look", 600, kwargs={"check": False}) if pool != "solo" else None
    late = proj.send("late_look", 600)
    proj.await_runs(1 if pool == "solo" else 2)
    begun = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - begun > 1
    assert early is None or early.get(timeout=30) == "worker_stops"
    assert proj.server.client().hlen("unacked") == 0
    proj.worker(pool=pool)
    assert late.get(timeout=30) == "end"
    assert [run["redelivered"] for run in proj.runs(id=late.id)] == [False, True]


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_soft_shutdown_asks_tasks_before_its_end(make_proj: MakeProj, pool: str) -> None:
    """After four fifths of ``worker_soft_shutdown_timeout`` tasks are to stop, and still have time to do so."""
    proj = make_proj(worker_soft_shutdown_timeout=5)
    worker = proj.worker(pool=pool)
    sent = proj.send("look", 600, kwargs={"check": False})
    proj.await_runs(1)
    worker.process.send_signal(signal.SIGQUIT)
    worker.process.wait(60)
    assert sent.get(timeout=30) == "worker_stops"


def test_what_asks_in_one_task_asks_for_the_task_of_the_worker(proj: Proj) -> None:
    """A task that is called by the running one asks for that; without a worker nobody is to stop.

    An id that runs twice is asked twice. The shell says of it what became of it.
    """
    worker = proj.worker(pool="threads", concurrency=2)
    for _ in range(2):
        sent = proj.send("look_inside", 600, task_id="twice")
    proj.await_runs(4)
    until(lambda: "running, and asks cancelled()" in run(proj.server, "show", sent.id, code=1).stderr)
    assert run(proj.server, "cancel", "--yes", sent.id).stdout == f"{sent.id}: running, and asked to stop\n"
    assert worker.stop() == 0
    assert (cancelled(), check_cancelled()) == (None, None)


def test_running_tasks_are_asked_after_redis_was_away(make_proj: MakeProj) -> None:
    """The process subscribes again once Redis is back."""
    with PrivateRedis() as server:
        proj = make_proj(server)
        worker = proj.worker(pool="threads")
        sent = proj.send("look", 600)
        proj.await_runs(1)
        until(lambda: _shown(proj, sent.id))
        server.stop()
        server.start()
        until(lambda: _asked(proj, sent.id))
        with pytest.raises(TaskRevokedError):
            sent.get(timeout=30)
        worker.kill()


def _asked(proj: Proj, task_id: str) -> bool:
    with suppress(OperationalError):
        return cancel(proj.app, task_id) == "asked_to_stop"
    return False
