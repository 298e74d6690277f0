"""What a worker does with running tasks when it loses its connections."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread

import pytest
from kombu.exceptions import OperationalError

from tests.support.conditions import until
from tests.support.workers.consumers import held, none_held, waiting
from tests.support.workers.fixtures import patched
from tests.support.workers.harness import MakeProj, Proj
from tests.support.workers.visibility import sweep, swept_after

POOLS = ["prefork", "threads", "solo", "gevent"]


def _lose_connections(proj: Proj) -> None:
    """Kills all connections, of which Redis tells only the clients."""
    assert proj.server.client().client_kill_filter(_type="normal", skipme=True)


@contextmanager
def _load(proj: Proj, queues: Sequence[str]) -> Iterator[None]:
    """Publishes tasks to the queues all the time, of which most run for a while."""
    stopping = Event()

    def publish() -> None:
        while not stopping.wait(0.2):
            for queue in queues:
                with suppress(OperationalError):  # its own connection was killed, too
                    proj.send("busy", 0.1, queue=queue, ignore_result=True)

    thread = Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


@pytest.mark.parametrize("pool", [pytest.param("prefork", marks=pytest.mark.journey), "threads"])
def test_a_worker_goes_on_after_it_lost_its_connections(make_proj: MakeProj, pool: str) -> None:
    """Each time that its connections are killed, the worker connects again and runs what comes then, once."""
    proj = make_proj()
    client = proj.server.client()
    worker = proj.worker(pool=pool)
    for value in range(3):
        until(lambda: none_held(client))  # else the task before would come again
        _lose_connections(proj)
        proj.send("record", value)
        proj.await_runs(value + 1)
    until(lambda: none_held(client) and not waiting(client))
    assert [run["value"] for run in proj.runs()] == [0, 1, 2]
    proj.await_answers()
    assert worker.stop() == 0


@patched
def test_what_no_thread_has_begun_runs_once_after_a_lost_connection(make_proj: MakeProj) -> None:
    """Reserved messages go back to their queue with the connection, so the pool must not run them as well."""
    proj = make_proj(include=["stock_tasks"])
    client = proj.server.client()
    worker = proj.worker(pool="threads")
    for value in range(6):  # fewer than it may reserve
        proj.send("gated", "gate", value)
    proj.await_runs(2)
    until(lambda: held(client) == 4 and client.info("clients")["blocked_clients"])  # it waits, and so notices the loss
    _lose_connections(proj)
    until(lambda: "Connection to broker lost" in worker.log)
    proj.journal.set("gate", 1)
    proj.await_runs(6)
    until(lambda: none_held(client) and not waiting(client))
    assert sorted(run["value"] for run in proj.runs()) == [*range(6)]
    assert worker.stop() == 0


@pytest.mark.nightly
def test_a_running_task_is_cancelled_when_its_worker_loses_its_connections(make_proj: MakeProj) -> None:
    """With ``worker_cancel_long_running_tasks_on_connection_loss`` the task is ended, and comes again."""
    proj = make_proj(
        include=["stock_tasks"],
        broker_transport_options=swept_after(3),
        worker_cancel_long_running_tasks_on_connection_loss=True,
    )
    client = proj.server.client()
    worker = proj.worker(concurrency=2)
    proj.send("gated_late", "gate", "x")
    proj.await_runs(1)
    _lose_connections(proj)
    until(lambda: "Connection to broker lost" in worker.log)

    def again() -> bool:
        sweep(proj)
        return len(proj.runs()) == 2

    until(again, 40, worker.log)
    proj.journal.set("gate", 1)
    runs = proj.await_runs(3)
    until(lambda: none_held(client) and not waiting(client))
    assert [run.get("passed") for run in runs] == [None, None, "x"]
    assert len({run["pid"] for run in runs}) == 2
    assert worker.alive()


@pytest.mark.nightly
@pytest.mark.parametrize("consume", ["reliable"])
def test_workers_lose_their_connections_again_and_again_under_load(make_proj: MakeProj) -> None:
    """With all that a worker does by default, each pool consumes after 20 losses while tasks run, and stops clean."""
    proj = make_proj()
    workers = {pool: proj.worker("-Q", pool, pool=pool, wait=False, gossip=True) for pool in POOLS}
    for worker in workers.values():
        worker.ready()
    with _load(proj, POOLS):
        for loss in range(20):
            _lose_connections(proj)
            for pool in POOLS:
                proj.send("record", loss, queue=pool, ignore_result=True)
            proj.await_runs(len(POOLS), value=loss)
    for pool, worker in workers.items():
        assert worker.log.count("mingle: searching") > 15, pool
        assert worker.stop() == 0, pool
