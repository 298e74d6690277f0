"""``watched.lua``: whether a transfer worker has to find out which consumers are gone."""

from collections.abc import Callable

import pytest

from kombu_delayq.store import DelayStore, Request

ME, OTHER, UNHEARD = "host:1:aaaaaaaa", "host:2:bbbbbbbb", "host:3:cccccccc"

pytestmark = pytest.mark.plain_server


def answers(store: DelayStore) -> set[bool]:
    """Returns what ``watched`` says, and what a look says."""
    look = store.leases.look("leader", {}).look
    assert look is not None
    return {store.leases.watched(), look.is_watched}


@pytest.mark.parametrize(
    "stir",
    [
        lambda store: store.fetching.fetch(Request(ME, 1, 1, ["q"])),
        lambda store: store.consumers.heartbeat(OTHER, ["q"], is_new=True, subscribed=True),
        lambda store: store.client.set(store.keys.consumed(""), "in the way"),
    ],
)
def test_consumers_are_watched_when_somebody_may_be_missed(
    store: DelayStore, stir: Callable[[DelayStore], object]
) -> None:
    """That is so while a message is in hand, a subscription is missing, or Redis does not say; else nobody asks."""
    store.consumers.heartbeat(ME, ["q"], is_new=True, subscribed=True)
    store.consumers.heartbeat(UNHEARD, ["q"], is_new=True)  # has said nothing of a subscription
    with store.client.pubsub() as pubsub:
        pubsub.subscribe(store.keys.presence(ME))
        pubsub.get_message(timeout=10)
        store.client.lpush("q", "message")
        assert answers(store) == {False}
        stir(store)
        assert answers(store) == {True}
