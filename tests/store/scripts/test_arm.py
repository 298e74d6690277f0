"""``arm.lua``: stores runs of periodic entries, each once."""

import pytest

from celery_ext.periodic.store import PeriodicStore, Run, Superseded
from celery_ext.waiting import by_id
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support.store.keyspace import FUTURE_MS

AT = int(FUTURE_MS)
pytestmark = pytest.mark.both_layouts


def part(store: DelayStore) -> PeriodicStore:
    return store.part(PeriodicStore)


def run(at_ms: int, entry: str = "report", digest: str = "d1") -> Run:
    identity = f"{entry}-{at_ms}".replace(" ", "_")  # in use a UUID, without blanks
    return Run(entry, digest, at_ms, Offer(identity, repr(float(at_ms)), 0, f"body of {identity}"))


def waiting_ids(store: DelayStore) -> set[str]:
    return {str(message.id) for message in by_id.browse(store, "q")}


def test_entries_are_apart(store: DelayStore) -> None:
    """Each entry has its latest run, also one with blanks in its name."""
    names = ("report", "clean up", "ü")
    assert part(store).arm("q", 1, [run(AT, name) for name in names]) == ["armed"] * 3
    [notes] = part(store).notes(["q"]).values()
    assert {name: note.latest_ms for name, note in notes.items()} == dict.fromkeys(names, AT)


def test_another_digest_is_refused(store: DelayStore) -> None:
    """While an entry is armed, nobody arms it by another digest."""
    part(store).arm("q", 1, [run(AT)])
    assert part(store).arm("q", 1, [run(AT + 1, digest="d2")]) == ["changed"]
    assert waiting_ids(store) == {f"report-{AT}"}


def test_a_lower_token_is_refused(store: DelayStore) -> None:
    """Who has led before the one that armed last stores nothing."""
    part(store).arm("q", 7, [run(AT)])
    with pytest.raises(Superseded) as found:
        part(store).arm("q", 6, [run(AT + 1000)])
    assert found.value.token == 7
    assert waiting_ids(store) == {f"report-{AT}"}
