"""Facts about a journal."""

from celery_ext.journal.facts import ALIVE_S, LeadingPromoter, Watermarks
from celery_ext.journal.journal import Journal


def test_a_journal_has_an_id_of_its_own(journal: Journal, journal_url: str) -> None:
    """The id stays, and all who open the journal see it."""
    assert len(journal.id) == 32
    assert Journal(journal_url).id == journal.id


def leader(token: int) -> LeadingPromoter:
    """Makes a leader with a token."""
    return LeadingPromoter(token, f"host {token}", "data", "server", "localhost:6379/0")


def test_of_two_who_beat_one_goes_on(journal: Journal) -> None:
    """A heartbeat is raised by who leads, from the one that the caller knows."""
    assert journal.lead(leader(1), None)
    assert (journal.heartbeat(), journal.next_heartbeat(1, 0), journal.next_heartbeat(1, 1)) == (0, 1, 2)
    assert journal.next_heartbeat(1, 1) is None
    journal.catch_up(10)
    assert journal.next_heartbeat(1, 10) == 11
    assert journal.lead(leader(2), leader(1))
    assert (journal.next_heartbeat(1, 11), journal.next_heartbeat(2, 11)) == (None, 12)


def test_of_two_who_take_the_lead_one_is_first(journal: Journal) -> None:
    """Each follows the leader that it knows, and a leader is alive for a while after each heartbeat."""
    assert (journal.leader(), journal.lead(leader(1), None), journal.lead(leader(2), None)) == (None, True, False)
    found = journal.leader()
    assert found is not None
    assert (found._replace(silent_s=0.0), found.is_alive) == (leader(1), True)
    assert found._replace(silent_s=ALIVE_S).is_alive is False
    assert found.silent_s < ALIVE_S / 2


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
