"""What replaces a method of the Redis client, as tracers do, sees each command that a publisher waits for."""

from typing import Any

import pytest
from redis import Redis

from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support.store.keyspace import FUTURE_MS


def test_a_tracer_of_the_client_sees_what_is_published(store: DelayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishing asks Redis without the client's own way, unless somebody listens there."""
    seen: list[str] = []
    for number in range(2):  # the queue is registered
        store.delivery.offer("q", Offer(f"i{number}", repr(FUTURE_MS), 0, "body"))
    original = Redis.execute_command

    def traced(self: Any, *args: Any, **options: Any) -> Any:
        seen.append(args[0])
        return original(self, *args, **options)

    monkeypatch.setattr(Redis, "execute_command", traced)
    store.delivery.offer("q", Offer("i2", repr(FUTURE_MS), 0, "body"))
    assert seen == ["EVALSHA"]
