"""``offer_once.lua``: puts messages into the store unless messages of their ids wait, or in place of those."""

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime

import pytest
import redis

from celery_ext.waiting import by_id
from kombu_delayq.message.fields import to_json
from kombu_delayq.message.once import new_id
from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Offer
from kombu_delayq.text import as_bytes
from tests.support.conditions import until
from tests.support.store.keyspace import (
    BODIES,
    DUE,
    DUPLICATES,
    FUTURE_MS,
    Ear,
    announced,
    clock_ms,
    contents,
    in_form,
    kept_ms,
    outcomes,
    waiting,
)


def kept(store: DelayStore, queue: str = "q") -> list[tuple[str, float, int, bytes | None]]:
    """Returns id, due time, priority and body of all that waits."""
    return [tuple(message)[1:5] for message in by_id.browse(store, queue)]


@pytest.mark.parametrize("mode", ["keep", "replace"])
def test_what_nobody_waits_for_is_added(store: DelayStore, mode: str) -> None:
    """Messages of other ids and of other queues are no matter; the store is as after an ``offer``."""
    store.delivery.offer("q", waiting("other"))
    store.delivery.offer("other", waiting("i"))
    assert outcomes(store.delivery.offer_once("q", mode, waiting("i", body="one"), waiting("j"))) == ["added", "added"]
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
    assert outcomes(store.delivery.offer_once("q", "keep", waiting("i", FUTURE_MS - 5, "two", 3))) == ["kept"]
    assert contents(store.client) == before
    assert outcomes(store.delivery.offer_once("q", "keep", waiting("k", body="a"), waiting("k", body="b"))) == [
        "added",
        "kept",
    ]


@pytest.mark.parametrize("decodes", [False, True])
def test_who_asks_is_told_what_was_replaced(store: DelayStore, decodes: bool) -> None:
    """The journal gets priority and body of each message that has left, as bytes, whatever the client makes of them."""
    client = redis.Redis(port=store.client.get_connection_kwargs()["port"], decode_responses=decodes)
    with closing(DelayStore(client, store.keys, options=store.options)) as asking:
        asking.delivery.offer("q", waiting("i", body="one", priority=3), waiting("i", body="two"), waiting("j"))
        new = waiting("i", body="new"), waiting("j", body="new")
        found, gone = asking.delivery.offer_once_returning("q", "replace", *new)
        assert found == [("replaced", "i"), ("replaced", "j")]
        assert gone == {(3, b"one"), (0, b"two"), (0, b"body of j")}
        found = asking.delivery.offer_once_returning("q", "keep", waiting("i", body="late"))
        assert found == ([("kept", "i")], set())


def test_replace_puts_the_new_one_in_the_place_of_all(store: DelayStore, ear: Ear) -> None:
    """Of an id that waits, several times even, one message is left: the new one, at its time; a new head is said."""
    store.delivery.offer("q", *(waiting("i", body=body) for body in ("one", "two", "three")), waiting("z"))
    assert outcomes(store.delivery.offer_once("q", "replace", waiting("i", FUTURE_MS - 7, "four", 6))) == ["replaced"]
    [first, last] = kept(store)
    assert (first[1:], last[0]) == ((FUTURE_MS - 7, 6, b"four"), "z")
    assert [message.body for message in store.lookup.get(["q"], ["i"])["i"]] == [b"four"]
    assert ear.heard()[-1] == announced(store, FUTURE_MS - 7)
    assert outcomes(store.delivery.offer_once("q", "replace", waiting("i", FUTURE_MS + 9, "five"))) == ["replaced"]
    assert [message[1] for message in kept(store)] == [FUTURE_MS, FUTURE_MS + 9]
    assert store.lookup.cancel(["q"], ["i", "z"]).keys() == {"i", "z"}
    assert kept(store) == []


@pytest.mark.parametrize("mode", ["keep", "replace"])
def test_a_call_that_is_repeated_is_no_other(store: DelayStore, mode: str) -> None:
    """The same message again, as after an answer that was lost, changes nothing, and counts as the one that waits."""
    assert outcomes(store.delivery.offer_once("q", mode, waiting("i"))) == ["added"]
    before = contents(store.client)
    assert outcomes(store.delivery.offer_once("q", mode, waiting("i"))) == ["added"]
    assert contents(store.client) == before


def test_a_relative_time_counts_from_now(store: DelayStore) -> None:
    """Redis's clock says when a message is due; one that is due now is transferred as any other."""
    begun = clock_ms(store.client)
    store.delivery.offer_once("q", "keep", waiting("i")._replace(due="+0"))
    assert kept_ms(store, begun) <= kept(store)[0][1] <= kept_ms(store, clock_ms(store.client))
    until(lambda: kept(store)[0][1] <= clock_ms(store.client))
    assert store.delivery.transfer("q").moved == 1
    assert outcomes(store.delivery.offer_once("q", "keep", waiting("i"))) == ["added"]


def test_the_only_message_keeps_the_expiry_of_its_queue(store: DelayStore) -> None:
    """A queue that expires does so after the only message was replaced, too."""
    store.delivery.offer_once("q", "keep", waiting("i", body="one"), expire_ms=60_000)
    store.delivery.offer_once("q", "replace", waiting("i", body="two"), expire_ms=60_000)
    assert store.client.pttl(in_form(store, DUE)) > 60_000


def of_task(task_id: str, due_ms: float = FUTURE_MS, **headers: object) -> Offer:
    """Returns the message of a task."""
    return Offer(task_id, repr(due_ms), 0, to_json({"headers": {"task": "t", "id": task_id, **headers}}))


def test_each_task_of_a_key_has_its_own_id(store: DelayStore) -> None:
    """What waits under a key keeps out, or makes room for, a task of another id, and is told by its own."""
    store.delivery.offer("q", waiting("z"), waiting("k~0123456789abcdef"))
    first, second, third = (new_id("k") for _ in range(3))
    assert store.delivery.offer_once("q", "keep", of_task(first)) == [("added", first)]
    assert store.delivery.offer_once("q", "keep", of_task(second)) == [("kept", first)]
    assert store.delivery.offer_once("q", "keep", of_task(first)) == [("added", first)]
    assert store.delivery.offer_once("q", "replace", of_task(third)) == [("replaced", third)]
    assert store.lookup.get(["q"], [first, second]) == {}
    found = store.lookup.get(["q"], ["k", third])
    assert [[message.id for message in messages] for messages in found.values()] == [[third], [third]]
    assert len(kept(store)) == 3


def test_the_id_of_a_task_is_no_other_key(store: DelayStore) -> None:
    """A call whose key is the id of a task of a key has that key, so that both are found by it."""
    first = new_id("k")
    store.delivery.offer("q", of_task(first), of_task(second := new_id(first)))
    assert {message.id for message in store.lookup.get(["q"], ["k"])["k"]} == {first, second}
    assert [message.id for message in store.lookup.cancel(["q"], [second])[second]] == [second]


@pytest.mark.parametrize("ids", [("k", new_id("k"), "k"), (new_id("k"), "k", new_id("k"), "k")])
def test_a_task_with_the_text_of_a_key_as_id_is_changed_alone(store: DelayStore, ids: Sequence[str]) -> None:
    """Whichever came first: each message that is found by the key is moved under its own id."""
    store.delivery.offer("q", *(of_task(one, number=at) for at, one in enumerate(ids)))
    found = store.lookup.get(["q"], ["k"])["k"]
    assert len(found) == len(ids)
    changes = [Change(one, FUTURE_MS + 5, one.body or b"") for one in found]
    assert store.lookup.reschedule("q", changes) == ["rescheduled"] * len(ids)
    moved = store.lookup.get(["q"], ["k"])["k"]
    assert sorted((one.id, one.body) for one in moved) == sorted((one.id, one.body) for one in found)
    assert {one.due_ms for one in moved} == {FUTURE_MS + 5}


def test_an_id_and_a_key_of_the_same_text_are_compared(store: DelayStore) -> None:
    """Who is kept out by a task that was found by the other is told the id of that."""
    keyed, other = new_id("k"), new_id("k")
    store.delivery.offer("q", of_task(keyed))
    assert store.delivery.offer_once("q", "keep", of_task("k")) == [("kept", keyed)]
    for waits in ("k", keyed):
        store.queues.purge("q")
        store.delivery.offer("q", of_task(waits), of_task(waits, number=2))
        assert store.delivery.offer_once("q", "keep", of_task(other)) == [("kept", waits)]
        first, _ = store.lookup.get(["q"], [waits])[waits]
        store.lookup.run_now("q", [Change(first, 0.0, first.body or b"")])
        assert store.delivery.offer_once("q", "keep", of_task(other)) == [("kept", waits)]


def test_tasks_of_a_key_that_are_added_wait_beside_each_other(store: DelayStore) -> None:
    """Each is found, moved and removed by its own id, all are by the key, and a transfer leaves nothing behind."""
    ids = [new_id("k") for _ in range(4)]
    store.delivery.offer("q", waiting("z", FUTURE_MS + 1), *map(of_task, ids))
    assert {message.id for message in store.lookup.get(["q"], ["k"])["k"]} == {*ids}
    assert store.delivery.offer_once("q", "keep", of_task(new_id("k")))[0].outcome == "kept"
    [message] = store.lookup.cancel(["q"], [ids[0]])[ids[0]]
    assert message.id == ids[0]
    [message] = store.lookup.get(["q"], [ids[1]])[ids[1]]
    due_ms = clock_ms(store.client) + 50
    body = to_json({"headers": {"task": "t", "id": ids[1], "eta": "soon"}}).encode()
    assert store.lookup.reschedule("q", [Change(message, due_ms, body)]) == ["rescheduled"]
    assert [one.body for one in store.lookup.get(["q"], [ids[1]])[ids[1]]] == [body]
    until(lambda: store.delivery.transfer("q").moved == 1)
    found = store.lookup.cancel(["q"], ["k", "z"])
    assert {message.id for message in found["k"]} == {*ids[2:]}
    assert not store.client.exists(*(in_form(store, key) for key in (DUE, BODIES, DUPLICATES)))


@pytest.mark.parametrize("mode", ["keep", "replace"])
@pytest.mark.parametrize("key", ["i", "k~k0123456789abcde"])
def test_what_has_expired_keeps_nothing_out(store: DelayStore, mode: str, key: str) -> None:
    """A message that nobody can run any more, now or when it is due, goes, and the new one counts as added."""
    times = {
        "2010-01-01T00:00:00+00:00": True,
        "2010-01-01T00:00:00.5Z": True,
        "2100-01-01T01:59:59.999999+02:00": True,
        "2099-12-31T19:00:00-05:00": True,
        "2100-01-01T00:00:00.001+00:00": False,
        "2010-01-01T00:00:00": True,
        "2100-01-01T00:00:01": False,
        "2010-01-01T00:00:00 CET": False,
        "2100-03-01T00:00:00+00:00": False,
        "soon": False,
    }
    assert datetime(2100, 1, 1, tzinfo=UTC).timestamp() * 1000 == FUTURE_MS
    for expires, is_gone in times.items():
        old, new = of_task(key, expires=expires), of_task(key, FUTURE_MS + 5)
        store.delivery.offer("q", old)
        [(outcome, _)], gone = store.delivery.offer_once_returning("q", mode, new)
        assert (expires, outcome) == (expires, "added" if is_gone else {"keep": "kept", "replace": "replaced"}[mode])
        is_gone = is_gone or mode == "replace"
        assert gone == ({(0, as_bytes(old.body))} if is_gone else set())
        assert [message[3] for message in kept(store)] == [as_bytes((new if is_gone else old).body)]
        store.queues.purge("q")


def test_an_expiry_of_another_is_none(store: DelayStore) -> None:
    """Only a header ``expires`` of the message itself counts."""
    store.delivery.offer("q", of_task("i", mine={"expires": "2010-01-01T00:00:00+00:00"}))
    store.delivery.offer("q", waiting("j", body='"expires": "2010-01-01T00:00:00+00:00"'))
    assert outcomes(store.delivery.offer_once("q", "keep", of_task("i", FUTURE_MS + 1), of_task("j"))) == ["kept"] * 2
