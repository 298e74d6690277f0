"""Every order of the calls of steps of a delay chain, and of who cancels it: each may die between two of them."""

import json

import pytest

from celery_ext.waiting import by_id
from kombu_delayq.message.fields import CHAIN_ID
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.store.explore.test_kernel import SECONDS
from tests.support.store.explorer import GRAIN_MS, Database, Violation, search
from tests.support.store.worlds import QUEUE, Fleet, FleetWorld

CHAIN = "[chain]"
#: Results of who cancels that say that no step waits, and none will.
ENDS = {"cancelled", "chain_ended"}

pytestmark = pytest.mark.timeout(SECONDS + 60)


class ChainsWorld(FleetWorld):
    """Workers that store steps of a chain, and users who cancel it."""

    def __init__(self, store: DelayStore, first: str, actors: list[list[str]]) -> None:
        super().__init__(store, actors)
        self._first = first

    def begin(self) -> Fleet:
        """The first step runs; it waits still where its run was delivered twice."""
        fleet = super().begin()
        self.store.queues.know(QUEUE)  # workers consume it
        self.prepare("check_chain", "cancel", "discard", "get", "cancel_chains", "undo_step", "step", "index")
        self.run_step(self.store, "1") if self._first == "waits" else self.store.chains.check_chain(self._step(1))
        return fleet

    def run_step(self, store: DelayStore, number: str) -> str:
        """A worker whose task has failed stores a step."""
        return store.chains.step(QUEUE, CHAIN, self._step(int(number)))

    def run_cancel(self, store: DelayStore, *others: str) -> str:
        """A user cancels the chain, in a process that has cancelled other tasks before."""
        return [done.outcome for identity in (*others, "i") for done in by_id.cancel(store, [identity])][-1]

    def run_discard(self, store: DelayStore) -> str:
        """A user removes the step that he finds waiting, as a cancel of a selection."""
        [found] = store.lookup.get([QUEUE], ["i"]).get("i", [None])
        return "nothing" if found is None else store.lookup.discard(QUEUE, [(found, "i")])[0]

    def check(self, fleet: Fleet, database: Database) -> None:
        """At most one step waits."""
        waiting, _ = self.places(fleet, database)
        if len(waiting) > 1:
            raise Violation(f"{waiting} wait")

    def end(self, fleet: Fleet) -> None:
        """After a cancel no step waits, and none comes; without one the latest waits."""
        works = dict(fleet.works)
        results = {name: str(work.result) for name, work in works.items()}
        steps = {name: int(work.words[1]) for name, work in works.items() if work.words[0] == "step"}
        waiting = [json.loads(one.body or b"")["headers"]["hour"] for one in self._waiting("i")]
        further = self.store.chains.step(QUEUE, CHAIN, self._step(9))
        if any(results[name] in ENDS for name in results.keys() - steps):
            is_told = bool(
                {"cancelled", "None"} & {*results.values()}
            )  # by a worker, or who cancels; one may have died
            is_right = further == "cancelled" and not waiting and is_told
        elif all(results[name] != "None" for name in results.keys() - steps):  # nobody has died while he cancelled it
            is_right = further != "cancelled" and max(steps.values()) in waiting
        else:
            is_right = True
        if not is_right:
            raise Violation(f"{waiting} wait, and a step is {further} after {results}")

    def _step(self, number: int) -> Offer:
        headers = {"id": "i", "hour": number, "retries": number}
        body = json.dumps({"headers": headers, "properties": {CHAIN_ID: CHAIN}})
        return Offer("i", repr(self.begun_ms + number * GRAIN_MS), 0, body)


#: What the first step does, what each actor does in its order, and what comes of it.
WORLDS: dict[str, tuple[str, list[list[str]]]] = {
    "a step against a cancel": ("runs", [["begin W step 2"], ["begin C cancel"]]),
    "a step against a second cancel": ("runs", [["begin W step 2"], ["begin C cancel other"]]),
    "a step against a cancel, while one waits": ("waits", [["begin W step 2"], ["begin C cancel"]]),
    "a step against a second cancel, while one waits": ("waits", [["begin W step 2"], ["begin C cancel other"]]),
    "a step against a cancel of a selection": ("waits", [["begin W step 2"], ["begin C discard"]]),
    "a worker dies": ("runs", [["begin W step 2", "die W", "begin V step 2"], ["begin C cancel"]]),
    "a run that was delivered twice": ("runs", [["begin W step 2"], ["begin V step 2"], ["begin C cancel"]]),
    "who cancels dies": ("waits", [["begin W step 2"], ["begin D cancel", "die D", "begin C cancel"]]),
}


def explore(store: DelayStore, world: str, seconds: float = SECONDS) -> None:
    """Searches a world, for some time at the most."""
    search(ChainsWorld(store, *WORLDS[world]), store.client, world, seconds)


@pytest.mark.parametrize("world", WORLDS)
def test_a_cancelled_chain_takes_no_step(store: DelayStore, world: str) -> None:
    """Whoever comes first: after the cancel no step waits, and no further step comes; without it none is lost."""
    explore(store, world)
