"""In which order messages come from several queues and priorities."""

from typing import Any

import kombu
import pytest
from kombu import Connection

from tests.support.looped import queue_of
from tests.support.workers.consumers import JOBS, Acked, drain, none_held, publish
from tests.support.workers.harness import MakeProj

#: Before 5.7 kombu forgets in which order the queues were given.
KEEPS_ORDER = kombu.VERSION >= (5, 7)


def _consumed(connection: Connection, count: int, prefetch_count: int, *names: str) -> list[Any]:
    received: list[Any] = []

    def on_message(message: Any) -> None:
        received.append(tuple(message.payload))
        message.ack()

    with connection.Consumer([*map(queue_of, names)], on_message=on_message, prefetch_count=prefetch_count):
        drain(connection, received, count)
    return received


@pytest.mark.parametrize(("strategy", "prefetch_count"), [("round_robin", 1), ("priority", 4), ("sorted", 0)])
def test_queues_are_consumed_as_the_strategy_says(make_proj: MakeProj, strategy: str, prefetch_count: int) -> None:
    """``round_robin`` takes from the queues in turn, ``priority`` as they were given, ``sorted`` by name."""
    proj = make_proj(broker_transport_options={"queue_order_strategy": strategy})
    with proj.connection() as connection:
        for queue in "abc":
            publish(connection, *((queue, n) for n in range(12)), queue=queue)
        received = _consumed(connection, 36, prefetch_count, *"bca")
    names = "".join(queue for queue, _ in received)
    if strategy == "round_robin":
        assert names == names[:3] * 12
        assert {*names[:3]} == {*"abc"}
        if KEEPS_ORDER:
            assert names[:3] == "bca"
    elif strategy == "priority" and KEEPS_ORDER:
        assert names == "b" * 12 + "c" * 12 + "a" * 12
    elif strategy == "priority":
        assert sorted({names[:12], names[12:24], names[24:]}) == ["a" * 12, "b" * 12, "c" * 12]
    else:
        assert names == "a" * 12 + "b" * 12 + "c" * 12
    for queue in "abc":
        assert [n for name, n in received if name == queue] == [*range(12)]
    assert none_held(proj.server.client())


def test_a_message_of_a_higher_step_overtakes_those_that_wait(make_proj: MakeProj) -> None:
    """A consumer with credit for one gets a message of the first step next, although others waited before it."""
    proj = make_proj(broker_transport_options={"priority_steps": [0, 5]})
    messages: list[Any] = []
    with proj.connection() as connection, proj.connection() as publisher:
        publish(publisher, *range(3), priority=5)
        with connection.Consumer(JOBS, on_message=messages.append, prefetch_count=1):
            drain(connection, messages, 1)
            publish(publisher, "urgent", priority=0)
            for count in (2, 3, 4):
                messages[-1].ack()
                drain(connection, messages, count)
            messages[-1].ack()
    assert [message.payload for message in messages] == [0, "urgent", 1, 2]


def test_a_waiting_consumer_gets_a_message_of_any_priority(make_proj: MakeProj) -> None:
    """A consumer that waits for messages gets those of each list of its queue, also of a second queue."""
    proj = make_proj(broker_transport_options={"priority_steps": [0, 3, 9]})
    received = Acked()
    with (
        proj.connection() as connection,
        proj.connection() as publisher,
        connection.Consumer([queue_of("one"), queue_of("two")], on_message=received.take),
    ):
        for n, priority in enumerate((0, 3, 9, 9)):
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=0.1)
            publish(publisher, n, queue="two", priority=priority)
            drain(connection, received, n + 1)
    assert received == [0, 1, 2, 3]
