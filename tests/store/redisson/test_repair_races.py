"""Repairs of a queue in Redisson's layout while it is in use, by us and by other clients: none is lost or doubled."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from celery_ext.repair import Findings, check
from kombu_delayq.store import DelayStore
from tests.support.conditions import until
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import PAST_MS, popped, waiting
from tests.support.store.layouts import redisson_only
from tests.support.store.redisson_layout import LISTED, TIMEOUT, TRANSFER, entry, task

pytestmark = redisson_only

#: How another client offers.
OFFER = "redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2]) redis.call('RPUSH', KEYS[2], ARGV[2])"
COUNT = 1000


def we_transfer(store: DelayStore, _: int) -> None:
    store.delivery.transfer("q")


def they_transfer(store: DelayStore, _: int) -> None:
    store.client.eval(TRANSFER, 3, "q", TIMEOUT, LISTED, str(store.now_ms()), 20, "Bc0Lc0")


def repair(store: DelayStore, _: int) -> None:
    findings = Findings("q")
    for _each in check(store, findings, ["q"], mend=True):
        pass
    assert (findings.lost, findings.unindexed, findings.error) == (0, 0, None)


def search(store: DelayStore, _: int) -> None:
    store.lookup.get(["q"], ["unknown"])


def lose_list(store: DelayStore, turn: int) -> None:
    if turn % 50 == 0:
        store.client.delete(LISTED)
    store.client.ping()


def offer(store: DelayStore, n: int) -> None:
    """Offers one message of ours and one of another client, overdue or due soon."""
    due_ms = store.now_ms() + n % 300 if n % 3 else PAST_MS
    store.delivery.offer("q", waiting(f"ours{n}", due_ms, task(f"ours{n}")))
    theirs = entry(n, task(f"theirs{n}"))
    store.client.eval(OFFER, 2, TIMEOUT, LISTED, str(int(due_ms)), theirs)


def test_nothing_is_lost_or_doubled(make_store: MakeStore) -> None:
    """While two clients offer, search and transfer, and the list is lost again and again, repairs double nothing."""
    done = Event()
    turns: Counter[str] = Counter()
    acts = (we_transfer, they_transfer, repair, repair, search, lose_list)

    def forever(act: Callable[[DelayStore, int], object]) -> None:
        store = make_store()
        while not done.is_set():
            act(store, turns[act.__name__])
            turns[act.__name__] += 1

    store = make_store()
    with ThreadPoolExecutor(len(acts)) as pool:
        futures = [pool.submit(forever, act) for act in acts]
        try:
            for n in range(COUNT):
                offer(store, n)
            until(lambda: not store.queues.size("q") or any(future.done() for future in futures))
        finally:
            done.set()
        for future in futures:
            future.result()
    assert min(turns.values()) > 5
    ran = Counter(popped(store.client, "q"))
    assert ran == Counter(task(f"{whose}{n}") for n in range(COUNT) for whose in ("ours", "theirs"))
