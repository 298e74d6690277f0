"""``disarm.lua``: removes the waiting runs of periodic entries."""

import pytest

from celery_ext.periodic.keys import PeriodicKeys
from celery_ext.periodic.store import ArmedNote, Superseded
from kombu_delayq.store import DelayStore
from tests.store.scripts.test_arm import AT, part, run, waiting_ids

pytestmark = pytest.mark.both_layouts


def test_a_run_to_come_that_was_purged_is_forgotten(store: DelayStore) -> None:
    """The entry is armed for that time anew, while one that was cancelled, or sent early, does not come again."""
    early = int(store.now_ms()) - 10
    part(store).arm("q", 1, [run(early), run(AT)])
    store.queues.purge("q")
    assert part(store).notes(["q"])["q"]["report"] == ArmedNote("changed", early)
    assert part(store).arm("q", part(store).new_token(store.now_ms()), [run(early), run(AT)]) == ["repeated", "armed"]
    store.lookup.cancel(["q"], [f"report-{AT}"])
    assert part(store).disarm("q", ["report"], None) == 0
    assert part(store).notes(["q"])["q"]["report"] == ArmedNote("changed", AT)


def test_a_run_to_come_is_not_the_last_one_after_a_purge(store: DelayStore) -> None:
    """An entry that was armed by a clock that has gone back since is armed from the present on."""
    store.client.hset(PeriodicKeys(store.keys).notes("q"), "report", f"d {AT + 1000}")
    part(store).disarm("q", ["report"], 1, "purged")
    now_ms = store.now_ms()
    assert now_ms - 10_000 < part(store).notes(["q"])["q"]["report"].last_ms <= now_ms
    assert part(store).arm("q", 1, [run(AT)]) == ["armed"]


def test_without_a_token_it_supersedes_who_arms(store: DelayStore) -> None:
    """Who pauses an entry has no token; then who arms is refused until it has looked anew."""
    part(store).arm("q", 1, [run(AT)])
    assert part(store).disarm("q", ["report"], None, "paused") == 1
    with pytest.raises(Superseded) as found:
        part(store).arm("q", 1, [run(AT)])
    assert found.value.token > 1
    assert waiting_ids(store) == set()


def test_a_lower_token_removes_nothing(store: DelayStore) -> None:
    """Who has led before changes nothing."""
    part(store).arm("q", 7, [run(AT)])
    with pytest.raises(Superseded):
        part(store).disarm("q", ["report"], 6)
    assert waiting_ids(store) == {f"report-{AT}"}


def test_entries_that_nobody_armed(store: DelayStore) -> None:
    """An entry without a note gets none."""
    assert part(store).disarm("q", ["unknown"], 1) == 0
    assert part(store).notes(["q"]) == {"q": {}}
