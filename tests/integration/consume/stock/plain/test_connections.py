"""Several consumers, channels, connections and threads of one process."""

import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from tests.support.conditions import until
from tests.support.looped import queue_of
from tests.support.workers.consumers import JOBS, drain, held, none_held, publish, ready
from tests.support.workers.harness import Proj


def test_each_channel_of_a_connection_has_its_own_credit(proj: Proj) -> None:
    """Two channels get messages of their queues, each up to its prefetch count; closing one gives back its own."""
    client = proj.server.client()
    ones: list[Any] = []
    threes: list[Any] = []
    with proj.connection() as connection:
        publish(connection, *range(5), queue="one")
        publish(connection, *range(5), queue="three")
        one, three = connection.channel(), connection.channel()
        first = connection.Consumer(queue_of("one"), channel=one, on_message=ones.append, prefetch_count=1)
        second = connection.Consumer(queue_of("three"), channel=three, on_message=threes.append, prefetch_count=3)
        with first, second:
            drain(connection, ones, 1)
            drain(connection, threes, 3)
            with suppress(TimeoutError):  # and no more come
                while True:
                    connection.drain_events(timeout=1.2)
            assert [message.payload for message in ones] == [0]
            assert [message.payload for message in threes] == [0, 1, 2]
            assert {message.channel for message in ones} == {one}
            assert {message.channel for message in threes} == {three}
            assert (held(client), ready(client, "one"), ready(client, "three")) == (4, [1, 2, 3, 4], [3, 4])
        one.close()
        assert ready(client, "one") == [0, 1, 2, 3, 4]
        assert held(client) == 3
        for message in threes:
            message.ack()
        until(lambda: none_held(client))


def test_threads_with_connections_of_their_own_share_the_messages(proj: Proj) -> None:
    """Four threads of a process, each with a connection, get each of 200 messages once."""
    received: SimpleQueue[tuple[int, int]] = SimpleQueue()
    done = threading.Event()

    def on_message(message: Any) -> None:
        received.put((threading.get_ident(), message.payload))
        message.ack()

    def consume() -> None:
        with proj.connection() as connection, connection.Consumer(JOBS, on_message=on_message, prefetch_count=2):
            while not done.is_set():
                with suppress(TimeoutError):
                    connection.drain_events(timeout=0.2)

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    with proj.connection() as connection:
        publish(connection, *range(200))
    until(lambda: received.qsize() >= 200)
    done.set()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    everything = [received.get() for _ in range(received.qsize())]
    assert sorted(payload for _, payload in everything) == [*range(200)]
    assert none_held(proj.server.client())


def test_a_message_is_acknowledged_by_another_thread(proj: Proj) -> None:
    """Credit comes back when another thread acknowledges, as with a pool of threads behind a consumer."""
    to_do: SimpleQueue[Any] = SimpleQueue()
    received: list[Any] = []

    def work() -> None:
        while (message := to_do.get()) is not None:
            message.ack()

    def on_message(message: Any) -> None:
        received.append(message.payload)
        to_do.put(message)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        with proj.connection() as connection:
            publish(connection, *range(3))
            with connection.Consumer(JOBS, on_message=on_message, prefetch_count=1):
                drain(connection, received, 3)
            to_do.put(None)
            thread.join(20)
    finally:
        to_do.put(None)
    assert received == [*range(3)]
    assert none_held(proj.server.client())
