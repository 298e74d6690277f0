"""Messages that a consumer gives back: requeue, reject, recover, cancel and close."""

from typing import Any

from tests.support.conditions import until
from tests.support.workers.consumers import JOBS, Acked, drain, drained, held, none_held, publish, ready
from tests.support.workers.harness import Proj


def test_a_requeued_message_comes_after_those_that_wait(proj: Proj) -> None:
    """``requeue`` puts a message behind the others, marked as redelivered."""
    client = proj.server.client()
    messages: list[Any] = []
    with proj.connection() as connection, connection.Consumer(JOBS, on_message=messages.append, prefetch_count=1):
        publish(connection, "a", "b")
        drain(connection, messages, 1)
        messages[0].requeue()
        until(lambda: none_held(client))
        drain(connection, messages, 2)
        messages[1].ack()
        drain(connection, messages, 3)
        messages[2].ack()
    assert [message.payload for message in messages] == ["a", "b", "a"]
    assert [bool(message.headers.get("redelivered")) for message in messages] == [False, False, True]
    assert none_held(client)


def test_a_rejected_message_is_gone(proj: Proj) -> None:
    """``reject`` removes a message, and the others still come."""
    client = proj.server.client()
    messages: list[Any] = []
    with proj.connection() as connection, connection.Consumer(JOBS, on_message=messages.append):
        publish(connection, "a", "b")
        drain(connection, messages, 1)
        messages[0].reject()
        drain(connection, messages, 2)
        messages[1].reject(requeue=False)
    assert [message.payload for message in messages] == ["a", "b"]
    assert none_held(client)
    assert ready(client) == []


def test_recover_brings_back_all_that_is_held(proj: Proj, consume: str) -> None:
    """``recover(requeue=True)`` puts held messages before those that wait; stock turns their order round."""
    messages: list[Any] = []
    with proj.connection() as connection:
        publish(connection, *range(5))
        with connection.Consumer(JOBS, on_message=messages.append) as consumer:
            drain(connection, messages, 3)
            consumer.recover(requeue=True)
            drain(connection, messages, 8)
            for message in messages[3:]:
                message.ack()
    again = [message.payload for message in messages[3:]]
    assert again == [0, 1, 2, 3, 4] if consume == "reliable" else sorted(again[:3]) == [0, 1, 2]
    assert all(message.headers.get("redelivered") for message in messages[3:6])
    assert none_held(proj.server.client())


def test_close_gives_back_in_the_order_in_which_messages_came(proj: Proj, consume: str) -> None:
    """What a closed connection held is next in its queue at once; stock turns the order round."""
    client = proj.server.client()
    messages: list[Any] = []
    with proj.connection() as connection:
        publish(connection, *range(8))
        with connection.Consumer(JOBS, on_message=messages.append, prefetch_count=5):
            drain(connection, messages, 5)
        messages[1].ack()
        until(lambda: held(client) == 4)
    order = ready(client)
    assert order == [0, 2, 3, 4, 5, 6, 7] if consume == "reliable" else sorted(order[:4]) == [0, 2, 3, 4]
    assert none_held(client)


def test_close_gives_back_what_no_callback_has_got(proj: Proj) -> None:
    """A consumer with room for many messages that handled two leaves all others, in order, to the next consumer."""
    client = proj.server.client()
    received = Acked()
    with proj.connection() as connection:
        publish(connection, *range(12))
        with connection.Consumer(JOBS, on_message=received.take, prefetch_count=10):
            drain(connection, received, 2)
    assert received == [0, 1]
    assert ready(client) == [*range(2, 12)]
    assert none_held(client)
    with proj.connection() as other:
        assert drained(other, 10) == [*range(2, 12)]


def test_cancel_leaves_what_no_callback_has_got_to_others(proj: Proj) -> None:
    """After ``cancel`` another consumer gets all messages that the first was not given, though its channel is open."""
    received = Acked()
    with proj.connection() as connection, proj.connection() as other:
        publish(connection, *range(10))
        with connection.Consumer(JOBS, on_message=received.take, prefetch_count=10):
            drain(connection, received, 2)
        assert drained(other, 8) == [*range(2, 10)]
        publish(connection, "later")
        assert drained(other, 1) == ["later"]
    assert received == [0, 1]


def test_a_cancelled_queue_gives_back_nothing_that_was_delivered(proj: Proj) -> None:
    """A message that a callback has got stays held after ``cancel``, and can be acknowledged."""
    client = proj.server.client()
    messages: list[Any] = []
    with proj.connection() as connection:
        publish(connection, "a", "b")
        with connection.Consumer(JOBS, on_message=messages.append, prefetch_count=1):
            drain(connection, messages, 1)
        assert held(client) == 1
        messages[0].ack()
        until(lambda: none_held(client))
    assert ready(client) == ["b"]
