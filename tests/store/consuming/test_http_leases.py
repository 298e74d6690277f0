"""Messages that consumers over HTTP receive: their leases, and what waits for them."""

from math import inf

import pytest
import redis

from kombu_delayq.store import DelayStore
from kombu_delayq.store.consumers import consumer_of, http_consumer
from tests.support.store.consuming import CONSUMERS, ME, OTHER, end_lease, fetch, lives
from tests.support.store.keyspace import clock_ms


@pytest.fixture
def layout() -> str:
    """Consuming does not regard the layout."""
    return "hash"


HTTP = http_consumer("billing", "10-0123abcd")


@pytest.mark.parametrize("caller", ["billing", "a:b", "a.1", "ü %3A", "", "a/b"])
def test_a_lease_belongs_to_its_caller(caller: str) -> None:
    """Tags lead back to the lease, and no two callers have leases of the same name."""
    name = http_consumer(caller, "10-0123abcd")
    assert consumer_of(f"{name}.7") == name
    assert name.count(":") == 2
    assert name != http_consumer(f"{caller}:10-0123abcd", "")
    assert name != http_consumer(caller + "x", "10-0123abcd")


def test_a_lease_is_told_from_a_process(store: DelayStore) -> None:
    """Only names of leases are taken for leases, also on a host called http."""
    lives(store, HTTP, ME, "http:1:0123abcd")
    assert {lease.name: lease.is_http for lease in store.consumers.all()} == {
        HTTP: True,
        ME: False,
        "http:1:0123abcd": False,
    }


def test_one_consumer_is_found(store: DelayStore) -> None:
    """A consumer is found with its queues and what is left of its lease; one that Redis does not know is None."""
    lives(store, ME, OTHER, queues=("q",))
    before_ms = clock_ms(store.client)
    found = store.consumers.find(ME, "q")
    after_ms = clock_ms(store.client)
    assert found is not None
    assert (found.name, found.queues) == (ME, ["q"])
    ends_ms = store.client.zscore(CONSUMERS, ME)
    assert ends_ms - after_ms <= found.left_ms <= ends_ms - before_ms
    end_lease(store)
    store.consumers.fence([ME], "q")
    assert (store.consumers.find(ME, "q") or found).left_ms == -inf
    store.consumers.leave([ME], "q")
    assert store.consumers.find(ME, "q") is None


def test_held_messages_are_known_by_their_tags(store: DelayStore) -> None:
    """Of some tags those are returned whose messages are still held, in the order of the tags."""
    lives(store)
    store.client.lpush("q", "1", "2", "3")
    tags = [taken.tag for taken in fetch(store)]
    store.fetching.ack(tags[1:2], "q")
    assert store.fetching.held([*reversed(tags), f"{ME}.9"], "q") == [tags[2], tags[0]]


def test_messages_of_all_priorities_are_counted(store: DelayStore) -> None:
    """What waits in all lists of a queue counts, and queues without a list have none."""
    store.client.lpush("a", "1", "2")
    steps = (0, 3, 6, 9)
    store.client.lpush(store.keys.ready("a", steps)[2], "3")
    store.client.lpush(store.keys.ready("b", steps)[3], "4")
    assert store.fetching.ready(["a", "none", "b"]) == [3, 0, 1]
    assert store.fetching.ready([]) == []


def test_another_key_in_the_place_of_a_queue_counts_as_one_message(store: DelayStore) -> None:
    """So a consumer goes on to take, which names the key; the counts of other queues are right."""
    store.client.set("a", "x")
    store.client.lpush("b", "1")
    assert store.fetching.ready(["a", "b"]) == [1, 1]
    lives(store, queues=("a",))
    with pytest.raises(redis.ResponseError, match="WRONGTYPE key a "):
        fetch(store, 1, "a")
