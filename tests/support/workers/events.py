"""Captures the events of workers."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from tests.support.conditions import DEADLINE_S
from tests.support.workers.harness import Proj


@contextmanager
def captured(proj: Proj) -> Iterator[list[dict[str, Any]]]:
    """Captures the events of all workers meanwhile."""
    seen: list[dict[str, Any]] = []
    with proj.app.connection_for_read() as connection:
        receiver, ready = proj.app.events.Receiver(connection, handlers={"*": seen.append}), Event()
        receiver.on_consume_ready = lambda *_, **__: ready.set()

        def capture() -> None:
            receiver.capture(limit=None, timeout=None, wakeup=False)

        thread = Thread(target=capture, daemon=True)
        thread.start()
        try:
            assert ready.wait(DEADLINE_S), "events are captured"
            yield seen
        finally:
            receiver.should_stop = True
            thread.join(10)
    assert not thread.is_alive()
