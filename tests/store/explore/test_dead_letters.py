"""Every order of what bury, replay, drop and prune dead letters do with a few of them."""

import json
from collections import Counter
from collections.abc import Sequence

import pytest

from celery_ext.dead_letters.store import Letter, LetterStore
from kombu_delayq.message.letter_record import DEAD_LETTER
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Requeued
from tests.store.explore.test_kernel import SECONDS
from tests.support.store.explorer import Explorer, Violation
from tests.support.store.worlds import QUEUE, Consumer, Fleet, FleetWorld, about, message_of

DEAD = "dead"

pytestmark = pytest.mark.timeout(SECONDS + 60)


def letter_of(identity: str) -> bytes:
    """Returns a message as a dead letter."""
    message = json.loads(message_of(identity, 0))
    message["properties"][DEAD_LETTER] = {"at": "2026-01-01T00:00:00+00:00"}
    return json.dumps(message).encode()


class LettersWorld(FleetWorld):
    """Users who read a list of dead letters, and then send on or drop what they have read; and who else changes it."""

    def do_bury(self, fleet: Fleet, identity: str) -> Fleet:
        """A worker buries a message."""
        self.store.client.lpush(DEAD, letter_of(identity))
        return fleet.with_more(identity)

    def do_look(self, fleet: Fleet, user: str) -> Fleet:
        """A user reads the letters."""
        return fleet._replace(looked=tuple(sorted((dict(fleet.looked) | {user: tuple(self._letters)}).items())))

    def do_replay(self, fleet: Fleet, user: str) -> Fleet:
        """A user sends on what he has read; only what is at its place still."""
        read = dict(fleet.looked)[user]
        letters = {
            older: Letter(letter, "queue", QUEUE, 0, message_of(about(letter)[0], 0).encode())
            for older, letter in enumerate(read)
        }
        self._take_out(letters)
        return fleet

    def do_drop(self, fleet: Fleet, user: str) -> Fleet:
        """A user drops what he has read, wherever it stands now."""
        letters = {older: Letter(letter, "away") for older, letter in enumerate(dict(fleet.looked)[user])}
        for identity in self._take_out(letters):
            fleet = fleet.with_more(identity, -1)
        return fleet

    def do_prune(self, fleet: Fleet, most: str) -> Fleet:
        """The leader drops the oldest letters that are too many."""
        before = self._letters
        dropped = self.store.part(LetterStore).prune(DEAD, None, int(most))
        if self._letters != before[dropped:] or dropped != max(len(before) - int(most), 0):
            raise Violation(f"of {before}, {dropped} were dropped, and {self._letters} are left")
        for letter in before[:dropped]:
            fleet = fleet.with_more(about(letter)[0], -1)
        return fleet

    def is_list_of_messages(self, key: bytes) -> bool:
        """The dead letters count, too."""
        return key == DEAD.encode() or super().is_list_of_messages(key)

    def end(self, fleet: Fleet) -> None:
        """What is among the dead letters in the end is known; all else is consumed."""
        for at in range(len(fleet.consumers)):
            fleet = self.do_lapse(fleet, str(at))
        fleet = self.do_fence(fleet)
        for name, _ in fleet.fenced:
            fleet = self._give_back(self._find_held(fleet, name), name)
        super().end(self.do_drop(self.do_look(fleet, "last"), "last"))

    def _find_held(self, fleet: Fleet, name: str) -> Fleet:
        fleet = super()._find_held(fleet, name)
        rows = [Requeued(row.tag, DEAD, 0, letter_of(about(row.body)[0])) for row in dict(fleet.fenced)[name] or ()]
        return fleet._replace(fenced=tuple(sorted((dict(fleet.fenced) | {name: tuple(rows)}).items())))

    @property
    def _letters(self) -> list[bytes]:
        return self.store.part(LetterStore).page(DEAD)

    def _take_out(self, letters: dict[int, Letter]) -> list[str]:
        """Takes letters out of the list. Returns the ids of those that have left, and no others may have."""
        before = self._letters
        left = [letters[older].message for older in self.store.part(LetterStore).replay(DEAD, DEAD, letters)]
        if Counter(before) - Counter(self._letters) != Counter(left):
            raise Violation(f"{left} are said to have left {before}, and {self._letters} are there")
        return [about(letter)[0] for letter in left]


#: What each actor does, in its order, and the consumers.
WORLDS: dict[str, tuple[Sequence[Sequence[str]], Sequence[Consumer]]] = {
    "two users send on": (
        [["bury a", "bury b", "bury c"], ["look A", "replay A"], ["look B", "replay B"]],
        [Consumer(turns=1)],
    ),
    "one drops what another sends on": (
        [["bury a", "bury b", "bury c"], ["look A", "replay A"], ["look B", "drop B"], ["prune 1"]],
        [],
    ),
    "a consumer dies with a message that is sent on": (
        [["push a", "bury b"], ["lapse 0"], ["fence"], ["look A", "replay A"], ["prune 1"]],
        [Consumer(turns=1)],
    ),
}


@pytest.mark.parametrize("layout", ["hash"], indirect=True)
@pytest.mark.parametrize("world", WORLDS)
def test_each_letter_is_in_one_place(store: DelayStore, world: str) -> None:
    """In no order is a letter lost, sent on twice, or dropped unsaid, nor one dropped that is not too many."""
    found = Explorer(LettersWorld(store, *WORLDS[world]), store.client).explore(SECONDS)
    print(f"{world}: {found}")
    assert found.ends
