"""``elect_in_queues.lua``: elects a promoter at a queue, where Redis has hash slots."""

import pytest

from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import contents
from tests.support.store.promoting import JOURNAL_ID


def take(
    store: DelayStore, token: int, epoch: int, heartbeat: int, *, anew: bool = False, journal: str = JOURNAL_ID
) -> str:
    """Begins to lead at the queue ``q``."""
    return store.promotion.elect_in_queues(journal, token, epoch, heartbeat, ["q"], anew=anew)["q"]


def test_a_queue_is_taken_by_each_promoter_after_the_other(store: DelayStore) -> None:
    """A queue without a marker is lost until its marker is written; then each later token takes it."""
    assert take(store, 7, 1, 5) == "lost"
    assert take(store, 7, 1, 5, anew=True) == "elected"
    assert take(store, 8, 1, 6) == "elected"
    assert store.promotion.marker("q") == (JOURNAL_ID, 8, 1, 6)


@pytest.mark.parametrize(
    ("word", "args", "journal"),
    [
        ("superseded", (6, 2, 5), JOURNAL_ID),
        ("other", (8, 2, 5), "another"),
        ("behind", (8, 2, 7), JOURNAL_ID),
        ("ahead", (8, 1, 5), JOURNAL_ID),
    ],
)
def test_why_a_queue_is_not_taken(store: DelayStore, word: str, args: tuple[int, int, int], journal: str) -> None:
    """A later token, another journal, an older state of Redis or a loss half noted: nothing changes."""
    take(store, 7, 2, 5, anew=True)
    before = contents(store.client)
    assert take(store, *args, journal=journal) == word
    assert contents(store.client) == before
    assert take(store, *args, anew=True, journal=journal) == ("elected" if word in ("behind", "ahead") else word)
