"""``elect.lua``: elects a promoter behind a marker."""

import pytest

from celery_ext.journal.promotion import ALL, Election, Promotion
from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import contents
from tests.support.store.promoting import JOURNAL_ID


def elect(
    store: DelayStore,
    token: int,
    epoch: int,
    heartbeat: int,
    group: str = ALL,
    *,
    anew: bool = False,
    journal: str = JOURNAL_ID,
) -> Election:
    """Begins to lead behind a marker."""
    return store.part(Promotion).elect(journal, token, epoch, heartbeat, [group], anew=anew)[group]


def test_a_marker_is_taken_by_each_promoter_after_the_other(store: DelayStore) -> None:
    """A marker that is missing is written for who says so; then each later token takes it, and follows the journal."""
    assert elect(store, 7, 1, 5) == Election("lost")
    assert contents(store.client) == {}
    assert elect(store, 7, 1, 5, anew=True) == Election("elected")
    assert elect(store, 7, 1, 5).word == "elected"
    assert elect(store, 8, 1, 6) == Election("elected", 7, 1, 5)  # its heartbeat may be one behind
    assert store.part(Promotion).marker() == (JOURNAL_ID, 8, 1, 6, "7")  # the data are those of the first


@pytest.mark.parametrize(
    ("word", "args", "journal", "anew"),
    [
        ("superseded", (6, 2, 5), JOURNAL_ID, "superseded"),
        ("other", (8, 2, 5), "another", "other"),
        ("behind", (8, 2, 7), JOURNAL_ID, "elected"),
        ("behind", (8, 3, 5), JOURNAL_ID, "elected"),
        ("ahead", (8, 1, 5), JOURNAL_ID, "ahead"),
        ("ahead", (8, 2, 4), JOURNAL_ID, "ahead"),
    ],
)
def test_a_marker_that_does_not_agree_is_left_alone(
    store: DelayStore, word: str, args: tuple[int, int, int], journal: str, anew: str
) -> None:
    """The caller learns what the marker says, and only one of an older state of Redis may be written anew."""
    elect(store, 7, 2, 5, anew=True)
    before = contents(store.client)
    assert elect(store, *args, journal=journal) == Election(word, 7, 2, 5)
    assert contents(store.client) == before
    assert elect(store, *args, anew=True, journal=journal) == Election(anew, 7, 2, 5)
    assert (contents(store.client) == before) == (anew != "elected")


def test_the_marker_of_a_queue_may_be_of_an_earlier_epoch(store: DelayStore) -> None:
    """In a cluster an epoch ends for the queues that have lost data, and the others keep their markers."""
    group = store.part(Promotion).group_of("q")
    elect(store, 7, 1, 5, group, anew=True)
    assert elect(store, 8, 2, 5, group) == Election("elected" if group else "behind", 7, 1, 5)
