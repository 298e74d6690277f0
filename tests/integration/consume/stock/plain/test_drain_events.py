"""What a call of ``drain_events`` does: one message a call, its timeout, and callbacks that fail."""

import threading
from contextlib import suppress
from time import monotonic
from typing import Any

import pytest

from tests.support.conditions import DEADLINE_S, until
from tests.support.workers.consumers import JOBS, Acked, drain, drained, held, none_held, publish, ready
from tests.support.workers.harness import Proj


@pytest.mark.parametrize("prefetch_count", [0, 1])
def test_a_call_delivers_one_message(proj: Proj, prefetch_count: int) -> None:
    """Each call delivers one message, in order, whatever the prefetch count."""
    received = Acked()
    with proj.connection() as connection:
        publish(connection, *range(12))
        with connection.Consumer(JOBS, on_message=received.take, prefetch_count=prefetch_count):
            for n in range(12):
                connection.drain_events(timeout=20)
                assert received == [*range(n + 1)]
    assert none_held(proj.server.client())


def test_a_call_ends_close_to_its_timeout(proj: Proj) -> None:
    """When nothing comes, a call raises ``socket.timeout`` after its timeout, and not before."""
    with proj.connection() as connection, connection.Consumer(JOBS, on_message=print):
        for timeout in (0.2, 1.2):
            begun = monotonic()
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=timeout)
            assert timeout <= monotonic() - begun < timeout + DEADLINE_S


def test_a_call_without_time_still_gets_what_is_there(proj: Proj) -> None:
    """Calls with timeout 0 raise ``socket.timeout``, or deliver a message that is there."""
    received: list[Any] = []

    def poll() -> list[Any]:
        with suppress(TimeoutError):
            connection.drain_events(timeout=0)
        return received

    with proj.connection() as connection, connection.Consumer(JOBS, on_message=received.append):
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0)
        publish(connection, "a")
        [message] = until(poll)
        assert message.payload == "a"
        message.ack()


def test_no_message_is_lost_between_calls_that_time_out(proj: Proj) -> None:
    """A consumer with short timeouts gets each message once, in order, while another process publishes."""
    received = Acked()

    def publish_all() -> None:
        with proj.connection() as publisher:
            for n in range(100):
                publish(publisher, n)
                pause.wait(0.003)

    pause = threading.Event()
    thread = threading.Thread(target=publish_all)
    with proj.connection() as connection, connection.Consumer(JOBS, on_message=received.take, prefetch_count=3):
        thread.start()
        deadline = monotonic() + 2 * DEADLINE_S
        while len(received) < 100 and monotonic() < deadline:
            with suppress(TimeoutError):
                connection.drain_events(timeout=0.002)
        thread.join()
    assert received == [*range(100)]
    assert none_held(proj.server.client())


def test_a_consumer_without_credit_leaves_messages_in_the_queue(proj: Proj) -> None:
    """A consumer that holds ``prefetch_count`` messages gets no more until it acknowledges one."""
    client = proj.server.client()
    messages: list[Any] = []
    with proj.connection() as connection, connection.Consumer(JOBS, on_message=messages.append, prefetch_count=2):
        publish(connection, *range(5))
        drain(connection, messages, 2)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=0.2)
        assert (held(client), ready(client)) == (2, [2, 3, 4])
        messages[0].ack()
        drain(connection, messages, 3)
        assert [message.payload for message in messages] == [0, 1, 2]
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.2)
        assert (held(client), ready(client)) == (2, [3, 4])


def test_a_message_that_comes_while_there_is_no_credit_goes_to_another_consumer(proj: Proj) -> None:
    """A consumer that has waited, and holds what it may, does not keep a new message from others."""
    messages: list[Any] = []
    with proj.connection() as connection, proj.connection() as other:
        with connection.Consumer(JOBS, on_message=messages.append, prefetch_count=1):
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=0.2)
            publish(other, "first")
            drain(connection, messages, 1)
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=0.2)
            publish(other, "second")
            assert drained(other, 1) == ["second"]
        assert [message.payload for message in messages] == ["first"]


def test_an_error_of_a_callback_leaves_its_message_unacknowledged(proj: Proj) -> None:
    """The caller of ``drain_events`` gets the error, others messages still come, and at close it goes back."""
    client = proj.server.client()
    received: list[Any] = []

    def on_message(message: Any) -> None:
        received.append(message.payload)
        if message.payload == "bad":
            raise LookupError("no such thing")
        message.ack()

    with proj.connection() as connection:
        publish(connection, "good", "bad", "better")
        with connection.Consumer(JOBS, on_message=on_message):
            connection.drain_events(timeout=20)
            with pytest.raises(LookupError, match="no such thing"):
                connection.drain_events(timeout=20)
            connection.drain_events(timeout=20)
        assert received == ["good", "bad", "better"]
        until(lambda: held(client) == 1)
        assert ready(client) == []
    assert none_held(client)
    messages: list[Any] = []
    with proj.connection() as other, other.Consumer(JOBS, on_message=messages.append):
        drain(other, messages, 1)
        assert (messages[0].payload, messages[0].headers.get("redelivered")) == ("bad", True)
        messages[0].ack()


def test_a_consumer_without_acks_loses_nothing_that_it_was_not_given(proj: Proj) -> None:
    """With ``no_ack`` nothing is noted, and what no callback has got stays in the queue at close."""
    client = proj.server.client()
    messages: list[Any] = []
    with proj.connection() as connection:
        publish(connection, *range(20))
        with connection.Consumer(JOBS, on_message=messages.append, no_ack=True):
            drain(connection, messages, 3)
            assert none_held(client)
    assert [message.payload for message in messages] == [0, 1, 2]
    assert ready(client) == [*range(3, 20)]
