"""Waiting for messages of empty queues."""

from time import monotonic
from typing import Any

import pytest
from kombu import Connection

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.consume import deliveries
from kombu_delayq.consume.consumer import Consumer
from kombu_delayq.consume.fetched import FetchedMessage
from tests.support.conditions import until
from tests.support.looped import Looped, publish, queue_of
from tests.support.workers.harness import MakeProj, Proj
from tests.support.workers.held import in_hand, leases


def test_each_queue_has_a_wait_of_its_own(proj: Proj, sender: Connection) -> None:
    """A message of any queue wakes the consumer that waits for all of them, and is acknowledged with the next turn."""
    with Looped(proj.connection(), "a", "b", "c") as looped:
        looped.until(looped.waits_for("a", "b", "c"))
        for queue in ("c", "a", "b"):
            publish(sender, queue, queue)
            looped.until(lambda queue=queue: looped.received[-1:] == [queue])  # type: ignore[misc]
        client = proj.server.client()
        looped.until(lambda: not in_hand(client))
        looped.until(looped.waits_for("a", "b", "c"))
    assert not client.keys("*landing*")
    until(lambda: not leases(client), what="its lease is given back")


def test_redis_knows_what_a_consumer_holds_and_for_how_long(make_proj: MakeProj) -> None:
    """Each heartbeat says how many messages are in hand, and how old the oldest is, up to a heartbeat too old."""
    proj, begun = make_proj(broker_transport_options={"consumer_ttl": 4.0}), monotonic()
    with Looped(proj.connection(), "a", acks=False) as looped, proj.connection() as sender:
        publish(sender, "a", 1, 2)
        looped.until(lambda: len(looped.received) == 2)
        looped.until(lambda: [lease.held for lease in looped.store.consumers.all()] == [2])
        looped.until(lambda: looped.store.consumers.all()[0].held_s > 1.3)  # type: ignore[operator]
        [lease] = looped.store.consumers.all()
        assert lease.held_s is not None
        assert 1.3 < lease.held_s <= monotonic() - begun + 0.1  # to which it is rounded
        for message in looped.messages:
            message.ack()
        looped.until(lambda: [(lease.held, lease.held_s) for lease in looped.store.consumers.all()] == [(0, None)])


def test_queues_that_begin_together_are_named_together(proj: Proj, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many queues a consumer begins with, few renewals of its lease name them all, and not one for each."""
    renewals: list[object] = []
    renew = Consumer.renew

    def counted(self: Consumer, *args: Any, **kwargs: Any) -> None:
        renewals.append(args)
        renew(self, *args, **kwargs)

    monkeypatch.setattr(Consumer, "renew", counted)
    queues = [f"q{number}" for number in range(40)]
    with Looped(proj.connection(), *queues) as looped:
        store = looped.channel.store
        looped.until(lambda: sorted(store.consumers.by_queue()) == sorted(queues))
        assert len(renewals) < 10
        assert len(store.consumers.all()) == 1


def test_a_message_that_lands_during_a_request_is_taken(proj: Proj, sender: Connection) -> None:
    """The reply of the wait may be read before that to an earlier request, which says that there is no more."""
    client = proj.server.client()
    with Looped(proj.connection(), "a", "b") as looped:
        looped.until(looped.waits_for("a", "b"))
        found = looped.channel.fetcher
        publish(sender, "a", "a")
        looped.until(lambda: found.asked, what="the request for the message is sent in the turn that learns of it")
        until(lambda: in_hand(client), what="Redis has run the request")
        publish(sender, "b", "b")
        until(lambda: client.keys("*landing*"), what="the other message has landed")
        connection_of_fetcher, _, wait_of_b = found.connections
        wait_of_b.read()
        connection_of_fetcher.read()
        looped.until(lambda: looped.received == ["a", "b"], timeout_s=10)


def test_max_connections_bounds_the_waits(proj: Proj, sender: Connection, caplog: pytest.LogCaptureFixture) -> None:
    """Where max_connections leaves no room, the consumer says so once, and polls."""
    with Looped(proj.connection(max_connections=2), "a", "b", "c") as looped:
        looped.until(looped.waits_for("a"))
        for queue in ("c", "b", "a"):
            publish(sender, queue, queue)
            looped.until(lambda queue=queue: looped.received[-1:] == [queue])  # type: ignore[misc]
    assert [record.message.count("max_connections") for record in caplog.records if record.levelname == "WARNING"] == [
        1
    ]


def test_a_priority_in_use_gets_a_wait(proj: Proj, sender: Connection) -> None:
    """The first message of a priority is found by looking; from then on the consumer waits for that list, too."""
    with Looped(proj.connection(), "a") as looped:
        looped.until(looped.waits_for("a"))
        publish(sender, "a", 1, priority=9)
        looped.until(lambda: looped.received == [1])
        looped.until(looped.waits_for("a", "a"), "a second wait")
        publish(sender, "a", 2, priority=9)
        looped.until(lambda: looped.received == [1, 2])


def test_no_message_comes_without_credit(proj: Proj, sender: Connection) -> None:
    """With as many messages in hand as it may have, a consumer waits for none: others get what comes."""
    client = proj.server.client()
    with Looped(proj.connection(), "a", "b", prefetch=1, acks=False) as looped:
        looped.until(looped.waits_for("a", "b"))
        publish(sender, "a", 1)
        looped.until(lambda: looped.received == [1])
        looped.until(looped.waits_for(), "no wait any more")
        publish(sender, "a", 2)
        publish(sender, "b", 3)
        for _ in range(10):
            looped.turn()
        assert looped.received == [1]
        assert (client.llen("a"), client.llen("b"), in_hand(client)) == (1, 1, 1)
        looped.messages[0].ack()
        looped.until(lambda: len(looped.received) == 2)


def test_messages_that_land_at_once_do_not_exceed_the_credit(proj: Proj, sender: Connection) -> None:
    """When messages of all queues come in one moment, those beyond the credit are back in their queues."""
    client = proj.server.client()
    with Looped(proj.connection(), "a", "b", "c", prefetch=1, acks=False) as looped:
        looped.until(looped.waits_for("a", "b", "c"))
        for queue in ("a", "b", "c"):  # the loop does not turn meanwhile
            publish(sender, queue, queue)
        looped.until(lambda: len(looped.received) == 1)
        looped.until(lambda: not client.keys("*landing*"))
        assert in_hand(client) == 1
        assert sum(client.llen(queue) for queue in ("a", "b", "c")) == 2


def test_a_queue_may_come_and_go(proj: Proj, sender: Connection) -> None:
    """A queue that is added gets its wait; one that is cancelled loses it, and its messages stay."""
    client = proj.server.client()
    with Looped(proj.connection(), "a") as looped:
        looped.until(looped.waits_for("a"))
        looped.consumer.add_queue(queue_of("b"))
        looped.consumer.consume()
        looped.until(looped.waits_for("a", "b"))
        looped.consumer.cancel_by_queue("a")
        looped.until(looped.waits_for("b"))
        publish(sender, "a", 1)
        publish(sender, "b", 2)
        looped.until(lambda: looped.received == [2])
        assert client.llen("a") == 1
        assert not client.keys("*landing*")


def test_a_message_that_lands_while_a_queue_is_cancelled_goes_back(proj: Proj, sender: Connection) -> None:
    """What is in flight, and was not fetched, is the next in its queue when the consumer is cancelled."""
    client = proj.server.client()
    with Looped(proj.connection(), "a") as looped:
        looped.until(looped.waits_for("a"))
        publish(sender, "a", 1, 2)
        assert client.keys("*landing*")
        looped.consumer.cancel()
        assert not client.keys("*landing*")
        assert client.llen("a") == 2
        for _ in range(5):
            looped.turn()
        with proj.connection() as other, other.SimpleQueue(queue_of("a")) as queue:
            assert [queue.get(timeout=30).payload for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("queues", ["a", "ab"])
def test_messages_on_their_way_from_a_cancelled_queue_go_back(
    proj: Proj, sender: Connection, monkeypatch: pytest.MonkeyPatch, queues: str
) -> None:
    """What was asked for ahead of a queue that is cancelled meanwhile is in it again behind the rest, in its order."""
    monkeypatch.setattr(deliveries, "TURN_S", 600)

    def cancel(message: Any) -> None:
        if message.payload == 12:
            looped.consumer.cancel_by_queue("a")

    publish(sender, "a", *range(30))
    with Looped(proj.connection(), *queues, prefetch=16, on_message=cancel) as looped:
        looped.until(lambda: looped.received == [*range(13)])
        for _ in range(5):
            looped.turn()
        assert looped.received == [*range(13)]
        with proj.connection() as other, other.SimpleQueue(queue_of("a")) as queue:
            assert [queue.get(timeout=30).payload for _ in range(17)] == [*range(13, 30)]


@pytest.mark.parametrize("command", ["blmove", "client|unblock", "client|id", pytest.param("rpop")])
def test_rights_that_are_missing_do_not_stop_a_consumer(
    own_proj: Proj, caplog: pytest.LogCaptureFixture, command: str
) -> None:
    """Whatever command of taking the ACL forbids, messages come, and the log says what is different."""
    client = own_proj.server.client()
    if "|" in command and int(client.info()["redis_version"].partition(".")[0]) < 7:
        pytest.skip("Redis takes away the right to a subcommand alone from 7.0 on")
    client.execute_command("ACL", "SETUSER", "default", f"-{command}")
    with own_proj.connection() as sender, Looped(own_proj.connection(), "a", "b", prefetch=2) as looped:
        publish(sender, "a", 1, 2, 3)
        looped.until(lambda: looped.received == [1, 2, 3])
        publish(sender, "b", 4)
        looped.until(lambda: looped.received == [1, 2, 3, 4])
    assert not in_hand(client)
    warnings = " ".join(record.message for record in caplog.records if record.levelname == "WARNING")
    assert ("kombu's own way" in warnings) == (command == "rpop")
    assert ("every second only" in warnings) == (command in ("blmove", "client|id"))
    assert warnings.count("CLIENT UNBLOCK") == (command == "client|unblock")


@pytest.fixture
def own_proj(make_proj: MakeProj, own_server: PrivateRedis) -> Proj:
    """An app on a server of this test alone."""
    return make_proj(own_server)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_the_loop_turns_after_a_message_with_an_eta(
    proj: Proj, sender: Connection, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Celery passes such a message to its timer, which fires with the next turn: the loop must not wait before that.

    No message is acknowledged here: the reply to an acknowledgement would let the loop turn as well.
    """
    fired: list[int] = []
    with Looped(proj.connection(), "a", acks=False) as looped:
        looped.until(looped.waits_for("a"))
        looped._on_message = lambda _: looped.hub.timer.call_at(0, fired.append, (1,))
        poll = looped.hub.poller.poll

        def at_once(timeout: float) -> object:
            if len(fired) == len(looped.received):
                return poll(timeout)
            found = poll(0)
            assert found, "the loop would wait, and a task is in the timer"
            return found

        monkeypatch.setattr(looped.hub.poller, "poll", at_once)
        publish(sender, "a", *range(count), headers={"eta": "2020-01-01T00:00:00+00:00"})
        loop = looped.hub.create_loop()
        while len(fired) < count:
            next(loop)
        assert looped.received == list(range(count))


@pytest.mark.parametrize("begins", [True, False])
def test_tasks_that_have_gone_to_the_pool_need_no_turn(proj: Proj, sender: Connection, begins: bool) -> None:
    """A turn delivers all of them, also with an eta; of those that Celery's timer may have, one each."""
    publish(sender, "a", *range(5), headers={"eta": "2020-01-01T00:00:00+00:00"})
    in_turns = list[int]()
    with Looped(proj.connection(), "a", on_message=FetchedMessage.note_begun if begins else bool) as looped:
        while len(looped.received) < 5:
            before = len(looped.received)
            looped.turn()
            in_turns += [len(looped.received) - before] if len(looped.received) > before else []
    assert in_turns == ([5] if begins else [1] * 5)
