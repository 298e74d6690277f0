"""What the thread of the heartbeat does for a consumer whose own thread is busy."""

from threading import Event, Thread
from typing import Any

import pytest
import redis
from kombu import Connection

from kombu_delayq.cluster.queue_fetchers import QueueFetchers
from kombu_delayq.consume import credit, deliveries, fetcher, lost
from kombu_delayq.consume.fetcher import Fetcher
from kombu_delayq.store.fetching import Fetching
from tests.support.conditions import DEADLINE_S, until
from tests.support.looped import Looped, publish, queue_of
from tests.support.workers.harness import Proj
from tests.support.workers.held import in_hand, leases


def test_messages_behind_a_long_task_go_back(proj: Proj, sender: Connection) -> None:
    """What was taken together with the message of a long task of a solo pool is soon in its queue again, in order."""
    client = proj.server.client()

    def block(message: Any) -> None:
        if message.payload == 0:
            until(lambda: client.llen("a") == 3, what="the others back in their queue")

    with Looped(proj.connection(), "a", prefetch=4, on_message=block) as looped:
        publish(sender, "a", 0, 1, 2, 3)
        looped.until(lambda: looped.received == [0, 1, 2, 3])
        looped.until(lambda: not in_hand(client))


def test_messages_taken_ahead_go_back(proj: Proj, sender: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is taken while the rest of a batch runs goes back when that is a long task, and comes once, in order."""
    client = proj.server.client()
    monkeypatch.setattr(deliveries, "TURN_S", 600)
    monkeypatch.setattr(fetcher, "BUSY_S", 600)
    monkeypatch.setattr(lost, "UNSURE_S", 600)

    def block(message: Any) -> None:
        if message.payload == 20:
            until(lambda: not client.exists("a"), what="the next ones taken")
            monkeypatch.setattr(fetcher, "BUSY_S", 0)
            until(lambda: client.llen("a") == 21, what="all but this one back in their queue")
            monkeypatch.setattr(fetcher, "BUSY_S", 600)

    with Looped(proj.connection(), "a", prefetch=100, on_message=block) as looped:
        publish(sender, "a", *range(credit.BATCH + 10))
        looped.until(lambda: len(looped.received) >= credit.BATCH + 10)
        looped.until(looped.waits_for("a"))
        looped.until(lambda: not in_hand(client))
        assert looped.received == [*range(credit.BATCH + 10)]
    until(lambda: not leases(client), what="its lease is given back: nothing is unsure")


def test_nothing_is_taken_ahead_where_each_request_is_a_round_trip(proj: Proj, sender: Connection) -> None:
    """While a slot moves, messages are taken by the client that follows it, and not over the fetcher's connection."""
    with Looped(proj.connection(), "a", prefetch=100) as looped:
        publish(sender, "a", *range(credit.BATCH + 10))
        taker = looped.channel.fetcher
        taker = taker._by_queue["a"].fetcher if isinstance(taker, QueueFetchers) else taker
        taker.drop()
        # On a slow machine a turn is over before half of a batch is delivered.
        until(lambda: taker.turn_apart() or len(looped.received) >= credit.BATCH // 2)
        assert not taker.connections[0].is_open


def test_messages_that_cannot_go_back_are_delivered(
    proj: Proj, sender: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When Redis fails while messages go back, the consumer keeps them, and loses none out of its sight."""
    failed = Event()

    def fail(*_: Any) -> None:
        failed.set()
        raise redis.ConnectionError("away")

    def block(message: Any) -> None:
        if message.payload == 0:
            assert failed.wait(DEADLINE_S)

    monkeypatch.setattr(Fetching, "requeue", fail)
    with Looped(proj.connection(), "a", prefetch=4, on_message=block) as looped:
        publish(sender, "a", 0, 1, 2, 3)
        looped.until(lambda: looped.received == [0, 1, 2, 3])
        monkeypatch.undo()
        looped.until(lambda: not in_hand(proj.server.client()))


def test_waits_end_while_a_long_task_runs(proj: Proj, sender: Connection) -> None:
    """A message for another queue that comes while a task runs is soon free for other consumers."""
    client = proj.server.client()

    def block(message: Any) -> None:
        if message.payload == 0:
            publish(sender, "b", 1)
            until(lambda: client.llen("b") == 1 and not client.keys("*landing*"), what="free for others")

    with Looped(proj.connection(), "a", "b", on_message=block) as looped:
        looped.until(looped.waits_for("a", "b"))
        publish(sender, "a", 0)
        looped.until(lambda: looped.received == [0, 1])


def test_waits_end_when_nobody_drains(proj: Proj, sender: Connection) -> None:
    """Without an event loop, a consumer that does something else for a while keeps no message from others."""
    client = proj.server.client()
    with proj.connection() as connection:
        drained = connection.Consumer([queue_of("a")], callbacks=[print], prefetch_count=4)
        with drained, pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.2)
        with drained:
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=0.2)
            publish(sender, "a", 1)
            until(lambda: client.llen("a") == 1 and not client.keys("*landing*"), what="free for others")


def test_acks_are_sent_when_the_loop_does_not_turn(proj: Proj, sender: Connection) -> None:
    """Acknowledgements after the loop's last turn, as in a warm shutdown, reach Redis before the end."""
    client = proj.server.client()
    with Looped(proj.connection(), "a", acks=False) as looped:
        publish(sender, "a", 0, 1)
        looped.until(lambda: looped.received == [0, 1])
        looped.messages[0].ack()
        until(lambda: in_hand(client) == 1, what="the ack sent")


def test_an_ack_of_another_thread_wakes_the_loop(proj: Proj, sender: Connection) -> None:
    """A loop that waits in its poller sends the acknowledgement of another thread at once."""
    client = proj.server.client()
    with Looped(proj.connection(), "a", acks=False) as looped:
        publish(sender, "a", 0)
        looped.until(lambda: looped.received == [0])
        looped.until(looped.waits_for("a"))
        acked = Event()

        def ack() -> None:
            looped.messages[0].ack()
            acked.set()

        thread = Thread(target=ack)
        thread.start()
        thread.join(DEADLINE_S)
        assert acked.is_set()
        assert looped.hub.poller.poll(DEADLINE_S), "the loop is woken"
        looped.until(lambda: not in_hand(client))


def test_no_error_ends_the_heartbeat(
    proj: Proj, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """When all help for fetchers fails, for whatever cause, the lease is renewed all the same, and the log says why."""

    def fail(*_: Any) -> None:
        raise RuntimeError("set changed size during iteration")

    for kind in (Fetcher, QueueFetchers):
        monkeypatch.setattr(kind, "help", fail)
    with Looped(proj.connection(consumer_ttl=6), "a") as looped:
        looped.until(lambda: "set changed size" in caplog.text)
        leases = looped.store.consumers.all()

        def is_renewed() -> bool:
            leases.extend(looped.store.consumers.all())
            return leases[-1].left_ms > leases[-2].left_ms

        until(is_renewed, what="the lease renewed")
        assert len({lease.name for lease in leases}) == 1


def test_messages_in_hand_are_renewed_within_a_short_visibility_timeout(proj: Proj, sender: Connection) -> None:
    """With a lease of minutes, what is in hand is as new in time, so that no sweep gives it back."""
    with Looped(proj.connection(consumer_ttl=600, visibility_timeout=2), "a", acks=False) as looped:
        publish(sender, "a", 0)
        looped.until(lambda: looped.received == [0])
        keys = looped.store.keys
        index = keys.unacked_index("a")
        [(tag, taken_at)] = looped.store.client.zrange(index, 0, -1, withscores=True)
        until(lambda: looped.store.client.zscore(index, tag) > taken_at, what="renewed")
        looped.messages[0].ack()


def test_a_redis_that_is_emptied_silences_nobody(
    proj: Proj, sender: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """After FLUSHALL the log does not say that the consumer was silent, or that its messages run twice; it works on."""
    with Looped(proj.connection(), "a", acks=False) as looped:
        publish(sender, "a", 0)
        looped.until(lambda: looped.received == [0])
        proj.server.client().flushall()
        publish(sender, "a", 1)
        looped.until(lambda: looped.received == [0, 1])
        looped.messages[0].ack()
    assert "Redis does not know the lease" in caplog.text
    assert "silent" not in caplog.text
    assert "twice" not in caplog.text
