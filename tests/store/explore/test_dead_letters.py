"""Every order of what bury, replay, drop and prune dead letters do with a few of them."""

import json
from collections import Counter
from collections.abc import Sequence

import pytest

from celery_ext.dead_letters.store import Letter, LetterStore
from kombu_delayq.message.letter_record import DEAD_LETTER
from kombu_delayq.options import QueueLimits
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import DelayedQueue, Requeued
from tests.store.explore.test_kernel import SECONDS
from tests.support.store.explorer import Database, Explorer, Violation, search
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

    def run_bury(self, store: DelayStore) -> str:
        """The leader makes dead letters of messages that are too late: the letters first, then the messages leave."""
        late = store.delivery.transfer_limited(QUEUE, QueueLimits("dead-letter", 60_000, None, 1)).too_late
        letters = [(each, letter_of(about(each.body or b"")[0])) for each in late]
        return str(store.delivery.bury(DelayedQueue(QUEUE, store.layout), letters, DEAD))

    def check(self, fleet: Fleet, database: Database) -> None:
        """Each message is in one place; but a letter may be there before its message has left."""
        super().check(self._with_letters(fleet, database), database)

    def _with_letters(self, fleet: Fleet, database: Database) -> Fleet:
        """Returns what is known once those letters are that may be there beside their messages."""
        waiting, running = self.places(fleet, database)
        beside = Counter(identity for identity, _ in [*waiting, *running])
        beside.subtract(dict(fleet.stored))
        for identity, number in beside.items():
            fleet = fleet.with_more(identity, min(number, sum(work.result is None for _, work in fleet.works)))
        return fleet

    def is_list_of_messages(self, key: bytes) -> bool:
        """The dead letters count, too."""
        return key == DEAD.encode() or super().is_list_of_messages(key)

    def end(self, fleet: Fleet) -> None:
        """What is among the dead letters in the end is known; all else is consumed."""
        fleet = self._with_letters(fleet, Explorer(self, self.store.client).database())
        for at in range(len(fleet.consumers)):
            fleet = self.do_lapse(fleet, str(at))
        fleet = self.do_fence(fleet)
        for name, _ in fleet.fenced:
            fleet = self._give_back(self._find_held(fleet, name), name)
        fleet = self.do_drop(self.do_look(fleet, "last"), "last")
        self.store.client.delete(self.store.keys.dead_letters)
        super().end(fleet)

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


#: What each actor does, in its order, and the consumers: worlds of a list, which is the same in both layouts.
LISTED: dict[str, tuple[Sequence[Sequence[str]], Sequence[Consumer]]] = {
    "two users send on": (
        [["bury a", "bury b"], ["look A", "replay A"], ["look B", "replay B"]],
        [Consumer(turns=1)],
    ),
    "a consumer dies with a message that is sent on": (
        [["push a"], ["lapse 0"], ["fence"], ["look A", "replay A"]],
        [Consumer(turns=1)],
    ),
}
#: Worlds of messages that wait, and come too late.
LATE: dict[str, tuple[Sequence[Sequence[str]], Sequence[Consumer]]] = {
    "one drops what another sends on": (
        [["bury a", "bury b", "bury c"], ["look A", "replay A"], ["look B", "drop B"], ["prune 1"]],
        [],
    ),
    "a leader dies while it buries": (
        [["offer a 0", "offer b 0", "hour", "begin B bury", "die B", "begin C bury"], ["cancel a"]],
        [],
    ),
    "a letter is sent on while it is buried": (
        [["offer a 0", "offer b 0", "hour", "begin B bury"], ["look A", "replay A"], ["look C", "drop C"]],
        [],
    ),
}


def explore(store: DelayStore, world: str, seconds: float = SECONDS) -> None:
    """Searches a world, for some time at the most."""
    search(LettersWorld(store, *(LISTED | LATE)[world]), store.client, world, seconds)


@pytest.mark.parametrize("layout", ["hash"], indirect=True)
@pytest.mark.parametrize("world", LISTED)
def test_each_letter_is_in_one_place(store: DelayStore, world: str) -> None:
    """In no order is a letter lost, sent on twice, or dropped unsaid, nor one dropped that is not too many."""
    explore(store, world)


@pytest.mark.parametrize("world", LATE)
def test_what_is_too_late_becomes_one_letter(store: DelayStore, world: str) -> None:
    """The same where messages wait, and become letters: only where a leader dies there may be a letter too much."""
    explore(store, world)
