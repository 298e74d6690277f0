"""Facts about a journal."""

from celery_ext.journal.facts import Watermarks
from celery_ext.journal.journal import Journal


def test_a_journal_has_an_id_of_its_own(journal: Journal, journal_url: str) -> None:
    """The id stays, and all who open the journal see it."""
    assert len(journal.id) == 32
    assert Journal(journal_url).id == journal.id


def test_of_two_who_beat_one_goes_on(journal: Journal) -> None:
    """A heartbeat is raised from the one that the caller knows."""
    assert (journal.heartbeat(), journal.next_heartbeat(), journal.next_heartbeat(1)) == (0, 1, 2)
    assert journal.next_heartbeat(1) is None
    journal.catch_up(10)
    assert journal.next_heartbeat(10) == 11


def test_each_token_is_higher_than_those_before(journal: Journal) -> None:
    """It is Redis's clock in ms, or the next number where that was set back."""
    assert [journal.next_token(least) for least in (5_000_000_000_000, 0, 5_000_000_000_009)] == [
        *(5_000_000_000_000, 5_000_000_000_001, 5_000_000_000_009)
    ]


def test_watermarks_are_replaced_and_lowered(journal: Journal) -> None:
    """A late message lowers the watermark of its queue only, and never raises it."""
    assert journal.watermarks() == Watermarks()
    journal.set_watermarks(5000.0, {"slow": 3000.0})
    journal.lower_watermarks({"slow": 4000.0, "orders": 4500.0, "others": 6000.0})
    assert journal.watermarks() == Watermarks(5000.0, {"slow": 3000.0, "orders": 4500.0})
    journal.set_watermarks(7000.0, {})
    assert journal.watermarks() == Watermarks(7000.0)


def test_an_empty_journal_has_counted_nothing(journal: Journal) -> None:
    """It has a size all the same."""
    *counted, size_bytes = journal.totals()
    assert counted == [0, 0, 0]
    assert size_bytes > 0
    assert journal.next_due() is None
    assert journal.unrestored() == []
