"""What ``WaitingMessages`` does besides running scripts: searching several queues at once."""

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from kombu_delayq.store import DelayStore
from kombu_delayq.store.client import StoreClient
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.lookup import MAX_BYTES, Change, NotSearched
from kombu_delayq.store.types import Waiting
from tests.support.store.cost import round_trips
from tests.support.store.keyspace import FUTURE_MS, contents, duplicate_id, in_form, waiting

OPERATIONS = ["get", "cancel"]


@pytest.fixture
def three(store: DelayStore) -> DelayStore:
    """A store with messages of one id in the queues a, b and c."""
    for number, queue in enumerate("cab"):
        store.delivery.offer(queue, waiting("i", FUTURE_MS + number), waiting(f"only in {queue}"))
    return store


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_id_is_looked_for_in_all_queues(three: DelayStore, operation: str) -> None:
    """The messages of an id are found in all queues named, the next due first, in one round trip.

    Where an id is not found, each queue is asked once more in Redisson's layout for messages of other clients.
    """
    search = getattr(three.lookup, operation)
    search(["x"], ["unknown"])  # the script is known from here on
    assert round_trips(three, lambda: search(["a", "b", "c", "never used"], ["unknown"])) == (
        1 if three.layout == "hash" else 5
    )
    found = search(["a", "b", "c", "never used"], ["only in b", "i", "unknown"])
    assert {each: [message.queue for message in messages] for each, messages in found.items()} == {
        "only in b": ["b"],
        "i": ["c", "a", "b"],
    }
    assert [message.due_ms for message in found["i"]] == [FUTURE_MS, FUTURE_MS + 1, FUTURE_MS + 2]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_other_queues_are_left_out(three: DelayStore, operation: str) -> None:
    """Only the queues named are searched; without queues or ids nothing is."""
    search = getattr(three.lookup, operation)
    before = contents(three.client)
    assert search([], ["i"]) == search(["a"], []) == search([], []) == {}
    assert contents(three.client) == before
    assert [message.queue for message in search(["b"], ["i"])["i"]] == ["b"]
    assert len(three.lookup.get(["a", "c"], ["i"])["i"]) == 2


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("key", ["due", "bodies", "duplicates"])
def test_a_queue_that_cannot_be_read_hides_no_other(
    three: DelayStore, caplog: pytest.LogCaptureFixture, operation: str, key: str
) -> None:
    """Where somebody else's key is in the way of one queue, the others are searched, and the log names both."""
    key = in_form(three, f"delayq:{{b}}:{key}")
    three.client.delete(key)
    three.client.set(key, "somebody else's")
    with caplog.at_level(logging.ERROR):
        found = getattr(three.lookup, operation)(["a", "b", "c"], ["i", "only in b"])
    assert {each: [message.queue for message in messages] for each, messages in found.items()} == {"i": ["c", "a"]}
    assert caplog.records
    for record in caplog.records:
        assert "'b'" in record.getMessage()
        assert f"WRONGTYPE key {key} " in record.getMessage()


@pytest.mark.parametrize("operation", [*OPERATIONS, "cancel_at_once"])
def test_a_node_that_is_away_is_an_error_and_hides_no_other(
    three: DelayStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, operation: str
) -> None:
    """Where one node of a cluster does not answer, the call raises that, after it has noted what the others had.

    If they had all, the log names the queue that was not searched.
    """
    run_each, found = StoreClient.run_each, dict[str, list[Waiting]]()
    three.lookup.cancel(["a", "b", "c"], ["nobody"])  # whose queues are those that ``cancel_at_once`` searches

    def run(*args: Any, **options: Any) -> Any:
        replies, around = run_each(*args, **options)
        return [*replies[:1], RedisConnectionError("away"), *replies[2:]], around

    monkeypatch.setattr(StoreClient, "run_each", run)
    acts: dict[str, Callable[..., object]] = {
        "get": lambda *ids: found.update(three.lookup.get(["a", "b", "c"], ids)),
        "cancel": lambda *ids: three.lookup.cancel(["a", "b", "c"], ids, found),
        "cancel_at_once": lambda *ids: three.lookup.cancel_at_once(ids, found),
    }
    with pytest.raises(NotSearched, match=r"1 queue not searched: 'b'; 1 task may .*: 'only in b': away") as error:
        acts[operation]("only in c", "only in b")
    assert [error.value.found.keys(), error.value.ids] == [{"only in c"}, ["only in b"]]
    acts[operation]("i")
    assert {message.queue for message in found["i"]} == {"a", "c"}
    assert "queues not searched for further tasks of ids that were found: 'b': away" in caplog.text


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("queues", ["b", "ab"])
def test_when_no_queue_can_be_read_it_is_an_error(three: DelayStore, operation: str, queues: str) -> None:
    """Where somebody else's keys are in the way of all queues searched, the call raises Redis's error."""
    keys = [in_form(three, f"delayq:{{{queue}}}:due") for queue in queues]
    for key in keys:
        three.client.delete(key)
        three.client.set(key, "somebody else's")
    with pytest.raises(ResponseError, match="WRONGTYPE key " + re.escape(keys[0])):
        getattr(three.lookup, operation)(list(queues), ["i"])


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_flushed_script_cache_is_not_noticed_with_a_bad_queue(three: DelayStore, operation: str) -> None:
    """With the script unknown to Redis and one queue unreadable, the others are still searched, once."""
    key = in_form(three, "delayq:{a}:due")
    three.client.delete(key)
    three.client.set(key, "somebody else's")
    three.client.script_flush()
    found = getattr(three.lookup, operation)(["a", "b", "c"], ["i"])
    assert [message.queue for message in found["i"]] == ["c", "b"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_large_messages_are_found_a_few_at_a_time(store: DelayStore, operation: str) -> None:
    """However large messages are, all are found, in calls of a bounded size, and so are small ones of another queue."""
    ids = [f"task {number}" for number in range(12)]
    large = "x" * (MAX_BYTES // 2)
    for each in ids:
        store.delivery.offer("large", waiting(each, body=large + each))
        store.delivery.offer("small", waiting(each))
    search = getattr(store.lookup, operation)
    search(["small"], ["unknown"])  # the script is known from here on
    store.client.config_resetstat()
    found = search(["large", "small"], ids)
    assert store.client.info("commandstats")["cmdstat_evalsha"]["calls"] == len(ids) // 2 + 1
    assert {each: {message.body for message in messages} for each, messages in found.items()} == {
        each: {f"{large}{each}".encode(), f"body of {each}".encode()} for each in ids
    }


@pytest.mark.parametrize("operation", OPERATIONS)
def test_thousands_of_ids_are_searched(store: DelayStore, operation: str) -> None:
    """More ids than Lua can unpack are looked for, and the last of them is found."""
    store.delivery.offer("q", waiting("i"))
    assert [*getattr(store.lookup, operation)(["q"], [*map(str, range(8100)), "i"])] == ["i"]


def test_hundreds_of_queues_are_searched(store: DelayStore) -> None:
    """An id is found in each of hundreds of queues by one call, also by the id of a message that is a second one."""
    queues = [f"queue{n}" for n in range(300)]
    for queue in queues:
        store.delivery.offer(queue, waiting("i"), waiting("i", body="two"))
    assert len(store.lookup.get(queues, ["i"])["i"]) == 600
    assert len(store.lookup.cancel(queues, [duplicate_id("i", "two")])[duplicate_id("i", "two")]) == 300
    assert [message.id for message in store.lookup.cancel(queues, ["i"])["i"]] == ["i"] * 300
    assert all(store.queues.size(queue) == 0 for queue in queues)


def test_many_or_large_changes_take_several_calls(store: DelayStore) -> None:
    """No call changes more messages than keep Redis busy for a few ms, and none more bytes; each has its word."""
    most = LAYOUT_OF[store.layout].changes_a_call
    small = [waiting(f"{n}", FUTURE_MS + n) for n in range(2 * most + 1)]
    large = [waiting(f"large {n}", FUTURE_MS + n, "x" * MAX_BYTES + f"{n}") for n in range(3)]
    store.delivery.offer("q", *small)
    store.delivery.offer("q", *large)
    found = [messages[0] for messages in store.lookup.get(["q"], [offer.id for offer in (*small, *large)]).values()]
    store.lookup.reschedule("q", [Change(found[0], FUTURE_MS - 1, b"new")])  # the script is known from here on
    store.client.config_resetstat()
    changes = [Change(message, message.due_ms + 1000, message.body or b"") for message in found]
    assert store.lookup.reschedule("q", changes) == ["changed", *["rescheduled"] * (2 * most + 3)]
    assert store.client.info("commandstats")["cmdstat_evalsha"]["calls"] == 5
