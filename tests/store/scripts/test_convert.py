"""``convert.lua``: moves delayed messages of a queue from one layout to the other."""

from math import ceil

import pytest

from celery_ext.waiting import by_id
from kombu_delayq.options import LAYOUTS
from kombu_delayq.store import DelayStore
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.queues import CONVERT_COUNT, Converted
from kombu_delayq.store.redisson_layout import RedissonKeys
from kombu_delayq.store.types import Offer, Waiting
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import (
    FUTURE_MS,
    ODD_IDS,
    PAST_MS,
    announced,
    contents,
    ear_of,
    odd,
    only,
    popped,
    waiting,
)
from tests.support.store.redisson_layout import offer


@pytest.fixture
def source(make_store: MakeStore, layout: str) -> DelayStore:
    """A store in the layout that messages are moved from; ``store`` is in that to which they go."""
    [other] = {*LAYOUTS} - {layout}
    return make_store(layout=other)


def converted(store: DelayStore) -> list[Converted]:
    """Moves all that there is, and returns what each call says."""
    calls = [store.queues.convert("q")]
    while calls[-1].left:
        calls.append(store.queues.convert("q"))
    return calls


def browsed(store: DelayStore) -> list[Waiting]:
    """All messages of the queue, in the layout of the store."""
    return [*by_id.browse(store, "q")]


def told(messages: list[Waiting]) -> list[tuple[float, int, bytes | None]]:
    """What an order of delivery consists of: due times in whole ms, priorities, bodies."""
    return [(ceil(each.due_ms), each.priority, each.body) for each in messages]


def test_all_that_waits_is_moved_in_its_order_and_nothing_stays_behind(store: DelayStore, source: DelayStore) -> None:
    """By due time, and of one due time as published, with priorities and ids; the keys of the other layout are gone."""
    offers = [waiting(f"i{n}", FUTURE_MS + n * 7 % 11 / 4, priority=n % 10) for n in range(350)]
    for start in range(0, 350, 50):
        source.delivery.offer("q", *offers[start : start + 50])
    before = sorted(told(browsed(source)), key=lambda each: each[0])  # only rounded: the order of equal ones stays
    calls = converted(store)
    assert sum(call.moved for call in calls) == 350
    assert max(call.moved for call in calls) <= CONVERT_COUNT
    assert {call.lost for call in calls} == {0}
    assert told(browsed(store)) == before
    assert {each.layout for each in browsed(store)} == {store.layout}
    found = store.lookup.get(["q"], [offer.id for offer in offers])  # type: ignore[misc]
    assert {each: [message.body for message in of] for each, of in found.items()} == {
        offer.id: [offer.body.encode()]
        for offer in offers  # type: ignore[union-attr]
    }
    assert not set(contents(store.client)) & {key.encode() for key in LAYOUT_OF[source.layout].keys(store.keys, "q")}


def test_there_and_back_a_queue_is_as_it_was(store: DelayStore, source: DelayStore) -> None:
    """Messages of whole ms come back with every byte, odd ids and duplicates among them, each found by its id."""
    source.delivery.offer("q", *(odd(each, f"{n}", FUTURE_MS + n % 3, n % 10) for n, each in enumerate(ODD_IDS)))
    source.delivery.offer("q", *(Offer("t", repr(FUTURE_MS - n), n % 2, f"duplicate {n}") for n in range(20)))
    source.delivery.offer("q", Offer("t~0123456789abcdef", repr(FUTURE_MS), 0, "no duplicate"))
    before = told(browsed(source))
    converted(store)
    assert told(browsed(store)) == before
    calls = converted(source)
    assert (sum(call.moved for call in calls), sum(call.lost for call in calls)) == (len(before), 0)
    assert calls[-1].stranded == 0
    assert told(browsed(source)) == before
    for n, each in enumerate(ODD_IDS):
        assert only(source, each).body == str(n).encode()
    assert only(source, "t~0123456789abcdef").body == b"no duplicate"
    duplicates = source.lookup.cancel(["q"], ["t"])["t"]
    assert [each.body for each in duplicates] == [f"duplicate {n}".encode() for n in reversed(range(20))]
    assert source.queues.size("q") == len(ODD_IDS) + 1


def test_what_is_there_stays_beside_what_comes(store: DelayStore, source: DelayStore) -> None:
    """Messages of both layouts are one queue then, and as many as before, whatever ids and bytes they have."""
    store.delivery.offer("q", waiting("a"), waiting("b", FUTURE_MS + 1), waiting("c"))
    source.delivery.offer(
        "q", waiting("d"), waiting("b", FUTURE_MS + 1), waiting("c", body="another"), waiting("e", PAST_MS)
    )
    assert store.queues.convert("q") == (4, 0, 0, 0)
    assert [each.body for each in browsed(store)] == [
        *(b"body of e", b"body of a", b"body of c", b"body of d", b"another", b"body of b", b"body of b")
    ]
    assert {each.body for each in store.lookup.get(["q"], ["c"])["c"]} == {b"body of c", b"another"}
    assert len(store.lookup.cancel(["q"], ["b"])["b"]) == 2
    assert store.queues.convert("q") == (0, 0, 0, 0)


def test_without_anything_to_move_nothing_is_made(store: DelayStore) -> None:
    """A queue that is not there, or not in the other layout, stays as it is."""
    assert store.queues.convert("nope") == (0, 0, 0, 0)
    assert contents(store.client) == {}
    store.delivery.offer("q", waiting("i"))
    before = contents(store.client)
    assert store.queues.convertible("q") == 0
    assert store.queues.convert("q") == (0, 0, 0, 0)
    assert contents(store.client) == before


def test_large_messages_are_moved_a_few_at_a_time(store: DelayStore, source: DelayStore) -> None:
    """A call ends when it has moved about as many bytes as it may."""
    for n in range(8):
        source.delivery.offer("q", waiting(f"i{n}", FUTURE_MS + n, "x" * 200_000))
    assert store.queues.convertible("q") == 8
    first = store.queues.convert("q")
    assert first.moved in (2, 3)
    assert store.queues.convertible("q") == first.left == 8 - first.moved
    assert converted(store)[-1].left == 0
    assert [each.id for each in browsed(store)] == [f"i{n}" for n in range(8)]


@pytest.mark.parametrize(
    ("own_ms", "other_ms", "least", "most"),
    [
        *((None, 0, -1, -1), (None, 60_000, 50_000, 60_000), (0, 60_000, -1, -1), (60_000, 0, -1, -1)),
        *((60_000, 600_000, 500_000, 600_000), (600_000, 60_000, 500_000, 600_000)),
    ],
)
def test_a_queue_expires_no_sooner_than_in_either_form(
    store: DelayStore, source: DelayStore, own_ms: int | None, other_ms: int, least: int, most: int
) -> None:
    """Of x-expires the longer one holds, for all keys; none is the longest, and that of no queue does not count."""
    if own_ms is not None:
        store.delivery.offer("q", waiting("own", PAST_MS), waiting("own", PAST_MS, "duplicate"), expire_ms=own_ms)
    offers = (waiting(f"i{n}", PAST_MS, priority=5) for n in range(150))
    source.delivery.offer("q", *offers, waiting("i1", PAST_MS, "x"), expire_ms=other_ms)
    for _ in range(2):
        store.queues.convert("q")
        for key in LAYOUT_OF[store.layout].keys(store.keys, "q"):
            assert store.client.pttl(key) in (-2, *range(least, most + 1))
    assert store.client.pttl(LAYOUT_OF[store.layout].keys(store.keys, "q")[0]) != -2


def test_a_new_head_is_announced(store: DelayStore, source: DelayStore) -> None:
    """Transfer workers are told of what is due before all others, in the way of the form to which it came."""
    ear = ear_of(store)
    source.delivery.offer("q", waiting("i", FUTURE_MS), waiting("j", FUTURE_MS + 1))
    ear.heard()
    store.queues.convert("q")
    assert ear.heard() == [announced(store, FUTURE_MS)]
    source.delivery.offer("q", waiting("k", FUTURE_MS + 2))
    ear.heard()
    store.queues.convert("q")
    assert ear.heard() == []
    ear.close()


def test_a_queue_that_is_forgotten_is_known_again(store: DelayStore, source: DelayStore) -> None:
    """The first message in a form makes its queue known, as one that is offered does."""
    source.delivery.offer("q", waiting("i"))
    store.client.delete(store.keys.queues)
    store.queues.convert("q")
    assert store.queues.names() == ["q"]


def test_what_is_due_is_delivered_once_by_transfers_of_either_form(store: DelayStore, source: DelayStore) -> None:
    """Half way, both layouts are transferred; a due time before 1970 is no reason to wait for ever."""
    dues = [-1.0, *(PAST_MS + n / 4 for n in range(249))]
    for start in range(0, 250, 50):
        source.delivery.offer("q", *(waiting(f"i{n}", dues[n]) for n in range(start, start + 50)))
    store.queues.convert("q")
    bodies = []
    while store.queues.size("q") + store.queues.convertible("q"):
        for form in LAYOUTS:
            store.delivery.transfer("q", form)
        bodies += popped(store.client, "q")
    assert sorted(bodies) == sorted(f"body of i{n}".encode() for n in range(250))


def test_equal_messages_of_redisson_are_as_many_as_before(make_store: MakeStore) -> None:
    """Another client may offer the same bytes twice: two messages, also after a conversion there and back."""
    store, listed = make_store(layout="hash"), make_store(layout="redisson")
    for number in range(1, 5):
        offer(store, number, b'{"headers": {"task": "t", "id": "i"}, "properties": {"priority": 3}}')
    offer(store, 5, b"no task")
    offer(store, 6, b"no task")
    before = sorted(each.body or b"" for each in browsed(listed))
    assert store.queues.convert("q", "hash").moved == 6
    assert sorted(each.body or b"" for each in browsed(store)) == before
    assert [each.priority for each in store.lookup.get(["q"], ["i"])["i"]] == [3] * 4
    assert store.queues.convert("q", "redisson").moved == 6
    assert len(listed.lookup.get(["q"], ["i"])["i"]) == 4
    store.queues.convert("q", "hash")
    assert len(store.lookup.cancel(["q"], ["i"])["i"]) == 4
    assert [each.body for each in browsed(store)] == [b"no task"] * 2


def test_what_has_no_body_is_counted_and_what_has_no_due_time_is_left(make_store: MakeStore) -> None:
    """An index entry without a body is removed as a transfer removes it; a body without one stays for a repair."""
    store = make_store(layout="redisson")
    source = make_store(layout="hash")
    source.delivery.offer("q", *(waiting(f"i{n}") for n in range(CONVERT_COUNT + 10)))
    source.client.hdel(source.keys.bodies("q"), "i7")
    source.client.zrem(source.keys.due("q"), source.client.zrange(source.keys.due("q"), -3, -3)[0])
    calls = converted(store)
    assert len(calls) > 1
    assert (sum(done.moved for done in calls), sum(done.lost for done in calls)) == (CONVERT_COUNT + 8, 1)
    assert (calls[-1].left, calls[-1].stranded) == (0, 1)
    assert source.client.hlen(source.keys.bodies("q")) == 1


def test_entries_that_hold_no_message_are_counted(make_store: MakeStore) -> None:
    """What another program has put among the entries cannot be delivered: it is removed, and counted as lost."""
    store = make_store(layout="hash")
    offer(store, 1, b"a message")
    store.client.zadd(RedissonKeys(store.keys).timeout("q"), {b"": 1, b"x": 2, b"\x08 cut off": FUTURE_MS + 1})
    assert store.queues.convert("q") == (1, 3, 0, 0)
    assert [each.body for each in browsed(store)] == [b"a message"]


def test_of_many_messages_of_one_id_none_is_looked_at_for_another(store: DelayStore, source: DelayStore) -> None:
    """A call costs what it moves, however many messages share an id, and all of them are found by it."""
    [hashed], count = [each for each in (store, source) if each.layout == "hash"], 1500
    for start in range(0, count, 100):
        hashed.delivery.offer("q", *(waiting("i", FUTURE_MS + n, f"body {n}") for n in range(start, start + 100)))
    for layout in ("redisson", "hash"):
        store.client.config_resetstat()
        while store.queues.convert("q", layout).left:
            pass
        calls = store.client.info("commandstats")
        assert calls.get("cmdstat_zrange", {"calls": 0})["calls"] < count
        assert calls.get("cmdstat_hget", {"calls": 0})["calls"] < 2.5 * count
    assert len(hashed.lookup.get(["q"], ["i"])["i"]) == 101
    assert [each.body for each in browsed(hashed)] == [f"body {n}".encode() for n in range(count)]
