"""Numbers for delivery tags, which the loop of a worker needs while another thread renews the leases."""

import contextlib
from threading import Event, Thread
from typing import Any, cast

from kombu_delayq.consume.consumer import Consumer


class _HangingStore:
    """A store whose Redis hangs."""

    def __init__(self) -> None:
        self.is_asked, self.may_go_on = Event(), Event()

    def __getattr__(self, name: str) -> Any:
        self.is_asked.set()
        self.may_go_on.wait(10)
        raise OSError("Redis hangs")


def test_numbers_do_not_wait_for_redis():
    """While the heartbeat waits for a Redis that hangs, the loop gets numbers for what it takes elsewhere."""
    consumer, store = Consumer(lambda: ["orders"]), _HangingStore()

    def renew() -> None:
        with contextlib.suppress(OSError):
            consumer.renew(cast(Any, store))

    heartbeat = Thread(target=renew, daemon=True)
    heartbeat.start()
    assert store.is_asked.wait(10)
    got = Event()
    Thread(target=lambda: (consumer.numbers(3), got.set()), daemon=True).start()
    assert got.wait(5)
    assert consumer.numbers(1) == 4
    store.may_go_on.set()
    heartbeat.join(10)
