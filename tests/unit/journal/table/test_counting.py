"""Counts are exact, however they are added up."""

from math import inf

from celery_ext.journal.counts import fold
from celery_ext.journal.journal import Journal
from tests.support.journal.additions import DUE_MS, addition

HOUR_MS = 3_600_000.0


def test_boundaries_divide_a_queue(journal: Journal) -> None:
    """The due time at a rank of a selection is that of the row at this rank."""
    dues = [DUE_MS + step * 600_000 + 1 for step in range(60)]
    journal.add([addition(number, due_ms) for number, due_ms in enumerate(dues)])
    assert journal.boundaries("orders", [0, 59, 20, 60]) == [dues[0], dues[59], dues[20], inf]
    selected = [due_ms for due_ms in dues if dues[7] <= due_ms < dues[30]]
    assert journal.boundaries("orders", [0, 5, 22, 23], dues[7], dues[30]) == [
        selected[0],
        selected[5],
        selected[22],
        inf,
    ]
    assert journal.boundaries("none", [0]) == [inf]


def test_changes_are_added_up(journal: Journal) -> None:
    """Adding up changes no count, and leaves no rows for hours without messages."""
    journal.add([addition(number, DUE_MS + number * HOUR_MS) for number in range(5)])
    journal.delete(["id-0"])
    before = journal.sizes()
    with journal.engine.begin() as connection:
        fold(connection)
        left = connection.exec_driver_sql("SELECT count(*) FROM delayq_counts").scalar()
        changes = connection.exec_driver_sql("SELECT count(*) FROM delayq_count_changes").scalar()
    assert (left, changes) == (4, 0)
    assert journal.sizes() == before == {"orders": (4, 0)}


def test_the_first_due_time_is_found(journal: Journal) -> None:
    """``next_due`` tells when the first waiting row is due, of a queue or of all."""
    assert journal.next_due() is None
    journal.add([addition(2), addition(1, queue="others")])
    journal.add([addition(0)], offered=True)
    assert journal.next_due() == DUE_MS + 1000
    assert journal.next_due("orders") == DUE_MS + 2000
