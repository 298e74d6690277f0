"""``SimpleQueue``, ``SimpleBuffer`` and ``basic_get`` of kombu."""

from queue import Empty
from threading import Timer
from time import monotonic

import pytest

from tests.support.conditions import DEADLINE_S, until
from tests.support.workers.consumers import held, none_held, publish, ready
from tests.support.workers.harness import MakeProj, Proj


def test_a_simple_queue_gives_its_messages_in_order(proj: Proj) -> None:
    """``get`` returns the messages in order, and each is held until it is acknowledged."""
    client = proj.server.client()
    with proj.connection() as connection, connection.SimpleQueue("jobs") as jobs:
        for n in range(3):
            jobs.put(n)
        messages = [jobs.get(timeout=20) for _ in range(3)]
        assert [message.payload for message in messages] == [0, 1, 2]
        assert held(client) == 3
        for message in messages:
            message.ack()
        until(lambda: none_held(client))
        assert ready(client) == []


def test_get_leaves_the_rest_to_others(proj: Proj) -> None:
    """After ``get`` of the first message, the others are still in the queue, and another consumer gets the second."""
    with proj.connection() as connection, proj.connection() as other:
        jobs, others = connection.SimpleQueue("jobs"), other.SimpleQueue("jobs")
        for n in range(3):
            jobs.put(n)
        assert jobs.get(timeout=20).payload == 0
        assert jobs.qsize() == 2
        assert others.get(timeout=20).payload == 1
        assert ready(proj.server.client()) == [2]


def test_get_nowait_takes_one_message_or_raises_empty(proj: Proj) -> None:
    """``get_nowait`` returns the next message, and raises Empty when there is none."""
    client = proj.server.client()
    with proj.connection() as connection, connection.SimpleQueue("jobs") as jobs:
        with pytest.raises(Empty):
            jobs.get_nowait()
        jobs.put("a")
        jobs.put("b")
        message = jobs.get(block=False)
        assert message.payload == "a"
        assert (ready(client), held(client)) == (["b"], 1)
        message.ack()
        assert jobs.clear() == 1
        with pytest.raises(Empty):
            jobs.get_nowait()
        assert none_held(client)


def test_get_waits_as_long_as_it_is_asked_to(proj: Proj) -> None:
    """``get`` with a timeout raises Empty after that time, and returns a message as soon as one comes."""
    with proj.connection() as connection, connection.SimpleQueue("jobs") as jobs:
        begun = monotonic()
        with pytest.raises(Empty):
            jobs.get(timeout=0.4)
        assert 0.4 <= monotonic() - begun < DEADLINE_S
        with proj.connection() as publisher:
            timer = Timer(0.3, publish, (publisher, "late"))
            timer.start()
            assert jobs.get(timeout=20).payload == "late"
            timer.join()
        assert monotonic() - begun < DEADLINE_S


def test_what_a_simple_queue_holds_goes_back_with_its_connection(proj: Proj) -> None:
    """A message that was got and not acknowledged is in its queue again when the connection is closed."""
    client = proj.server.client()
    with proj.connection() as connection:
        with connection.SimpleQueue("jobs") as jobs:
            for n in range(3):
                jobs.put(n)
            assert jobs.get(timeout=20).payload == 0
        assert held(client) == 1
    assert ready(client) == [0, 1, 2]
    assert none_held(client)


def test_a_simple_buffer_acknowledges_nothing(proj: Proj) -> None:
    """``SimpleBuffer`` gets messages without noting them as unacknowledged; the others stay in the queue."""
    client = proj.server.client()
    with proj.connection() as connection, connection.SimpleBuffer("jobs") as jobs:
        for n in range(3):
            jobs.put(n)
        assert jobs.get(timeout=20).payload == 0
        assert none_held(client)
    assert ready(client) == [1, 2]


@pytest.mark.parametrize("no_ack", [False, True])
def test_basic_get_takes_one_message(proj: Proj, no_ack: bool) -> None:
    """``basic_get`` takes the next message, and holds it until it is acknowledged, except with ``no_ack``."""
    client = proj.server.client()
    with proj.connection() as connection:
        channel = connection.default_channel
        assert channel.basic_get("jobs", no_ack=no_ack) is None
        publish(connection, "a", "b")
        message = channel.basic_get("jobs", no_ack=no_ack)
        assert message.payload == "a"
        assert (ready(client), held(client)) == (["b"], 0 if no_ack else 1)
        if not no_ack:
            channel.basic_ack(message.delivery_tag)
        channel.basic_get("jobs", no_ack=no_ack)
    assert ready(client) == ([] if no_ack else ["b"])
    assert none_held(client)


def test_basic_get_goes_by_priority(make_proj: MakeProj) -> None:
    """``basic_get`` takes messages of the first priority step first, and within it in order."""
    proj = make_proj(broker_transport_options={"priority_steps": [0, 5]})
    with proj.connection() as connection:
        for body, priority in (("c", 9), ("a", 0), ("d", 5), ("b", 4)):
            publish(connection, body, priority=priority)
        messages = [connection.default_channel.basic_get("jobs", no_ack=True) for _ in range(4)]
        assert [message.payload for message in messages] == ["a", "b", "c", "d"]
        assert connection.default_channel.basic_get("jobs") is None
