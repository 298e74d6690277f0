"""``transfer.lua``: moves due messages to the lists from which kombu consumes."""

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.types import Offer
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import (
    FUTURE_MS,
    PAST_MS,
    clock_ms,
    contents,
    kept_ms,
    look,
    lose_body,
    popped,
    waiting,
)
from tests.support.store.layouts import hash_only


def test_due_messages_move_and_others_stay(store: DelayStore) -> None:
    """A transfer empties the store of what is due, into the queue's list, and touches nothing else."""
    store.client.lpush("q", "ready before")
    store.delivery.offer("q", Offer("later", repr(FUTURE_MS), 0, "later's body"))
    store.delivery.offer("other", waiting("i", PAST_MS))
    store.delivery.offer("q", waiting("second", PAST_MS + 0.001), waiting("first", PAST_MS))
    before = look(store)
    done = store.delivery.transfer("q")
    assert (done.moved, done.lateness_ms) == (2, done.now_ms - kept_ms(store, PAST_MS))
    assert (done.lost, done.next_due_ms, done.more) == (0, FUTURE_MS, False)
    assert look(store) == {
        **before,
        b"q": [b"body of second", b"body of first", b"ready before"],
        b"waiting in q": [("later", FUTURE_MS, 0, b"later's body")],
    }
    kept = contents(store.client)
    assert [len(kept[key.encode()]) for key in LAYOUT_OF[store.layout].keys(store.keys, "q")[:2]] == [1, 1]


def test_a_batch_ends_when_it_takes_long(make_store: MakeStore) -> None:
    """Of the most messages that the option allows, a call leaves some to the next, so that others have their turn."""
    store = make_store(transfer_batch=5000, transfer_batch_bytes=100_000_000)
    store.delivery.offer("q", *(waiting(str(number), PAST_MS) for number in range(5001)))
    done = store.delivery.transfer("q")
    assert 16 <= done.moved < 5000 // LAYOUT_OF[store.layout].batch_share
    while done.more:
        done = store.delivery.transfer("q")
    assert store.client.llen("q") == 5001


@pytest.mark.parametrize("size", [1, 99, 1_000, 50_000])
def test_a_batch_is_bounded_in_bytes(make_store: MakeStore, size: int) -> None:
    """A call moves at least one message, and stays near ``transfer_batch_bytes`` whatever the size of messages."""
    store = make_store(transfer_batch=5000, transfer_batch_bytes=10_000)
    store.delivery.offer("q", *(waiting(f"{number:05}", PAST_MS, "x" * size) for number in range(400)))
    moved = store.delivery.transfer("q").moved
    assert moved >= 1
    assert (moved - 1) * size <= 3 * 10_000
    while store.delivery.transfer("q").more:
        pass
    assert store.client.llen("q") == 400


def test_an_index_entry_without_a_body_is_dropped_and_counted(store: DelayStore) -> None:
    """What is left of a message without its body is counted as lost, and holds up no other."""
    store.delivery.offer("q", *(waiting(str(number), PAST_MS + number) for number in range(6)), waiting("later"))
    lose_body(store, "0", "3")
    done = store.delivery.transfer("q")
    assert (done.moved, done.lost) == (4, 2)
    assert popped(store.client, "q") == [f"body of {number}".encode() for number in (1, 2, 4, 5)]
    assert [each[0] for each in look(store)[b"waiting in q"]] == ["later"]


@hash_only
def test_a_body_without_an_index_entry_stays(store: DelayStore) -> None:
    """A body that nothing points to is neither moved nor removed."""
    store.client.hset("delayq:{q}:bodies", "i", "body")
    before = contents(store.client)
    assert store.delivery.transfer("q").moved == 0
    assert contents(store.client) == before


def test_no_message_leaves_before_its_microsecond(make_store: MakeStore) -> None:
    """By Redis's clock no message is moved in the µs before it is due, however often a transfer asks."""
    store = make_store(transfer_batch=1000)  # more than all: on a busy machine many are due at once
    start_ms = clock_ms(store.client) + 5
    dues_ms = {f"{number:03}": start_ms + number * 0.257 for number in range(200)}
    store.delivery.offer("q", *(waiting(name, due_ms) for name, due_ms in dues_ms.items()))
    moved = 0
    while moved < len(dues_ms):
        done = store.delivery.transfer("q")
        after_ms = clock_ms(store.client)
        assert done.lateness_ms >= 0
        for body in popped(store.client, "q"):
            assert after_ms >= dues_ms[body.decode().removeprefix("body of ")]
            moved += 1
    assert store.queues.size("q") == 0


@hash_only  # test_malformed.py has what may be wrong with an entry of Redisson's layout
@pytest.mark.parametrize("damaged", [b"\x7f", b"\x7f0000", b"\x7f00000001", b"\x7f00000001xbody"])
def test_a_damaged_mark_does_not_block_a_queue(store: DelayStore, damaged: bytes) -> None:
    """A body whose mark somebody damaged goes to the list, and so do the messages behind it."""
    store.delivery.offer("q", waiting("i", PAST_MS), waiting("j", PAST_MS + 1))
    store.client.hset("delayq:{q}:bodies", "i", damaged)
    assert store.delivery.transfer("q").moved == 2
    assert popped(store.client, "q")[1] == b"body of j"


def test_large_messages_are_noted_and_read_one_by_one(store: DelayStore) -> None:
    """A queue that has had a large message moves all of them in their order, whatever stands beside it in a batch."""
    sizes = [10, 100_000, 20, 30, 400_000, 40, 2_000_000, 2_000_000, 50]
    offers = [waiting(f"{n}", PAST_MS + n, f"{n}" * size, priority=n % 2) for n, size in enumerate(sizes)]
    store.delivery.offer("q", *offers, waiting("later"))
    calls = []
    while (done := store.delivery.transfer("q")).moved:
        calls.append(done.moved)
    assert sum(calls) == len(sizes)
    assert len(calls) >= 3  # never two of the largest in one
    assert popped(store.client, "q") == [each.body.encode() for each in offers]
    assert [each[0] for each in look(store)[b"waiting in q"]] == ["later"]


@hash_only
def test_the_note_of_large_messages_is_beside_the_count(store: DelayStore) -> None:
    """The count of marked messages goes on below the note, which goes with the last message."""
    order = LAYOUT_OF["hash"].keys(store.keys, "q")[2]
    store.delivery.offer("q", waiting("a", PAST_MS), waiting("b", PAST_MS), waiting("c", PAST_MS + 1, "c" * 20_000))
    noted = int(store.client.get(order) or 0)
    store.delivery.offer("q", waiting("d", PAST_MS + 2, "d" * 20_000), waiting("e", PAST_MS))
    assert int(store.client.get(order) or 0) == noted + 1 > 2**52
    while store.delivery.transfer("q").more:
        pass
    assert store.client.get(order) == b"2"
    assert [body[:9] for body in popped(store.client, "q")] == [
        *(b"body of %c" % name for name in b"abe"),
        b"c" * 9,
        b"d" * 9,
    ]


def test_a_waiting_consumer_gets_the_highest_priority_first(store: DelayStore) -> None:
    """However many messages are read at once, lists are pushed to in the order of their priorities."""
    offers = [waiting(f"{n:03}", PAST_MS + n, "x" * 300, priority=9 if n < 8 else 0) for n in range(16)]
    store.delivery.offer("q", *offers)
    highest, *_, lowest = store.keys.ready("q", (0, 3, 6, 9))
    assert _first_pushes(store) == [highest.encode(), lowest.encode()]


def _first_pushes(store: DelayStore) -> list[bytes]:
    """Transfers all, and returns the lists in the order in which they were first pushed to."""
    with store.client.monitor() as monitor:
        while store.delivery.transfer("q").more:
            pass
        store.client.echo("end")
        seen: list[bytes] = []
        for heard in monitor.listen():
            name, *parts = heard["command"].split(" ")
            if name == "ECHO":
                return list(dict.fromkeys(seen))
            if name == "LPUSH":
                seen.append(parts[0].encode().decode("unicode_escape").encode())
    return []
