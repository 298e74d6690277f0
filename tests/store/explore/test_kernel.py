"""Every order of what publishers, consumers, a leader, a killer and a user do with a few messages."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kombu_delayq.redis import scripts
from kombu_delayq.store import DelayStore
from tests.support.store.explorer import Explorer, Violation
from tests.support.store.worlds import Consumer, FleetWorld

#: For how long each world is searched at most, in s. The largest takes about a minute on a free core.
SECONDS = float(os.environ.get("EXPLORE_SECONDS", "60"))

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
        [["once keep a 1", "once replace a 2"], ["once keep a 0"], ["offer a 1"], ["transfer"], ["hour"], ["read a"]],
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
}
#: Worlds of messages in hand, whose scripts are the same in both layouts.
IN_HAND: dict[str, World] = {
    "a consumer is silent and is killed": ([["push a"], ["lapse 0", "kill 0"], ["fence", "fence"]], [Consumer()]),
    "a consumer is silent beside another one": (
        [["push a", "push b"], ["lapse 0"], ["fence"]],
        [Consumer(turns=1), Consumer(turns=1)],
    ),
    "somebody else's key is in the way": (
        [["push a"], ["spoil unacked", "mend"], ["lapse 0"], ["fence", "fence"]],
        [Consumer(turns=1)],
    ),
}


def explore(store: DelayStore, world: str) -> None:
    """Searches a world."""
    found = Explorer(FleetWorld(store, *(WAITING | IN_HAND)[world]), store.client).explore(SECONDS)
    print(f"{world}: {found}")
    assert found.ends


@pytest.mark.parametrize("world", WAITING)
def test_each_message_is_in_one_place(store: DelayStore, world: str) -> None:
    """In no order is a message lost, early, in two places or left behind, nor an index without what it leads to."""
    explore(store, world)


@pytest.mark.parametrize("layout", ["hash"], indirect=True)
@pytest.mark.parametrize("world", IN_HAND)
def test_what_consumers_hold_is_in_one_place(store: DelayStore, world: str) -> None:
    """The same where consumers take, wait, acknowledge and reject, are silent for too long, and are killed."""
    explore(store, world)


#: What is taken out of a script, and the world in which that shows.
PLANTS = {
    "an index keeps what has left": (
        *("ack.lua", "redis.call('ZREM', unacked_index, unpack(tags))"),
        "a consumer takes what comes due",
    ),
    "a fenced consumer takes messages": (
        *("fetch.lua", "consumer ~= '' and not (ends and tonumber(ends) > now)"),
        "a consumer is silent and is killed",
    ),
    "a type is not asked for": (
        *(
            "fetch.lua",
            "wrong_type({ [consumers] = 'zset', [unacked_index] = 'zset', [unacked] = 'hash', [paused] = 'hash' })",
        ),
        "somebody else's key is in the way",
    ),
}


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the Lua files, from which scripts are loaded."""
    copied = tmp_path / "lua"
    shutil.copytree(scripts.directory(), copied)
    monkeypatch.setattr(scripts, "directory", lambda: copied)
    scripts.load.cache_clear()
    yield copied
    scripts.load.cache_clear()


@pytest.mark.parametrize("layout", ["hash"], indirect=True)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_fault_is_found(store: DelayStore, planted: Path, plant: str) -> None:
    """A search finds what a script does wrong from which a part is taken out, and says by which steps."""
    name, taken_out, world = PLANTS[plant]
    source = (planted / name).read_text(encoding="utf-8")
    assert source.count(taken_out) == 1
    (planted / name).write_text(source.replace(taken_out, "false"), encoding="utf-8")
    with pytest.raises(Violation, match="after the steps\n    "):
        explore(store, world)
