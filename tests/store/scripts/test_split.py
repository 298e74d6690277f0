"""``split.lua``: cuts a queue's waiting messages into parts."""

import pytest

from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import FUTURE_MS, ODD_IDS, contents, odd, waiting
from tests.support.store.parts import connected, cut_into, scanned, whole
from tests.support.store.tuned import tuned


@pytest.mark.parametrize("count", [1, 2, 7, 99, 100])
@pytest.mark.parametrize("same", [1, 7, 100])
def test_parts_are_even_and_have_each_message_once(store: DelayStore, count: int, same: int) -> None:
    """Parts differ in size by one message at most and have each message once, also where many are due at one time."""
    store.delivery.offer("q", *(waiting(str(n), FUTURE_MS + n // same) for n in range(100)))
    before = contents(store.client)
    parts = cut_into(store, count)
    assert connected(parts)
    found = [scanned(store, part) for part in parts]
    assert [each for ids in found for each in ids] == [str(n) for n in range(100)]
    assert {len(ids) for ids in found} <= {100 // count, -(-100 // count)}
    assert contents(store.client) == before


@pytest.mark.parametrize("how", ["cancel", "transfer"])
def test_what_leaves_moves_no_other_to_another_part(store: DelayStore, how: str) -> None:
    """After the messages at which parts end, and all before, have left, the others are in the parts where they were."""
    store.delivery.offer("q", *(waiting(str(n), 1000.0 + n // 20) for n in range(100)))
    parts = cut_into(store, 4)
    before = [scanned(store, part) for part in parts]
    if how == "cancel":
        store.lookup.cancel(["q"], [str(n) for n in range(0, 100, 2)] + [ids[-1] for ids in before])
    else:
        DelayStore(store.client, store.keys, options=tuned(layout=store.layout, transfer_batch=60)).delivery.transfer(
            "q"
        )
    left = set(scanned(store))
    assert 0 < len(left) < 100
    assert [scanned(store, part) for part in parts] == [[each for each in ids if each in left] for ids in before]


def test_ranks_count_from_the_lower_bound(store: DelayStore) -> None:
    """Only messages within the bounds are cut: from the lower on, before the upper."""
    store.delivery.offer("q", *(waiting(str(n), FUTURE_MS + n) for n in range(20)))
    bounds = {"from_ms": FUTURE_MS + 5, "to_ms": FUTURE_MS + 15}
    parts = cut_into(store, 2, **bounds)
    assert [scanned(store, part, **bounds) for part in parts] == [
        ["5", "6", "7", "8", "9"],
        ["10", "11", "12", "13", "14"],
    ]


def test_where_there_is_no_message_any_more_nothing_is_cut(store: DelayStore) -> None:
    """Ranks behind the last message, and an empty queue, are cut nowhere; the last part goes to the end."""
    assert store.scan.split("q", [0, 1]) == [whole(store)]
    assert store.scan.split("q", []) == [whole(store)]
    store.delivery.offer("q", waiting("i"), waiting("j"))
    [one, other] = store.scan.split("q", [0, 5, 9])
    assert (scanned(store, one), scanned(store, other)) == (["i"], ["j"])
    assert other.until is None


def test_a_part_may_end_at_any_id(store: DelayStore) -> None:
    """A part ends at a message of any id, bare or marked, even when that has left."""
    for identity in ODD_IDS:
        store.client.flushall()
        store.delivery.offer("q", waiting("before", 1.0), odd(identity), waiting("after", FUTURE_MS + 1))
        store.delivery.offer("q", odd(identity, "another", due_ms=FUTURE_MS + 2))
        parts = store.scan.split("q", [0, 1, 2])
        assert [len(scanned(store, part)) for part in parts] == [1, 1, 1, 1]
        assert scanned(store, parts[1]) == [identity]
        store.lookup.cancel(["q"], [identity])
        assert [scanned(store, part) for part in parts] == [["before"], [], ["after"], []]
