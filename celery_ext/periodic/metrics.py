"""The metrics of periodic entries."""

from collections.abc import Callable, Iterator

from celery_ext.periodic.control import list_entries
from celery_ext.periodic.store import PeriodicStore
from celery_ext.serve.exposition import Family, gauge
from kombu_delayq.store import DelayStore

#: What a log says is left out where Redis refuses to read it.
WHAT = "periodic entries"


def families(store: DelayStore, may_see: Callable[[str], bool]) -> Iterator[Family]:
    """Yields the metrics of the entries that are sent to queues which the caller may see; none without entries.

    Args:
        store: What ``reading`` has returned.
        may_see: Whether the caller may see a queue.
    """
    entries = [entry for entry in list_entries(store) if all(map(may_see, entry.queues))]
    if not entries:
        return
    now_ms, arms = store.now_ms(), store.if_allowed(store.part(PeriodicStore).leader) is not None
    text = "Whether a process arms periodic entries: 1 or 0. With 0, entries end after the runs that are armed."
    yield gauge("delayq_periodic_armer_present", text, (), {(): float(arms)})
    text = "How long ago the last run of a periodic entry was sent to its queue; absent before the first."
    since_s = {entry.name: (now_ms - entry.last_ms) / 1000 for entry in entries if entry.last_ms is not None}
    yield gauge("delayq_periodic_since_last_run_seconds", text, ["entry"], since_s, "seconds")
    text = "How soon the next run of a periodic entry is due; below 0 when it is overdue, absent while none is armed."
    until_s = {entry.name: (entry.next_ms - now_ms) / 1000 for entry in entries if entry.next_ms is not None}
    yield gauge("delayq_periodic_until_next_run_seconds", text, ["entry"], until_s, "seconds")
    text = (
        "1 for a periodic entry that cannot be sent; the log of the worker that arms, and `delayq periodic`, say why."
    )
    yield gauge("delayq_periodic_wrong", text, ["entry"], {entry.name: entry.state == "wrong" for entry in entries})
