"""Transfer workers that wait, for whom a leader and its standbys are enough."""

from collections.abc import Callable, Iterator

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.transfer.leadership import WAITING_LOOKS
from kombu_delayq.transfer.worker import TransferWorker
from tests.support.conditions import DEADLINE_S, stays, until
from tests.support.workers.held import KEYS
from tests.support.workers.transfers import QUEUE, arrived, listeners, offer

POLL_S = 0.1
LEASES = KEYS.leases
#: Looks of one that waits are at most 1.2 s apart; the rest is for a busy machine.
LATE_S = 30.0

#: Starts a transfer worker without waiting until one leads; keywords are its own.
Waiting = Callable[..., TransferWorker]

pytestmark = pytest.mark.both_layouts


@pytest.fixture
def store(client: redis.Redis, layout: str) -> DelayStore:
    return DelayStore(client, KEYS, options=Options(layout=layout))


@pytest.fixture
def waiting(redis_server: PrivateRedis, layout: str) -> Iterator[Waiting]:
    workers: list[TransferWorker] = []

    def start(queues: Callable[[], list[str]] = list) -> TransferWorker:
        options = Options(layout=layout, poll_interval=POLL_S)
        workers.append(
            TransferWorker(
                lambda: DelayStore(redis.Redis(port=redis_server.port), KEYS, options=options), queues=queues
            )
        )
        workers[-1].start()
        return workers[-1]

    yield start
    for worker in workers:
        worker.stop(DEADLINE_S)


def _hold_leases(client: redis.Redis, px: int = 600_000) -> None:
    """Leaves the leases as workers that were killed leave them."""
    for key in LEASES:
        client.set(key, f"dead:{key}", px=px)


def test_who_stands_by_delivers_while_dead_workers_hold_the_leases(
    store: DelayStore, client: redis.Redis, waiting: Waiting
) -> None:
    """With leader and standbys dead and their leases held, messages arrive some poll intervals late, each once."""
    _hold_leases(client)
    worker = waiting()
    for n in range(10):
        offer(store, str(n), 0.1 * n)
        offer(store, str(n), 0.1 * n, "new")
    for queue in (QUEUE, "new"):
        until(lambda: len(arrived(client, queue)) == 10, LATE_S)  # noqa: B023
        assert set(arrived(client, queue).values()) == {1}
    assert not worker.leading
    assert WAITING_LOOKS[1] <= 12  # as the documentation says


def test_who_stands_by_leads_when_the_leases_end(store: DelayStore, client: redis.Redis, waiting: Waiting) -> None:
    """One that waits leads soon after the leases of the dead have ended, and the next are its standbys."""
    _hold_leases(client, 700)
    workers = [waiting() for _ in range(4)]
    until(lambda: any(worker.leading for worker in workers), LATE_S)
    names = {worker.name for worker in workers}
    until(lambda: len(names.intersection(map(client.get, LEASES))) == 3, LATE_S, "no lease of the dead is left")
    until(
        lambda: listeners(client, store.layout) == 3 or store.layout == "redisson",
        LATE_S,
        "the leader and its standbys listen",
    )


def test_a_leader_and_standbys_that_stop_are_replaced(client: redis.Redis, waiting: Waiting) -> None:
    """As workers stop one after the other, the next ones lead and are standbys; the last one leads alone."""
    workers = [waiting() for _ in range(6)]
    while len(workers) > 1:
        until(lambda: client.exists(*LEASES) == min(len(workers), 3), LATE_S)
        holders = [str(client.get(key)) for key in LEASES]
        for gone in [worker for worker in workers if worker.name in holders][: len(workers) - 1]:
            gone.stop(DEADLINE_S)
            workers.remove(gone)
    until(lambda: workers[0].leading, LATE_S)
    stays(lambda: not client.exists(*LEASES[1:]), 0.3)
