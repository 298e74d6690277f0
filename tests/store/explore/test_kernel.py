"""Every order of what publishers, consumers, a leader, a killer and a user do with a few messages."""

import os

import pytest

from kombu_delayq.store import DelayStore
from tests.support.store.explorer import search
from tests.support.store.worlds import Consumer, FleetWorld

#: For how long each world is searched at most, in s. The largest takes about five seconds on a free core.
SECONDS = float(os.environ.get("EXPLORE_SECONDS", "20"))

pytestmark = pytest.mark.timeout(SECONDS + 60)

#: Ids of two tasks of the waiting key ``a``.
FIRST, SECOND = "a~k0123456789abcde", "a~kfedcba987654321"

World = tuple[list[list[str]], list[Consumer]]

#: Worlds of messages that wait: what each actor does, in its order; and the consumers.
WAITING: dict[str, World] = {
    "a publisher repeats a message": (
        [["offer a 0", "offer b 1"], ["offer b 1"], ["transfer", "transfer"], ["hour"], ["cancel b"]],
        [],
    ),
    "users change messages of one id": (
        [["offer b 1"], ["offer b 2 other"], ["transfer"], ["hour", "hour"], ["read b"], ["cancel b"]],
        [],
    ),
    "publishers want one message of an id": (
        [["once keep a 1", "once replace a 2"], ["once keep a 0"], ["offer a 1"], ["transfer"], ["hour"]],
        [],
    ),
    "publishers want one task of a key": (
        [
            [f"once keep {FIRST} 1", f"once replace {SECOND} 2"],
            [f"once keep {SECOND} 0"],
            [f"offer {FIRST} 1"],
            ["transfer"],
            ["hour"],
            ["cancel a"],
        ],
        [],
    ),
    "a consumer takes what comes due": (
        [["offer a 0", "offer b 1"], ["transfer", "transfer"], ["hour"], ["cancel b"]],
        [Consumer()],
    ),
    "a consumer is silent with what has come due": (
        [["offer a 0", "transfer"], ["lapse 0"], ["fence"], ["cancel a"]],
        [Consumer(turns=1)],
    ),
}
#: Worlds of messages in hand, whose scripts are the same in both layouts.
IN_HAND: dict[str, World] = {
    "a consumer is silent and is killed": ([["push a"], ["lapse 0", "kill 0"], ["fence", "fence"]], [Consumer()]),
    "a consumer is silent beside another one": (
        [["push a"], ["lapse 0"], ["fence"]],
        [Consumer(turns=1), Consumer(turns=1)],
    ),
    "somebody else's key is in the way": (
        [["push a"], ["spoil unacked", "mend"], ["lapse 0"], ["fence", "fence"]],
        [Consumer(turns=1)],
    ),
}


def explore(store: DelayStore, world: str, seconds: float = SECONDS) -> None:
    """Searches a world, for some time at the most."""
    search(FleetWorld(store, *(WAITING | IN_HAND)[world]), store.client, world, seconds)


@pytest.mark.parametrize("world", WAITING)
def test_each_message_is_in_one_place(store: DelayStore, world: str) -> None:
    """In no order is a message lost, early, in two places or left behind, nor an index without what it leads to."""
    explore(store, world)


@pytest.mark.parametrize("layout", ["hash"], indirect=True)
@pytest.mark.parametrize("world", IN_HAND)
def test_what_consumers_hold_is_in_one_place(store: DelayStore, world: str) -> None:
    """The same where consumers take, wait, acknowledge and reject, are silent for too long, and are killed."""
    explore(store, world)
