"""Makes metrics of how the journal is."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from kombu_delayq.connection.text import readable

if TYPE_CHECKING:
    from celery_ext.journal.state import JournalState


def families_of(state: "JournalState") -> Iterator[Metric]:
    """Yields the metrics of a journal. While its database is away, only whether it answers, and who promotes."""
    text = "Whether the database of the journal answered this scrape: 1 or 0."
    yield GaugeMetricFamily("delayq_journal_up", text, value=float(state.error is None))
    text = "Whether a process promotes messages of the journal: 1 or 0. With 0, what waits there is not delivered."
    yield GaugeMetricFamily("delayq_journal_promoter_present", text, value=float(state.promoter is not None))
    if state.error is not None:
        return
    text = "Whether Redis has lost data that is not restored: 1 or 0."
    yield GaugeMetricFamily("delayq_journal_lost", text, value=float(state.has_lost))
    text = "Rows of the journal: waiting (only the journal has the message) or offered (Redis was given it)."
    rows = GaugeMetricFamily("delayq_journal_messages", text, labels=("queue", "state"))
    for word, counts in (("waiting", state.waiting), ("offered", state.offered)):
        for queue, count in counts.items():
            rows.add_metric((readable(queue), word), count)
    yield rows
    text = "For how long the oldest message that should be in Redis by now has been waiting for that."
    yield GaugeMetricFamily("delayq_journal_promotion_lag_seconds", text, value=state.lag_s, unit="seconds")
    text = "How far behind Redis's clock the note is of what has left Redis; absent before the first."
    age = GaugeMetricFamily("delayq_journal_watermark_age_seconds", text, unit="seconds", labels=())
    if state.watermark_age_s is not None:
        age.add_metric((), state.watermark_age_s)
    yield age
    text = "Messages that were promoted from the journal to Redis."
    yield CounterMetricFamily("delayq_journal_promoted_messages", text, value=state.promoted)
    text = "Messages that wait again after a loss of Redis."
    yield CounterMetricFamily("delayq_journal_restored_messages", text, value=state.restored)
    text = "Size of the tables of the journal and their indexes."
    yield GaugeMetricFamily("delayq_journal_size_bytes", text, value=state.size_bytes or 0, unit="bytes")
