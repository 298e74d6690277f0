"""``requeue.lua``: puts messages that consumers hold back into lists of their queues."""

from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import InFlight, Requeued
from tests.support.store.consuming import INDEX, ME, UNACKED, fetch, lives
from tests.support.store.keyspace import contents, popped


def held(store: DelayStore, count: int, queue: str = "q") -> list[Requeued]:
    """Takes so many messages. Returns them as they go back, the first first."""
    lives(store, queues=(queue,))
    ready, _ = store.fetching.in_flight_keys(InFlight(queue, 0, ME))
    store.client.lpush(ready, *map(str, range(count)))
    return [Requeued(taken.tag, queue, 0, taken.body) for taken in fetch(store, count, queue)]


def test_the_last_is_consumed_next(store: DelayStore) -> None:
    """Messages put back to the next place come before all others, the last one of the call first."""
    messages = held(store, 3)
    store.client.lpush("q", "behind")
    assert store.fetching.requeue(reversed(messages), "next") == []
    assert not store.client.exists(INDEX, UNACKED)
    assert popped(store.client, "q") == [b"0", b"1", b"2", b"behind"]


def test_the_last_place_is_behind_all_others(store: DelayStore) -> None:
    """Messages put back to the last place come after all others, in their order."""
    messages = held(store, 3)
    store.client.lpush("q", "before")
    assert store.fetching.requeue(messages, "last") == []
    assert popped(store.client, "q") == [b"before", b"0", b"1", b"2"]


def test_a_message_goes_back_changed(store: DelayStore) -> None:
    """The list gets the text of the call, not that of the note."""
    [message] = held(store, 1)
    store.fetching.requeue([message._replace(body=b"\x00changed\xff")], "next")
    assert popped(store.client, "q") == [b"\x00changed\xff"]


def test_messages_of_several_queues_go_back_at_once(store: DelayStore) -> None:
    """Each message goes to its own queue, whatever the queue's name."""
    queues = ("a", "ünï \udcff", "{eu}.b")
    lives(store, queues=queues)
    messages = []
    for first, queue in enumerate(queues, 1):
        store.client.lpush(queue.encode(errors="surrogateescape"), queue.encode(errors="surrogateescape"))
        [taken] = fetch(store, 8, queue, first=first)
        messages.append(Requeued(taken.tag, taken.queue, 0, taken.body))
    assert store.fetching.requeue(messages, "next") == []
    for message in messages:
        key = message.queue.encode(errors="surrogateescape")
        assert popped(store.client, key) == [key]  # type: ignore[arg-type]


def test_many_messages_at_once(store: DelayStore) -> None:
    """Any number of messages goes back, page by page, in order; of large ones fewer make a page."""
    messages = [message._replace(body=b"%d %s" % (at, b"x" * 20_000)) for at, message in enumerate(held(store, 300))]
    assert store.fetching.requeue(reversed(messages), "next") == []
    assert [int(body.split()[0]) for body in popped(store.client, "q")] == [*range(300)]


def test_nothing_to_put_back(store: DelayStore) -> None:
    """Without messages Redis is not asked."""
    before = store.client.info("commandstats")
    assert store.fetching.requeue([], "next") == []
    assert "cmdstat_evalsha" not in store.client.info("commandstats").keys() - before.keys()
    assert contents(store.client) == {}
