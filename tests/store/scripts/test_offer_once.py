"""``offer_once.lua``: puts messages into the store unless messages of their ids wait, or in place of those."""

from contextlib import closing

import pytest
import redis

from kombu_delayq.store import DelayStore
from tests.support.conditions import until
from tests.support.store.keyspace import DUE, FUTURE_MS, Ear, announced, clock_ms, contents, in_form, kept_ms, waiting


def kept(store: DelayStore, queue: str = "q") -> list[tuple[str, float, int, bytes | None]]:
    """Returns id, due time, priority and body of all that waits."""
    return [tuple(message)[1:5] for message in store.scan.browse(queue).messages]


@pytest.mark.parametrize("mode", ["keep", "replace"])
def test_what_nobody_waits_for_is_added(store: DelayStore, mode: str) -> None:
    """Messages of other ids and of other queues are no matter; the store is as after an ``offer``."""
    store.delivery.offer("q", waiting("other"))
    store.delivery.offer("other", waiting("i"))
    assert store.delivery.offer_once("q", mode, waiting("i", body="one"), waiting("j")) == ["added", "added"]
    found = contents(store.client)
    assert [message[0] for message in kept(store)] == ["other", "i", "j"]
    store.client.flushall()
    store.delivery.offer("q", waiting("other"))
    store.delivery.offer("other", waiting("i"))
    store.delivery.offer("q", waiting("i", body="one"), waiting("j"))
    assert contents(store.client).keys() == found.keys()


def test_keep_leaves_all_as_it_is(store: DelayStore) -> None:
    """Of an id that waits nothing changes, whatever is due sooner; also of ids in one call."""
    store.delivery.offer("q", waiting("i", body="one"))
    before = contents(store.client)
    assert store.delivery.offer_once("q", "keep", waiting("i", FUTURE_MS - 5, "two", 3)) == ["kept"]
    assert contents(store.client) == before
    assert store.delivery.offer_once("q", "keep", waiting("k", body="a"), waiting("k", body="b")) == ["added", "kept"]


@pytest.mark.parametrize("decodes", [False, True])
def test_who_asks_is_told_what_was_replaced(store: DelayStore, decodes: bool) -> None:
    """The journal gets priority and body of each message that has left, as bytes, whatever the client makes of them."""
    client = redis.Redis(port=store.client.get_connection_kwargs()["port"], decode_responses=decodes)
    with closing(DelayStore(client, store.keys, options=store.options)) as asking:
        asking.delivery.offer("q", waiting("i", body="one", priority=3), waiting("i", body="two"), waiting("j"))
        found = asking.delivery.offer_once_returning("q", "replace", waiting("i", body="new"), waiting("j", body="new"))
        assert found == (["replaced", "replaced"], {(3, b"one"), (0, b"two"), (0, b"body of j")})
        assert asking.delivery.offer_once_returning("q", "keep", waiting("i", body="late")) == (["kept"], set())


def test_replace_puts_the_new_one_in_the_place_of_all(store: DelayStore, ear: Ear) -> None:
    """Of an id that waits, several times even, one message is left: the new one, at its time; a new head is said."""
    store.delivery.offer("q", *(waiting("i", body=body) for body in ("one", "two", "three")), waiting("z"))
    assert store.delivery.offer_once("q", "replace", waiting("i", FUTURE_MS - 7, "four", 6)) == ["replaced"]
    [first, last] = kept(store)
    assert (first[1:], last[0]) == ((FUTURE_MS - 7, 6, b"four"), "z")
    assert [message.body for message in store.lookup.get(["q"], ["i"])["i"]] == [b"four"]
    assert ear.heard()[-1] == announced(store, FUTURE_MS - 7)
    assert store.delivery.offer_once("q", "replace", waiting("i", FUTURE_MS + 9, "five")) == ["replaced"]
    assert [message[1] for message in kept(store)] == [FUTURE_MS, FUTURE_MS + 9]
    assert store.lookup.cancel(["q"], ["i", "z"]).keys() == {"i", "z"}
    assert kept(store) == []


@pytest.mark.parametrize("mode", ["keep", "replace"])
def test_a_call_that_is_repeated_is_no_other(store: DelayStore, mode: str) -> None:
    """The same message again, as after an answer that was lost, changes nothing, and counts as the one that waits."""
    assert store.delivery.offer_once("q", mode, waiting("i")) == ["added"]
    before = contents(store.client)
    assert store.delivery.offer_once("q", mode, waiting("i")) == ["added"]
    assert contents(store.client) == before


def test_a_relative_time_counts_from_now(store: DelayStore) -> None:
    """Redis's clock says when a message is due; one that is due now is transferred as any other."""
    begun = clock_ms(store.client)
    store.delivery.offer_once("q", "keep", waiting("i")._replace(due="+0"))
    assert kept_ms(store, begun) <= kept(store)[0][1] <= kept_ms(store, clock_ms(store.client))
    until(lambda: kept(store)[0][1] <= clock_ms(store.client))
    assert store.delivery.transfer("q").moved == 1
    assert store.delivery.offer_once("q", "keep", waiting("i")) == ["added"]


def test_the_only_message_keeps_the_expiry_of_its_queue(store: DelayStore) -> None:
    """A queue that expires does so after the only message was replaced, too."""
    store.delivery.offer_once("q", "keep", waiting("i", body="one"), expire_ms=60_000)
    store.delivery.offer_once("q", "replace", waiting("i", body="two"), expire_ms=60_000)
    assert store.client.pttl(in_form(store, DUE)) > 60_000
