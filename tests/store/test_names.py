"""Whatever a queue, an id or a body is made of, messages pass through the store unchanged."""

from dataclasses import asdict

import pytest

from celery_ext.dead_letters.store import LetterStore
from celery_ext.repair.store import RepairStore
from celery_ext.waiting import by_id
from kombu_delayq.cluster import SlotKeys
from kombu_delayq.cluster.slots import slot_of_key
from kombu_delayq.message.once import key_of
from kombu_delayq.store import DelayStore
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Offer
from kombu_delayq.text import as_bytes
from tests.support.store.keyspace import (
    DUPLICATES,
    FUTURE_MS,
    ODD_IDS,
    PAST_MS,
    QUEUE_NAMES,
    Ear,
    announced,
    by_queue,
    duplicate_id,
    in_form,
    look,
    odd,
    only,
    popped,
    waiting,
)
from tests.support.store.layouts import hash_only, other_layout, redisson_only


@hash_only
def test_names_that_differ_in_braces_only_are_two_queues(store: DelayStore) -> None:
    """The queues ``a`` and ``{a}`` share no message."""
    store.delivery.offer("a", waiting("i", PAST_MS, "of a"))
    store.delivery.offer("{a}", waiting("i", PAST_MS, "of {a}"))
    for queue in ("a", "{a}"):
        assert store.delivery.transfer(queue).moved
        assert popped(store.client, queue) == [f"of {queue}".encode()]


def test_in_hash_slots_they_share_no_key(store: DelayStore) -> None:
    """Neither the lists of priorities nor what consumers hold; the keys of each are in the slot of its list."""
    keys = SlotKeys(**asdict(store.keys))
    of = {
        queue: {*keys.ready(queue, (0, 3, 6, 9)), keys.unacked(queue), keys.unacked_index(queue)}
        for queue in ("a", "{a}")
    }
    assert not of["a"] & of["{a}"]
    assert {slot_of_key(key) for names in of.values() for key in names} == {slot_of_key("a")}


@redisson_only
def test_names_that_differ_in_braces_only_are_one_queue_to_redisson(store: DelayStore) -> None:
    """Redisson names its keys of the queues ``a`` and ``{a}`` alike, and so do we: they cannot be used side by side."""
    assert LAYOUT_OF["redisson"].keys(store.keys, "a")[:2] == LAYOUT_OF["redisson"].keys(store.keys, "{a}")[:2]
    store.delivery.offer("a", waiting("i", PAST_MS))
    assert (store.queues.size("a"), store.queues.size("{a}")) == (1, 1)


def test_any_id(store: DelayStore) -> None:
    """A message of any id is found, removed, changed and run alone, beside others of its id and those alike."""
    for identity in (*ODD_IDS, *QUEUE_NAMES, "0", "00000001", "-1"):
        store.client.flushall()
        store.delivery.offer("q", waiting("other"))
        before = look(store)
        one, two = odd(identity, "one"), odd(identity, "two")
        assert store.delivery.offer("q", one, two, one, two)[1:] == (1, 2, 1)
        first, _ = found = store.lookup.get(["q"], [identity])[identity]
        assert [(each.id, each.body) for each in found] == [(identity, b"one"), (duplicate_id(identity, "two"), b"two")]
        like = (f"{identity}~", f"{identity}~0123456789abcdef", identity[:-17], identity[1:], f"{identity}\0", "\x7f")
        others = [each for each in like if each not in (identity, key_of(identity))]
        assert store.lookup.get(["q"], others) == {}
        assert store.lookup.discard("q", [(first, "")]) == ["cancelled"]
        assert store.lookup.reschedule("q", [Change(only(store, identity), FUTURE_MS + 1, b"\xff")]) == ["rescheduled"]
        assert store.lookup.run_now("q", [Change(only(store, identity), 0.0, b"\xff\0")]) == ["transferred"]
        assert popped(store.client, "q") == [b"\xff\0"]
        assert look(store) == before
        store.delivery.offer("q", one, two, odd(identity, "due", PAST_MS))
        assert store.delivery.transfer("q").moved == 1
        assert [each.body for each in store.lookup.cancel(["q"], [identity])[identity]] == [b"one", b"two"]
        assert popped(store.client, "q") == [b"due"]
        assert look(store) == before
        assert not store.client.exists(in_form(store, DUPLICATES)) or store.layout == "redisson"
        store.chains.cancel_chains([identity + "x"])
        words = [store.chains.step("q", "one", one), store.chains.step("q", "one", one)]
        assert words == ["behind", "waits"]
        assert store.chains.cancel_chains([identity]).chains == ({identity} if identity else set())
        assert store.chains.step("q", "one", one) == "cancelled"
        assert (store.chains.accept([identity, "unknown"]), store.chains.accept([identity])) == (1, 0)


@pytest.mark.parametrize("body", [b"", b"\x00\xff\r\n", bytes(range(256)), "ünïcödé ✓", b"9" * 10, "x" * 5_000_000])
def test_any_body(store: DelayStore, body: str | bytes) -> None:
    """A body of any bytes and any length arrives as it was."""
    store.delivery.offer("q", Offer("i", repr(PAST_MS), 9, body))
    assert store.delivery.offer("q", Offer("i", repr(PAST_MS), 9, body)).repeated == 1
    store.delivery.transfer("q")
    assert popped(store.client, "{q}\x06\x169") == [body.encode() if isinstance(body, str) else body]


#: A name whose bytes are no UTF-8.
NAME = "\udcff\udcfe {x}\udc80"


@pytest.mark.parametrize("name", [*QUEUE_NAMES, NAME])
def test_every_operation_takes_any_queue_name(store: DelayStore, ear: Ear, name: str) -> None:
    """Messages of a queue of any name are announced, found, changed, counted, transferred and purged under it."""
    store.delivery.offer(name, waiting("later"))
    assert ear.heard() == [announced(store, FUTURE_MS, name)]
    store.delivery.offer(name, waiting("now"), waiting("i", PAST_MS), expire_ms=600_000)
    assert store.client.smembers("{delayq}:queues") == {as_bytes(name)}
    assert store.queues.names() == [name]
    assert store.leases.lead("name").queues == [name]
    assert by_queue(store.delivery.heads([name])) == {name: PAST_MS}
    store.queues.keep_alive(name, 600_000)
    assert store.delivery.transfer(name).moved == 1
    later, now = (store.lookup.get([name], [each])[each][0] for each in ("later", "now"))
    assert (later.queue, now.queue) == (name, name)
    assert store.lookup.reschedule(name, [Change(later, FUTURE_MS + 1, b"new")]) == ["rescheduled"]
    assert store.lookup.run_now(name, [Change(now, 0.0, b"new")]) == ["transferred"]
    assert [each.id for each in by_id.browse(store, name)] == ["later"]
    assert (store.queues.size(name), store.scan.count(name), sum(store.scan.sizes([name]).values())) == (1, 1, 1)
    assert (store.queues.stats(name).delayed, store.queues.stats(name).ready) == (1, 2)
    assert sum(store.part(LetterStore).lists(name).values()) == 2
    assert store.part(RepairStore).is_kept(name)
    assert popped(store.client, as_bytes(name)) == [b"body of i", b"new"]
    assert store.lookup.cancel([name], ["later"])["later"][0].queue == name
    store.delivery.offer(name, waiting("later"))
    assert store.queues.convert(name, other_layout(store)).moved == 1
    assert store.queues.convert(name).moved == 1
    assert store.queues.purge(name) == 1
    assert store.queues.names() == []


def test_a_search_goes_through_other_queues_all_the_same(store: DelayStore) -> None:
    """A task is found and cancelled by its id while the registry has a name that is no UTF-8, or has one brace."""
    store.client.sadd("{delayq}:queues", as_bytes(NAME), b"", b"a{b")
    store.delivery.offer("q", waiting("i"))
    assert list(store.lookup.get(store.queues.names(), ["i"])) == ["i"]
    assert list(store.lookup.cancel(store.queues.names(), ["i"])) == ["i"]
