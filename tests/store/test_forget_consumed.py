"""Names of consumed queues, which a cluster keeps beside the queues, are forgotten when nobody consumes them."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.consume.consumer import Consumer
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.consuming.consumers import Consumers
from kombu_delayq.store.keys import Keys
from kombu_delayq.transfer.announcements import Announcements
from kombu_delayq.transfer.forgetting import PAGE, Forgetting
from tests.support.slots import need_slots
from tests.support.store.consuming import ME, lives, take


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateRedis]:
    """A cluster of one node."""
    need_slots()
    with PrivateRedis(slots=True) as server:
        yield server


@pytest.fixture
def store(server: PrivateRedis) -> Iterator[DelayStore]:
    """A store with a prefix, on an empty database."""
    made = DelayStore(redis.Redis(port=server.port), Keys("app:", slots=True), options=Options(forget_after=24))
    made.client.flushall()
    yield made
    made.close()


def test_queues_without_consumers_are_forgotten(store: DelayStore) -> None:
    """The leader forgets queues that nobody consumes, many of them page by page, and keeps those that are in use."""
    many = [f"reply{number}" for number in range(2 * PAGE)]
    store.consumers.note_queues(many)
    for queue in ("consumed", "in hand", "left"):
        store.consumers.note_queues([queue])
        lives(store, queues=(queue,))
    store.client.lpush("app:in hand", "1")
    assert take(store, 1, "in hand")
    store.client.delete(store.keys.consumers("in hand"))
    store.consumers.leave(ME, "left")
    forgetting = Forgetting()
    for _ in range(3):
        forgetting.go_on(store, [], Announcements())
    assert store.consumers.shares() == ["consumed", "in hand"]


def test_nothing_is_forgotten_where_queues_are_kept(store: DelayStore) -> None:
    """Without ``forget_after`` the names stay."""
    store.options = Options(forget_after=None)
    store.consumers.note_queues(["reply"])
    Forgetting().go_on(store, [], Announcements())
    assert store.consumers.shares() == ["reply"]


@pytest.mark.parametrize("after_removal", [False, True])
def test_a_consumer_that_comes_meanwhile_is_known(
    store: DelayStore, monkeypatch: pytest.MonkeyPatch, after_removal: bool
) -> None:
    """A consumer whose lease comes just before or just after the second look leaves the name of its queue."""
    store.consumers.note_queues(["q"])
    consumer = Consumer(lambda: ["q"])
    beat = Consumers.beat

    def slowly(consumers: Consumers, *args: Any, **kwargs: Any) -> bool:
        if after_removal:
            assert store.queues.forget_consumed(["q"]) == ["q"]
        return beat(consumers, *args, **kwargs)

    ask = store.queues._client.ask

    def remove(*command: Any) -> Any:
        done = ask(*command)
        if command[0] == "SREM" and not after_removal:
            consumer.renew(store, "q")
            ask("SREM", store.keys.consumed_queues, "q")
        return done

    monkeypatch.setattr(Consumers, "beat", slowly)
    monkeypatch.setattr(store.queues._client, "ask", remove)
    if after_removal:
        consumer.renew(store, "q")
    else:
        assert store.queues.forget_consumed(["q"]) == []
    assert store.consumers.shares() == ["q"]


def test_a_new_consumer_of_several_queues_is_known(store: DelayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with the heartbeat, which takes leases in all queues at once."""
    beat_each = Consumers.beat_each

    def slowly(consumers: Consumers, beats: Any) -> Any:
        assert sorted(store.queues.forget_consumed(["q", "r"])) == ["q", "r"]
        return beat_each(consumers, beats)

    monkeypatch.setattr(Consumers, "beat_each", slowly)
    Consumer(lambda: ["q", "r"]).renew(store)
    assert store.consumers.shares() == ["q", "r"]
