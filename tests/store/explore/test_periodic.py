"""Every order of what processes that arm periodic entries, and people who pause them, do with the runs of one entry."""

import re
from collections.abc import Sequence

import pytest

from celery_ext.periodic.keys import PeriodicKeys
from celery_ext.periodic.store import PeriodicStore, Run, Superseded
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.store.explore.test_kernel import SECONDS
from tests.support.store.explorer import GRAIN_MS, Violation, search
from tests.support.store.worlds import QUEUE, Fleet, FleetWorld, message_of

ENTRY = "entry"
#: A time in a note, in ms since the epoch.
_TIME = re.compile(r"\d{13}")

pytestmark = pytest.mark.timeout(SECONDS + 60)


class PeriodicWorld(FleetWorld):
    """Processes that arm the runs of an entry, each with a token; the latest begins last."""

    def do_arm(self, fleet: Fleet, token: str, digest: str, *hours: str) -> Fleet:
        """A process arms runs, those of each hour."""
        runs = [self._run(digest, int(hour), fleet.hour) for hour in hours]
        try:
            words = self.store.part(PeriodicStore).arm(QUEUE, int(token), runs)
        except Superseded:
            return fleet
        for run, word in zip(runs, words, strict=True):
            identity = str(run.offer.id)
            if word == "armed":
                fleet = fleet.with_more(identity)
            if dict(fleet.stored).get(identity, 0) > 1:
                raise Violation(f"{identity} is armed twice")
        return fleet

    def do_disarm(self, fleet: Fleet, token: str, state: str) -> Fleet:
        """A process, or somebody without a token, takes back the runs to come, and may leave those that are due."""
        before = self._waiting(fleet)
        try:
            removed = self.store.part(PeriodicStore).disarm(QUEUE, [ENTRY], int(token) or None, state)  # type: ignore[arg-type]
        except Superseded:
            return fleet
        gone = before - self._waiting(fleet)
        to_come = {f"run{hour}" for hour in range(fleet.hour + 1, 4)}
        if removed != len(gone) or not before & to_come <= gone:
            raise Violation(f"{removed} were removed, and {sorted(gone)} of {sorted(before)} are gone")
        for identity in gone:
            fleet = fleet.with_more(identity, -1)
        return fleet

    def do_hour(self, fleet: Fleet) -> Fleet:
        """An hour passes, in notes, too."""
        key = PeriodicKeys(self.store.keys).notes(QUEUE)
        for name, note in self.store.client.hgetall(key).items():
            if name:
                nearer = _TIME.sub(lambda found: str(int(found[0]) - GRAIN_MS), note.decode())
                self.store.client.hset(key, name, nearer)
        return super().do_hour(fleet)

    def check_end(self) -> None:
        """Only the note of what was armed stays."""
        self.store.client.delete(PeriodicKeys(self.store.keys).notes(QUEUE))
        super().check_end()

    def _waiting(self, fleet: Fleet) -> set[str]:
        return {identity for identity, _ in fleet.stored if self.store.lookup.get([QUEUE], [identity])}

    def _run(self, digest: str, hour: int, now: int) -> Run:
        at_ms = round(self.begun_ms + (hour - now) * GRAIN_MS)
        return Run(ENTRY, digest, at_ms, Offer(f"run{hour}", repr(float(at_ms)), 0, message_of(f"run{hour}", hour)))


#: What each actor does, in its order.
WORLDS: dict[str, Sequence[Sequence[str]]] = {
    "two processes arm": [["arm 1 d 1 2", "arm 1 d 3"], ["arm 2 d 1", "arm 2 d 2 3"], ["transfer"], ["hour", "hour"]],
    "a deploy changes the entry": [
        ["arm 1 old 1 2", "arm 1 old 3"],
        ["disarm 2 changed", "arm 2 new 2 3"],
        ["transfer"],
        ["hour", "hour"],
    ],
    "somebody pauses the entry": [["arm 1 d 1 2"], ["disarm 0 paused", "arm 9 d 2 3"], ["transfer"], ["hour", "hour"]],
}


def explore(store: DelayStore, world: str, seconds: float = SECONDS) -> None:
    """Searches a world, for some time at the most."""
    search(PeriodicWorld(store, WORLDS[world]), store.client, world, seconds)


@pytest.mark.parametrize("world", WORLDS)
def test_each_run_comes_once(store: DelayStore, world: str) -> None:
    """In no order does a run come twice, early, or not although it is armed, nor does one stay that was taken back."""
    explore(store, world)
