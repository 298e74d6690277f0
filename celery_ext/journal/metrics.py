"""The metrics of the journal."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

from celery_ext.serve.exposition import Family, counter, gauge
from kombu_delayq.store import DelayStore

if TYPE_CHECKING:
    from celery_ext.journal.state import JournalState

#: What a log says is left out where Redis refuses to read it.
WHAT = "the journal"


def families(store: DelayStore, may_see: Callable[[str], bool]) -> Iterator[Family]:
    """Yields the metrics of a journal; none of a store without one.

    While its database is away, these say only whether it answers, and who promotes.

    Args:
        store: What ``reading`` has returned.
        may_see: Whether the caller may see a queue.
    """
    if store.beside is None:
        return
    state = cast("JournalState", store.beside)
    text = "Whether the database of the journal answered this scrape: 1 or 0."
    yield gauge("delayq_journal_up", text, (), {(): float(state.error is None)})
    text = "Whether a process promotes messages of the journal: 1 or 0. With 0, what waits there is not delivered."
    yield gauge("delayq_journal_promoter_present", text, (), {(): float(state.promoter is not None)})
    if state.error is not None:
        return
    text = "Whether Redis has lost data that is not restored: 1 or 0."
    yield gauge("delayq_journal_lost", text, (), {(): float(state.has_lost)})
    text = "Rows of the journal: waiting (only the journal has the message) or offered (Redis was given it)."
    rows = {
        (queue, word): count
        for word, counts in (("waiting", state.waiting), ("offered", state.offered))
        for queue, count in counts.items()
        if may_see(queue)
    }
    yield gauge("delayq_journal_messages", text, ("queue", "state"), rows)
    text = "For how long the oldest message that should be in Redis by now has been waiting for that."
    yield gauge("delayq_journal_promotion_lag_seconds", text, (), {(): state.lag_s}, "seconds")
    text = "How far behind Redis's clock the note is of what has left Redis; absent before the first."
    age = {} if state.watermark_age_s is None else {(): state.watermark_age_s}
    yield gauge("delayq_journal_watermark_age_seconds", text, (), age, "seconds")
    text = "Messages that were promoted from the journal to Redis."
    yield counter("delayq_journal_promoted_messages", text, (), {(): state.promoted})
    text = "Messages that wait again after a loss of Redis."
    yield counter("delayq_journal_restored_messages", text, (), {(): state.restored})
    text = "Size of the tables of the journal and their indexes."
    yield gauge("delayq_journal_size_bytes", text, (), {(): state.size_bytes or 0}, "bytes")
