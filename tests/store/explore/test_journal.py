"""Every order of the calls of promoters of a journal, and of users who cancel or move what waits there."""

import itertools
import sqlite3
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from celery_ext.journal import JournaledStore, database, lookup
from celery_ext.journal import store as journal_store
from celery_ext.journal.journal import Journal
from celery_ext.journal.leadership import NotLeading, PromoterLeadership
from celery_ext.journal.rows import Addition
from celery_ext.journal.worker import RowPromoter
from celery_ext.waiting import by_id
from kombu_delayq.store import DelayStore
from tests.store.explore.test_kernel import SECONDS
from tests.support.journal.stores import DAY_MS, Promoter
from tests.support.store.explorer import Database, Explorer, Violation, search
from tests.support.store.stepwise import Processes, Work, by_turns
from tests.support.store.tuned import tuned
from tests.support.store.worlds import QUEUE, Fleet, FleetWorld, message_of

pytestmark = [pytest.mark.timeout(SECONDS + 60), pytest.mark.plain_server]


class JournalProcesses(Processes):
    """Makes stores with a journal, each as of another process.

    Args:
        store: As of ``Processes``.
        path: The file of the journal.
    """

    def __init__(self, store: DelayStore, path: Path) -> None:
        super().__init__(store)
        # Each row is to be promoted, and none comes near by itself.
        self._journaled = tuned(
            journal_url=f"sqlite:///{path}", journal_lead=90 * DAY_MS / 1000, layout=store.layout, cancelled_ttl=1000.0
        )

    def store(self) -> JournaledStore:
        """Makes a store."""
        return JournaledStore(self.client, self.keys, (0, 3, 6, 9), self._journaled)


class JournalWorld(FleetWorld):
    """Promoters, and users who change what waits in the journal."""

    ignored = (*FleetWorld.ignored, b":chains", b":cancelled")

    def __init__(self, store: DelayStore, days: int, actors: list[list[str]], path: Path) -> None:
        super().__init__(store, actors)
        self._days = days
        self.processes = JournalProcesses(store, path)  # type: ignore[misc]
        self._holds: Iterator[str] = iter(())
        self._rows = sqlite3.connect(path, isolation_level=None)
        self._rows.execute("PRAGMA synchronous=OFF")

    def begin(self) -> Fleet:
        """A row waits, and a promoter leads."""
        fleet = super().begin()
        self.prepare(
            "promote",
            "claim_rows",
            "settle_rows",
            "elect",
            "cancel",
            "discard",
            "get",
            "cancel_chains",
            "reschedule",
            "run_now",
            "transfer",
        )
        store = self.processes.store()
        store.journal.add([Addition(QUEUE, "i", self.begun_ms + self._days * DAY_MS, 0, message_of("i", 0).encode())])
        self._first = Promoter(store).heartbeat().leadership
        return fleet

    def beside(self) -> dict[str, list[Any]]:
        """Returns the rows of the tables."""
        names = self._rows.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {name: self._rows.execute(f"SELECT * FROM {name}").fetchall() for [name] in names}  # noqa: S608

    def put_back(self, beside: dict[str, list[Any]]) -> None:
        """Puts the rows back."""
        self._rows.execute("BEGIN IMMEDIATE")
        for name, rows in beside.items():
            self._rows.execute(f"DELETE FROM {name}")  # noqa: S608
            for row in rows:
                self._rows.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608
        self._rows.execute("COMMIT")

    def _go_on(self, fleet: Fleet, name: str, work: Work) -> Fleet:
        self._holds = (f"{name}{number}" for number in itertools.count())
        return super()._go_on(fleet, name, work)

    def hold(self) -> Any:
        """Returns the next name of a hold, in place of a random one: what is heard again has to be asked again."""
        return SimpleNamespace(hex=next(self._holds))

    def run_promote(self, store: JournaledStore) -> str:
        """The promoter that leads promotes; it may be another one by now."""
        try:
            return str(RowPromoter(store, self._first, lambda: True).promote_due())
        except NotLeading as error:
            return str(error)

    def run_lead(self, store: JournaledStore) -> str:
        """Another promoter begins to lead, and promotes; what is due leaves."""
        leadership = PromoterLeadership(store, "next")
        leadership.begin()
        promoter = RowPromoter(store, leadership, lambda: True)
        store.delivery.transfer(QUEUE)
        promoter.recover()
        words = str(promoter.promote_due())
        store.delivery.transfer(QUEUE)
        return words

    def run_cancel(self, store: JournaledStore) -> str:
        """A user cancels the message."""
        [done] = by_id.cancel(store, ["i"])
        return done.outcome

    def run_move(self, store: JournaledStore, days: str) -> str:
        """A user moves the message, within the journal or to Redis."""
        [(_, outcome)] = by_id.reschedule(store, ["i"], self.begun_ms + int(days) * DAY_MS)
        return outcome

    def check(self, fleet: Fleet, database: Database) -> None:
        """Redis has the message once."""
        found = self._in_redis(fleet, database)
        if found > 1:
            raise Violation(f"Redis has the message {found} times")

    def end(self, fleet: Fleet) -> None:
        """Once all is promoted, Redis has the message, unless a user has cancelled it."""
        results = {name: str(work.result) for name, work in fleet.works}
        Promoter(self.processes.store(), "last").heartbeat().promote()
        store = self.processes.store()
        found = self._in_redis(fleet, Explorer(self, self.store.client).database())
        left = len(store.journal.get(["i"]))
        is_cancelled = "cancelled" in results.values()
        is_unknown = "None" in {results[name] for name, work in fleet.works if work.words[0] == "cancel"}
        if (found + left != (not is_cancelled)) and not (is_unknown and found + left == 0):
            raise Violation(f"Redis has the message {found} times, the journal {left} times, after {results}")

    def _in_redis(self, fleet: Fleet, database: Database) -> int:
        waiting, running = self.places(fleet, database)
        return len(waiting) + len(running)


#: In how many days the row is due, and what each actor does, in its order.
WORLDS: dict[str, tuple[int, list[list[str]]]] = {
    "a promoter that is killed, and the next": (0, [["begin P promote", "die P", "begin L lead"]]),
    "a promoter that stands still, and the next": (0, [["begin L lead"], ["begin P promote"]]),
    "a promoter against a cancel that may die": (20, [["begin P promote"], ["begin C cancel", "die C"]]),
    "a promoter against a move to Redis": (20, [["begin P promote"], ["begin M move 1"]]),
    "a promoter against a move in the journal": (20, [["begin P promote"], ["begin M move 30"]]),
    "a cancel against a move": (20, [["begin C cancel"], ["begin M move 1"]]),
}


def explore(store: DelayStore, world: str, seconds: float = SECONDS) -> None:
    """Searches a world, for some time at the most."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        # One object for all processes, as it remembers nothing but that the tables are there; no disk is waited for.
        patch.setattr(journal_store, "Journal", cache(by_turns(Journal)))
        patch.setattr(database, "SYNCHRONOUS", dict.fromkeys((True, False), "PRAGMA synchronous=OFF"))
        searched = JournalWorld(store, *WORLDS[world], Path(folder) / "journal.db")
        patch.setattr(lookup, "uuid4", searched.hold)
        search(searched, store.client, world, seconds)


@pytest.mark.parametrize("layout", ["hash"], indirect=True)
@pytest.mark.parametrize("world", WORLDS)
def test_each_row_comes_once(store: DelayStore, world: str) -> None:
    """In no order does a row come twice, is it lost, or does it come after a cancel."""
    explore(store, world)
