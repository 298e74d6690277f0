"""Faults that are planted into the scripts, each of which a search finds."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kombu_delayq.redis import scripts
from kombu_delayq.store import DelayStore
from tests.store.explore.test_chains import explore as chains
from tests.store.explore.test_dead_letters import explore as letters
from tests.store.explore.test_journal import explore as journal
from tests.store.explore.test_kernel import explore as kernel
from tests.store.explore.test_periodic import explore as periodic
from tests.store.explore.test_places import explore as places
from tests.support.store.explorer import Violation

#: For how long a fault is looked for at most, in s; most are found at once.
SECONDS = 120

pytestmark = pytest.mark.timeout(SECONDS + 60)


class Plant(NamedTuple):
    """A fault.

    Attributes:
        name: The Lua file.
        taken_out: What is there once.
        put_in: What is there instead.
        explore: What searches a world.
        world: The world in which the fault shows.
    """

    name: str
    taken_out: str
    put_in: str
    explore: Callable[[DelayStore, str, float], None]
    world: str


PLANTS = {
    "an index keeps what has left": Plant(
        "ack.lua", "redis.call('ZREM', unacked_index, unpack(tags))", "", kernel, "a consumer takes what comes due"
    ),
    "a fenced consumer takes messages": Plant(
        "fetch.lua",
        "consumer ~= '' and not (ends and tonumber(ends) > to.now)",
        "false",
        kernel,
        "a consumer is silent and is killed",
    ),
    "a type is not asked for": Plant(
        "fetch.lua",
        "wrong_type({ [consumers] = 'zset', [unacked_index] = 'zset', [unacked] = 'hash', [paused] = 'hash' })",
        "false",
        kernel,
        "somebody else's key is in the way",
    ),
    "a task of a key waits beside another one": Plant(
        "include/shared/once.lua", "    remove(keys, message)\n", "", kernel, "publishers want one task of a key"
    ),
    "an earlier step of a chain stays": Plant(
        "step.lua", "    remove(keys, message) --", "    --", chains, "a step against a cancel, while one waits"
    ),
    "a letter is taken that another caller has taken": Plant(
        "dead_letters/replay.lua",
        "return redis.call('LREM', dead, -1, message)",
        "return 1",
        letters,
        "one drops what another sends on",
    ),
    "a letter stays in the queue": Plant(
        "bury.lua",
        "and redis.sha1hex(bodies[1]) == row.sha then\n    pull(keys, { member }, bodies)",
        "then",
        letters,
        "a leader dies while it buries",
    ),
    "a row is promoted that was cancelled": Plant(
        "journal/promote.lua",
        "if kind == 'p' or kind == 'c' then",
        "if kind == 'p' then",
        journal,
        "a promoter against a cancel that may die",
    ),
    "a row is promoted again": Plant(
        "journal/promote.lua",
        "if kind == 'p' or kind == 'c' then",
        "if kind == 'c' then",
        journal,
        "a promoter that is killed, and the next",
    ),
    "a promoter goes on that another has followed": Plant(
        "include/shared/fencing.lua",
        "tonumber(latest) ~= tonumber(token)",
        "false",
        journal,
        "a promoter that stands still, and the next",
    ),
    "a place stays taken": Plant(
        "limits/include/places.lua",
        "    redis.call('HDEL', places, tag)\n    subs[base]",
        "    subs[base]",
        places,
        "two consumers of two keys",
    ),
    "a place stays with a consumer that has ended": Plant(
        "leave.lua", "leave_places(places, names)", "{}", places, "a consumer is killed"
    ),
    "a key takes no turn when a place is free": Plant(
        "limits/include/places.lua",
        "key.enters or message or key.running >= key.bound",
        "key.enters or message",
        places,
        "two consumers of two keys",
    ),
    "a message goes back twice": Plant(
        "requeue.lua", "if not is_kept then", "if true then", places, "what is held goes back"
    ),
    "a key that rests has its turn": Plant(
        "limits/include/sub_queue.lua", "return key.rests and 0 or math.max", "return math.max", places, "a key rests"
    ),
    "a run is armed twice": Plant(
        "periodic/arm.lua", "tonumber(run.time) <= latest_of(note)", "false", periodic, "two processes arm"
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


@pytest.mark.plain_server
@pytest.mark.parametrize("layout", ["hash"], indirect=True)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_fault_is_found(store: DelayStore, planted: Path, plant: str) -> None:
    """A search finds what a script does wrong from which a part is taken out, and says by which steps."""
    name, taken_out, put_in, explore, world = PLANTS[plant]
    source = (planted / name).read_text(encoding="utf-8")
    assert source.count(taken_out) == 1
    (planted / name).write_text(source.replace(taken_out, put_in), encoding="utf-8")
    with pytest.raises(Violation, match=r"^Violation: (?s:.)*after the steps\n    "):
        explore(store, world, SECONDS)
