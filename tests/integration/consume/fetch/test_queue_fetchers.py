"""Consumers where each queue has its own hash slot, and so a fetcher of its own."""

import json
from collections.abc import Callable

import pytest
from kombu import Connection

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.consume import deliveries
from kombu_delayq.consume.fetcher import State
from tests.support.conditions import until
from tests.support.looped import Looped, publish, queue_of

QUEUES = ("a", "b", "c")
#: Counts the fields of several hashes at one moment.
COUNT = "local n = 0; for _, key in ipairs(ARGV) do n = n + redis.call('hlen', key) end; return n"


@pytest.fixture
def connection(slots_server: PrivateRedis) -> Connection:
    """A connection with our transport to an empty server."""
    return Connection(slots_server.url, transport="kombu_delayq.transport:Transport")


def test_the_credit_is_one_for_all_queues(connection: Connection, slots_server: PrivateRedis) -> None:
    """With messages in all queues no more are in hand than the prefetch count says, and all come, in their order."""
    client = slots_server.client()
    with connection.clone() as sender:
        for queue in QUEUES:
            publish(sender, queue, *(f"{queue}{number}" for number in range(20)))
    most = 0
    with Looped(connection, *QUEUES, prefetch=4, acks=False) as looped:
        while len(looped.received) < 60:
            looped.until(lambda: any(not message.acknowledged for message in looped.messages))
            looped.turn()
            most = max(most, int(client.eval(COUNT, 0, *(f"unacked:{{{queue}}}" for queue in QUEUES))))
            for message in looped.messages:
                if not message.acknowledged:
                    message.ack()
        looped.until(lambda: not client.keys("unacked:*"))
    assert 1 < most <= 4
    for queue in QUEUES:
        of_queue = [payload for payload in looped.received if payload[0] == queue]
        assert of_queue == [f"{queue}{number}" for number in range(20)]
    until(lambda: not client.keys("delayq:{?}:consumers"), what="its leases are given back")


def test_no_queue_is_kept_waiting(connection: Connection) -> None:
    """With room for one message, queues with messages take turns."""
    with connection.clone() as sender:
        for queue in QUEUES:
            publish(sender, queue, *(queue for _ in range(10)))
    with Looped(connection, *QUEUES, prefetch=1) as looped:
        looped.until(lambda: len(looped.received) == 30)
    assert all(set(looped.received[at : at + 9]) == set(QUEUES) for at in range(0, 21, 9))


def test_what_is_asked_ahead_keeps_no_queue_waiting(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a flood of one queue could be asked for ahead all the time, the others take turns with it."""
    monkeypatch.setattr(deliveries, "TURN_S", 600)
    with connection.clone() as sender:
        for queue, number in zip(QUEUES, (200, 10, 10), strict=True):
            publish(sender, queue, *(queue for _ in range(number)))
    with Looped(connection, *QUEUES, prefetch=8) as looped:
        looped.until(lambda: looped.received.count("b") == looped.received.count("c") == 10)
        assert looped.received.count("a") < 200


@pytest.mark.parametrize("prefetch", [1, 2])
def test_a_queue_that_was_empty_is_not_kept_waiting_by_a_flood(connection: Connection, prefetch: int) -> None:
    """What lands while another queue takes the credit goes back, and its queue takes turns from then on."""
    with connection.clone() as sender, Looped(connection, "a", "b", prefetch=prefetch) as looped:
        publish(sender, "a", *("a" for _ in range(1000)))
        for number in range(1, 6):
            begun = looped.received.count("a")
            looped.until(lambda begun=begun: looped.received.count("a") >= begun + 50)
            publish(sender, "b", "b")
            looped.until(lambda number=number: looped.received.count("b") == number)
        assert looped.received.count("a") < 1000


@pytest.mark.parametrize("prefetch", [1, 2, 10])
def test_without_a_loop_a_queue_that_was_empty_is_not_kept_waiting(connection: Connection, prefetch: int) -> None:
    """A consumer that drains serves such a queue after a few calls, too."""
    received: list[str] = []
    with connection as drained, drained.clone() as sender:
        publish(sender, "a", *("a" for _ in range(2000)))
        consumer = drained.Consumer(
            [queue_of(name) for name in "ab"],
            prefetch_count=prefetch,
            callbacks=[lambda body, message: (received.append(body), message.ack())],
        )
        with consumer:
            for number in range(1, 6):
                for _ in range(50):
                    drained.drain_events(timeout=30)
                publish(sender, "b", "b")
                while received.count("b") < number:
                    drained.drain_events(timeout=30)
    assert received.count("a") < 5 * (50 + 100)


def test_a_message_that_has_landed_and_goes_back_is_asked_for(
    connection: Connection, slots_server: PrivateRedis
) -> None:
    """When other queues have taken the credit, a queue whose message goes back is the next to take turns."""
    with connection as drained, drained.Consumer([queue_of("b")], prefetch_count=1), drained.clone() as sender:
        with pytest.raises(TimeoutError):
            drained.drain_events(timeout=0.1)
        cycle, fetchers = drained.transport.cycle, drained.default_channel.fetcher
        fetcher = fetchers._of("b").fetcher

        def read_until(is_so: Callable[[], object]) -> None:
            until(lambda: [cycle.on_readable(fd) for fd, _ in cycle._poll(0.1)] and is_so())

        publish(sender, "b", "b")
        read_until(lambda: fetcher._waits.arrived)
        fetchers.pause()
        read_until(lambda: fetcher.state is not State.ASKED)
        assert slots_server.client().llen("b") == 1
        assert fetcher.is_eager


def test_a_message_of_any_queue_comes_without_a_loop(connection: Connection) -> None:
    """A consumer that drains gets messages one by one, whichever queue they come to."""
    received = []
    with connection as drained, drained.clone() as sender:
        queues = [queue_of(name) for name in QUEUES]
        with drained.Consumer(queues, callbacks=[lambda body, message: (received.append(body), message.ack())]):
            for number, queue in enumerate("cabbac"):
                publish(sender, queue, number)
                while len(received) <= number:
                    drained.drain_events(timeout=30)
    assert received == [*range(6)]


def test_what_a_channel_cancels_after_its_end_is_no_error(connection: Connection) -> None:
    """Celery cancels its consumers also after it has lost its connection."""
    with Looped(connection, "a") as looped:
        channel = looped.channel
        channel.close()
        channel.fetcher.end("another")


def test_a_message_that_is_next_after_its_loss_comes_again(connection: Connection, slots_server: PrivateRedis) -> None:
    """What a channel holds when it closes is next in its queue again, marked as redelivered."""
    client = slots_server.client()
    with connection.clone() as sender:
        for queue in QUEUES:
            publish(sender, queue, queue)
    with Looped(connection, *QUEUES, acks=False) as looped:
        looped.until(lambda: len(looped.received) == 3)
    for queue in QUEUES:
        [body] = client.lrange(queue, 0, -1)
        assert json.loads(body)["headers"]["redelivered"] is True
    assert not client.keys("unacked:*")
