"""Entries that have left Redisson's layout stay in its list for a while: few, never delivered, cheap to get rid of."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.lookup import MAX_BYTES, Change
from kombu_delayq.store.redisson_layout import RedissonKeys
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, contents, only, popped, waiting
from tests.support.store.layouts import redisson_only
from tests.support.store.recorded import Recorder, Seen
from tests.support.store.redisson_layout import TRANSFER, entry, is_sound, listed, live, offer, task
from tests.support.store.tuned import tuned

pytestmark = redisson_only

COUNT = 4000
#: In which order messages leave that came one after the other: when the n-th is due.
ORDERS: dict[str, Callable[[int], float]] = {
    "first in, first out": float,
    "constant": lambda n: 0.0,
    "last in, first out": lambda n: float(COUNT - n),
    "from the middle": lambda n: float(abs(n - COUNT // 2)),
    "from both ends": lambda n: float(COUNT - abs(n - COUNT // 2)),
    "random": lambda n: float(random.Random(n).randrange(COUNT)),
}


def fill(store: DelayStore, ids: list[str], due_ms: Callable[[int], float] = lambda n: FUTURE_MS) -> None:
    """Offers messages, some hundreds a call."""
    for first in range(0, len(ids), 500):
        store.delivery.offer(
            "q", *(waiting(each, due_ms(first + n)) for n, each in enumerate(ids[first : first + 500]))
        )


def is_bounded(store: DelayStore) -> bool:
    """Whether the list is no longer than it may be, and the index of ids too."""
    length, size = (
        store.client.llen(RedissonKeys(store.keys).listed("q")),
        store.client.zcard(RedissonKeys(store.keys).timeout("q")),
    )
    indexed = store.client.hlen(RedissonKeys(store.keys).ids("q"))
    return bool(length == indexed == 0 if size == 0 else size <= length <= 1.5 * size + 1000 >= indexed - size)


@pytest.mark.parametrize("order", ORDERS)
def test_the_list_stays_short_while_messages_are_transferred(make_store: MakeStore, order: str) -> None:
    """In whatever order messages leave, each is delivered once, and the list is never much longer than what waits."""
    store = make_store(transfer_batch=150 * LAYOUT_OF["redisson"].batch_share)
    fill(store, [str(n) for n in range(COUNT)], lambda n: PAST_MS + ORDERS[order](n))
    due_of = {entry[16:]: due_ms for entry, due_ms in live(store).items()}
    while store.delivery.transfer("q").more:
        assert is_bounded(store)
    bodies = popped(store.client, "q")
    assert Counter(bodies) == Counter(due_of.keys())
    assert [due_of[each] for each in bodies] == sorted(due_of.values())
    assert contents(store.client).keys() == {b"{delayq}:queues"}


@pytest.mark.parametrize("order", ORDERS)
def test_the_list_stays_short_while_messages_are_cancelled(store: DelayStore, order: str) -> None:
    """In whatever order messages are cancelled, a few at a time, the list is never much longer than what waits."""
    ids = [str(n) for n in range(COUNT)]
    fill(store, ids)
    ids.sort(key=lambda each: ORDERS[order](int(each)))
    for first in range(0, COUNT, 40):
        assert len(store.lookup.cancel(["q"], ids[first : first + 40])) == 40
        assert is_bounded(store)
    assert contents(store.client).keys() == {b"{delayq}:queues"}


def test_the_list_stays_short_while_messages_are_rescheduled(store: DelayStore) -> None:
    """A few messages that are rescheduled for ever leave no long list behind, and no other message is moved about."""
    ids = [f"i{n}" for n in range(150)]
    fill(store, ids)
    for number in range(40):
        found = store.lookup.get(["q"], ids[:100])
        changes = [Change(each, FUTURE_MS + number, each.body or b"") for [each] in found.values()]
        assert set(store.lookup.reschedule("q", changes)) == {"rescheduled"}
        assert is_bounded(store)
    is_sound(store)
    assert store.lookup.get(["q"], ids).keys() == set(ids)
    assert store.lookup.index("q") == 0


@pytest.mark.parametrize("old", [False, True])
def test_garbage_is_delivered_by_nobody(store: DelayStore, old: bool) -> None:
    """What was cancelled is moved neither by us nor by Redisson, whatever the list still has of it."""
    ids = [f"i{n}" for n in range(300)]
    fill(store, ids, lambda n: PAST_MS + n)
    for number in range(1, 101):
        offer(store, number, task(f"other{number}"), PAST_MS + number, old=old)
    cancelled = [*ids[::2], *(f"other{number}" for number in range(1, 101, 2))]
    assert store.lookup.cancel(["q"], cancelled).keys() == set(cancelled)
    assert len(listed(store)) == 400 > 200 == len(live(store))
    names = ("q", RedissonKeys(store.keys).timeout("q"), RedissonKeys(store.keys).listed("q"))
    slow = DelayStore(store.client, store.keys, options=tuned(layout=store.layout, transfer_batch=10))
    while store.queues.size("q"):
        store.client.eval(TRANSFER, 3, *names, FUTURE_MS, 7, "dLc0" if old else "Bc0Lc0")
        slow.delivery.transfer("q")
    bodies = [
        *(f"body of {each}".encode() for each in ids[1::2]),
        *(task(f"other{number}") for number in range(2, 101, 2)),
    ]
    assert Counter(store.client.lrange("q", 0, -1)) == Counter(bodies)


@pytest.mark.parametrize("by_redisson", [False, True])
def test_what_comes_again_after_its_removal_is_delivered_once(store: DelayStore, by_redisson: bool) -> None:
    """A message that is offered again, and an entry that has the bytes of one that left, is a new one, once."""
    fill(store, [f"i{n}" for n in range(200)])
    offer(store, 7, task("other"), PAST_MS)
    store.delivery.offer("q", waiting("again", PAST_MS))
    assert len(store.lookup.cancel(["q"], ["again", "other"])) == 2
    assert entry(7, task("other")) in listed(store)
    store.delivery.offer("q", waiting("again", PAST_MS))
    offer(store, 7, task("other"), PAST_MS)
    assert {len(found) for found in store.lookup.get(["q"], ["again", "other"]).values()} == {1}
    for _ in range(3):
        if by_redisson:
            names = ("q", RedissonKeys(store.keys).timeout("q"), RedissonKeys(store.keys).listed("q"))
            store.client.eval(TRANSFER, 3, *names, PAST_MS, 100, "Bc0Lc0")
        else:
            store.delivery.transfer("q")
    assert sorted(store.client.lrange("q", 0, -1)) == [b"body of again", task("other")]
    assert store.queues.size("q") == 200


def looked_at(heard: list[Seen]) -> int:
    """Counts the entries that scripts may have read from ZSET and list."""
    total = 0
    for name, *arguments in (seen.parts for seen in heard if seen.in_script):
        if name in (b"ZRANGE", b"LRANGE"):
            first, last = int(arguments[1]), int(arguments[2])
            assert (first < 0) == (last < 0), "this may be all"
            total += last - first + 1
        elif name == b"ZRANGEBYSCORE":
            total += int(arguments[arguments.index(b"LIMIT") + 2])
        elif name == b"HSCAN":
            total += int(arguments[-1])
    return total


@pytest.fixture
def looks(redis_server: PrivateRedis, store: DelayStore) -> Callable[[Callable[[], Any]], int]:
    """Does something, and returns how many entries were looked at."""

    def count(act: Callable[[], Any]) -> int:
        with Recorder(store.client, redis_server.port) as heard:
            act()
            return looked_at(heard.heard())

    return count


def test_no_call_goes_through_a_long_queue(store: DelayStore, looks: Callable[[Callable[[], Any]], int]) -> None:
    """With 20,000 waiting, half as much garbage, and what others have offered, a call looks at a few for each moved."""
    ids = [f"i{n}" for n in range(20_000)]
    fill(store, ids, lambda n: (PAST_MS if n % 10 == 0 else FUTURE_MS) + random.Random(n).randrange(10**6))
    for first in range(0, 8000, 500):
        store.lookup.cancel(["q"], [each for each in ids[first : first + 500] if int(each[1:]) % 10])
    store.client.config_resetstat()
    [found] = store.lookup.get(["q"], ["i19999"])["i19999"]
    assert looks(lambda: store.delivery.offer("q", waiting("new"))) <= 5
    assert looks(lambda: store.lookup.get(["q"], ["i19999"])) <= 40
    assert looks(lambda: store.lookup.reschedule("q", [Change(found, FUTURE_MS, b"new")])) <= 60
    assert looks(lambda: store.lookup.cancel(["q"], ["i19998"])) <= 60
    assert looks(lambda: store.lookup.run_now("q", [Change(only(store, "i19997"), 0, b"")])) <= 100
    assert looks(lambda: store.delivery.transfer("q")) <= 10 * 250 + 200
    assert looks(lambda: store.scan.browse("q", count=10)) <= 20
    assert looks(lambda: store.lookup.index("q")) <= 10
    stats = store.client.info("commandstats")
    assert not {"cmdstat_lrem", "cmdstat_lpos", "cmdstat_hgetall"} & stats.keys()


def test_large_messages_are_looked_at_a_few_at_a_time(
    make_store: MakeStore, store: DelayStore, looks: Callable[[Callable[[], Any]], int]
) -> None:
    """Where small messages come before large ones, a call reads no more than some dozens beyond what it moves."""
    fill(store, [f"small{n}" for n in range(60)], lambda n: PAST_MS)
    for n in range(150):
        store.delivery.offer("q", waiting(f"large{n}", PAST_MS + 1, f"large{n}".ljust(MAX_BYTES // 2)))
        offer(store, n + 1, task(f"other{n}").ljust(MAX_BYTES // 2), PAST_MS + 1)
    assert looks(lambda: store.scan.browse("q", count=5000)) <= 128
    transfer, moved = make_store(transfer_batch=5000).delivery.transfer, 0
    while moved <= 60:  # on a busy machine some calls end early
        assert looks(lambda: transfer("q")) <= 200
        moved += len(popped(store.client, "q"))
    assert moved < 130
    assert looks(lambda: store.delivery.transfer("q")) <= 100
    assert len(popped(store.client, "q")) < 20


def test_many_messages_of_one_id_are_looked_at_a_few_at_a_time(
    store: DelayStore, looks: Callable[[Callable[[], Any]], int]
) -> None:
    """Of hundreds that share an id a publish looks at the latest, among which its second attempt finds the first."""
    for first in range(0, 600, 100):
        store.delivery.offer("q", *(waiting("i", FUTURE_MS + n, f"{n}") for n in range(first, first + 100)))
    assert looks(lambda: store.delivery.offer("q", waiting("i", body="new"))) <= 110
    assert store.delivery.offer("q", waiting("i", body="new"), waiting("i", FUTURE_MS, "550")).repeated == 2
    assert looks(lambda: store.lookup.get(["q"], ["i"])) <= 110
    cancelled = 0
    while found := store.lookup.cancel(["q"], ["i"]):
        cancelled += len(found["i"])
    assert (cancelled, store.queues.size("q")) == (601, 0)
