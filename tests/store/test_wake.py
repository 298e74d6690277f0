"""``WakeListener``: hears the announcements of new heads."""

from contextlib import closing
from time import monotonic

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.types import DelayedQueue
from kombu_delayq.store.wake import Wake, WakeListener
from tests.support.conditions import until
from tests.support.servers.refusing import busy
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import FUTURE_MS, kept_ms, waiting

RESUBSCRIBED = Wake(None, 0.0)
#: A name of a queue whose bytes are no UTF-8.
NO_UTF_8 = "\udcff\udcfe {x}\udc80"


def heard(listener: WakeListener, count: int) -> list[Wake]:
    """Waits for so many announcements."""
    wakes: list[Wake] = []

    def enough() -> bool:
        wake = listener.wait(1.0)
        wakes.extend([wake] if wake else [])
        return len(wakes) >= count

    until(enough)
    return wakes


def followed(listener: WakeListener, store: DelayStore, *queues: str) -> None:
    """Waits until the announcements of some queues are heard."""
    heard(listener, 1)
    if store.layout == "redisson":
        listener.follow([*queues, NO_UTF_8])  # of which the Redis client could lose the channel
        assert {wake.delayed for wake in heard(listener, len(queues))} == {
            DelayedQueue(queue, "redisson") for queue in queues
        }


def test_a_subscription_begins_with_a_look(store: DelayStore) -> None:
    """The first thing heard says that announcements may have been missed before."""
    with closing(store.delivery.listen()) as listener:
        assert heard(listener, 1) == [RESUBSCRIBED]


def test_new_heads_are_heard_with_their_queue_and_time(store: DelayStore) -> None:
    """Each announcement names its queue, of whatever name, and its due time to the µs, or as it is kept."""
    with closing(store.delivery.listen()) as listener:
        queues = ["q", "with space and ü {x}\n", *([NO_UTF_8] if store.layout == "hash" else [])]
        followed(listener, store, *queues)
        for queue in queues:
            store.delivery.offer(queue, waiting("i", FUTURE_MS + 0.125))
        expected = [Wake(DelayedQueue(queue, store.layout), kept_ms(store, FUTURE_MS + 0.125)) for queue in queues]
        assert heard(listener, len(queues)) == expected


def test_silence_ends_after_the_timeout(store: DelayStore) -> None:
    """Where nothing is announced, the wait ends by itself, also with a timeout of nothing or less."""
    with closing(store.delivery.listen()) as listener:
        heard(listener, 1)
        for timeout_s in (0.0, -1.0, 0.1):
            begun = monotonic()
            assert listener.wait(timeout_s) is None
            assert monotonic() - begun >= timeout_s


def test_other_databases_and_prefixes_are_not_heard(store: DelayStore, make_store: MakeStore) -> None:
    """Announcements of another database number or another key prefix stay apart."""
    others = [make_store(keys=Keys(db=1)), make_store(keys=Keys("app:"))]
    with closing(store.delivery.listen()) as listener:
        followed(listener, store, "q")
        for other in others:
            other.delivery.offer("other", waiting("i"))
        store.delivery.offer("q", waiting("i"))
        assert heard(listener, 1) == [Wake(DelayedQueue("q", store.layout), FUTURE_MS)]


def test_a_busy_redis_refuses_no_channel(make_store: MakeStore, own_server: PrivateRedis) -> None:
    """A subscription that Redis cannot take now ends with Redis's own error, after which there is another one."""
    store = make_store(own_server)
    with (
        busy(own_server),
        closing(store.delivery.listen()) as listener,
        pytest.raises(redis.ResponseError, match="BUSY"),
    ):
        heard(listener, 1)
    with closing(store.delivery.listen()) as listener:
        assert heard(listener, 1) == [RESUBSCRIBED]


def test_a_cut_connection_does_not_pass_unnoticed(make_store: MakeStore, own_server: PrivateRedis) -> None:
    """After its connection was killed the listener subscribes again and says so, or raises the Redis client's error.

    Which of the two depends on the retries of the Redis client in use.
    """
    store = make_store(own_server)  # other tests may have left subscriptions on theirs
    q = DelayedQueue("q", store.layout)
    with closing(store.delivery.listen()) as listener:
        followed(listener, store, "q")
        assert store.client.execute_command("CLIENT", "KILL", "TYPE", "pubsub") == 1
        try:
            expected = [RESUBSCRIBED, Wake(q, 0.0)] if store.layout == "redisson" else [RESUBSCRIBED]
            assert sorted(heard(listener, len(expected)), key=str) == sorted(expected, key=str)
        except redis.ConnectionError:
            return
        store.delivery.offer("q", waiting("i"))
        assert heard(listener, 1) == [Wake(q, FUTURE_MS)]


def test_a_listener_that_is_left_has_no_subscription(store: DelayStore) -> None:
    """At its end a listener's subscription ends."""
    with closing(store.delivery.listen()) as listener:
        heard(listener, 1)
        # Redis may not yet have noticed the end of the subscriptions of the tests before.
        until(lambda: store.client.pubsub_numsub(store.keys.wake) == [(store.keys.wake.encode(), 1)])
    until(lambda: store.client.pubsub_numsub(store.keys.wake) == [(store.keys.wake.encode(), 0)])
