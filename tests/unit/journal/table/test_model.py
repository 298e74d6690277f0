"""The journal, compared with a dictionary after each of many operations in any order."""

import itertools
from collections import Counter
from math import inf
from pathlib import Path
from typing import Any
from uuid import uuid4

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from celery_ext.journal.journal import Journal
from celery_ext.journal.schema import WAITING
from tests.support.journal.additions import DUE_MS, addition
from tests.support.servers.postgres import PrivatePostgres

#: Few values, so that operations meet; hours and their edges.
NUMBERS, QUEUES = st.integers(0, 5), st.sampled_from(["orders", "nul\0"])
DUES = st.sampled_from([DUE_MS + hour * 1_800_000.0 for hour in range(-1, 5)] + [0.0, DUE_MS + 1])
#: Settings of all runs but for the number of examples.
LEAN: dict[str, Any] = {
    "stateful_step_count": 20,
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
}


class Model(RuleBasedStateMachine):
    """Rows by number: queue, id, due time and state."""

    url: Any

    @initialize()
    def begin(self) -> None:
        """Opens an empty journal."""
        self.journal = Journal(type(self).url())
        self.rows: dict[int, tuple[str, str, float, int]] = {}
        self.epoch = 1

    @rule(number=NUMBERS, queue=QUEUES, due_ms=DUES, offered=st.booleans())
    def add(self, number: int, queue: str, due_ms: float, offered: bool) -> None:
        """The same message is there once."""
        one = addition(number, due_ms, queue)
        is_there = any(row[:2] == (one.queue, one.id) for row in self.rows.values())
        [seq] = self.journal.add([one], offered=offered)
        assert (seq is None) == is_there
        if seq is not None:
            assert seq > max(self.rows, default=0)
            self.rows[seq] = queue, one.id, due_ms, self.epoch if offered else WAITING

    @rule(number=NUMBERS, state=st.sampled_from([None, WAITING]))
    def delete(self, number: int, state: int | None) -> None:
        """Who deletes a row has it."""
        gone = {seq for seq, row in self.rows.items() if row[1] == f"id-{number}" and state in (None, row[3])}
        assert {row.seq for row in self.journal.delete([f"id-{number}"], state)} == gone
        for seq in gone:
            del self.rows[seq]

    @rule(data=st.data(), due_ms=DUES)
    def replace(self, data: st.DataObject, due_ms: float) -> None:
        """A row changes if it waits."""
        seq = data.draw(st.sampled_from([*self.rows, 10**9]))
        queue, identity, _, before = self.rows.get(seq, ("orders", "id-0", 0.0, WAITING))
        changed = addition(int(identity[3:]), due_ms, queue)
        [new] = self.journal.replace([(seq, changed)])
        assert (new is not None) == (seq in self.rows and before == WAITING)
        if new is not None:
            del self.rows[seq]
            self.rows[new] = queue, identity, due_ms, WAITING

    @rule(before_ms=DUES, count=st.integers(1, 3))
    def promote(self, before_ms: float, count: int) -> None:
        """The next due are promoted."""
        waiting = sorted((row[2], seq) for seq, row in self.rows.items() if row[3] == WAITING and row[2] < before_ms)
        found = [row.seq for row in self.journal.promotable(before_ms, count)]
        assert found == [seq for _, seq in waiting[:count]]
        assert self.journal.mark(found) == set(found)
        for seq in found:
            self.rows[seq] = *self.rows[seq][:3], self.epoch

    @rule()
    def lose(self) -> None:
        """Redis loses its data."""
        self.epoch += 1
        assert self.journal.end_epoch(1.0) == self.epoch

    @rule(again=st.booleans(), count=st.integers(1, 3))
    def restore(self, again: bool, count: int) -> None:
        """What is lost waits again, or is found in Redis."""
        for epoch in range(1, self.epoch):
            for queue, given in self.journal.lost_in().get(epoch, []):
                found = [row.seq for row in self.journal.lost(epoch, queue, count=count, given=given)]
                assert found
                if not again:
                    assert self.journal.keep(found) == set(found)
                    self.rows |= {seq: (*self.rows[seq][:3], self.epoch) for seq in found}
                    continue
                for row in self.journal.wait_again(found):
                    self.rows[row.seq] = row.queue, row.id, row.due_ms, WAITING
                for seq in found:
                    del self.rows[seq]

    @rule(queue=QUEUES, count=st.integers(1, 3))
    def purge(self, queue: str, count: int) -> None:
        """A part of a queue goes."""
        own = {seq for seq, row in self.rows.items() if row[0] == queue}
        gone = self.journal.purge(queue, count)
        assert len(gone.waiting) + gone.offered == min(count, len(own))
        left = {row.seq for row in self.journal.rows(list(own), None)}
        assert set(gone.waiting) == {seq for seq in own - left if self.rows[seq][3] == WAITING}
        for seq in own - left:
            del self.rows[seq]

    @invariant()
    def rows_are_alike(self) -> None:
        """Rows and counts are those of the dictionary."""
        if not hasattr(self, "rows"):
            return
        found = self.journal.rows(list(self.rows), None)
        assert {row.seq: (row.queue, row.id, row.due_ms, row.state) for row in found} == self.rows
        assert len(self.journal.get([f"id-{number}" for number in range(6)], None)) == len(self.rows)
        sizes = Counter((row[0], row[3] != WAITING) for row in self.rows.values())
        assert {
            (queue, which): size[which]
            for queue, size in self.journal.sizes().items()
            for which in (0, 1)
            if size[which]
        } == sizes
        for queue in ("orders", "nul\0"):
            dues = [row[2] for row in self.rows.values() if row[0] == queue and row[3] == WAITING]
            bounds = [-inf, 1.0, DUE_MS - 1_000_000, DUE_MS, DUE_MS + 1_800_000, DUE_MS + 6_000_000, inf]
            expected = [sum(low <= due < high for due in dues) for low, high in itertools.pairwise(bounds)]
            assert self.journal.due_counts([queue], bounds) == {queue: expected}
            assert self.journal.count(queue, bounds[1], bounds[4]) == sum(expected[1:4])
            assert [row.due_ms for row in self.journal.browse(queue)] == sorted(dues)

    def teardown(self) -> None:
        """Closes the connections."""
        if hasattr(self, "journal"):
            self.journal.engine.dispose()


def test_sqlite_is_like_the_model(tmp_path: Path) -> None:
    """Whatever is done to a journal in SQLite, rows and counts are those of a dictionary."""
    model = type("SqliteModel", (Model,), {"url": staticmethod(lambda: f"sqlite:///{tmp_path}/{uuid4().hex}.db")})
    run_state_machine_as_test(model, settings=settings(max_examples=8, **LEAN))


def test_postgres_is_like_the_model(postgres_server: PrivatePostgres) -> None:
    """The same in PostgreSQL, with fewer examples."""
    model = type("PostgresModel", (Model,), {"url": staticmethod(postgres_server.make_schema)})
    run_state_machine_as_test(model, settings=settings(max_examples=3, **LEAN))
