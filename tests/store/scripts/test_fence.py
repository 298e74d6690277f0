"""``fence.lua``: fences consumers off whose lease has ended."""

from kombu_delayq.store import DelayStore
from tests.support.store.consuming import end_lease, lives


def test_any_number_at_once(store: DelayStore) -> None:
    """Nobody asks Redis for nothing; hundreds are fenced off page by page."""
    names = [f"host:{number}:00000000" for number in range(450)]
    lives(store, *names)
    for name in names:
        end_lease(store, name)
    assert store.consumers.fence([], "q") == []
    assert store.consumers.fence(names, "q") == names
