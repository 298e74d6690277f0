"""The consumers of a broker: what each holds, and since when."""

from collections.abc import Sequence
from typing import NamedTuple

from celery_ext.delays.durations import in_words
from celery_ext.serve.access.identity import Caller
from kombu_delayq.store.types import ConsumerLease

#: Rows of the table, those that hold most; and names of queues in a row.
ROWS, NAMED = 50, 4


class WorkerRow(NamedTuple):
    """What the page shows of a consumer.

    Attributes:
        name: ``host:pid:random``, or that of a consumer over HTTP.
        host: Its host.
        pid: Its process.
        queues: What it consumes, in words.
        held: How many messages it has in hand, as of its latest heartbeat; None if it does not say it.
        since: For how long it has had the oldest of them, in words; empty without any.
        is_gone: Whether its lease has ended, so that what it held goes back.
    """

    name: str
    host: str
    pid: str
    queues: str
    held: int | None
    since: str
    is_gone: bool


def workers(leases: Sequence[ConsumerLease] | None, caller: Caller, queue: str | None = None) -> list[WorkerRow]:
    """Returns the consumers that a caller may see, those first that hold most.

    Args:
        leases: All consumers; None if Redis does not say it.
        caller: Who looks: consumers of none of their queues are left out.
        queue: Only those of this queue; None for all.
    """
    rows = []
    for lease in leases or ():
        seen = caller.queues_of(lease.queues)
        if not seen or (queue is not None and queue not in seen):
            continue
        more = f" and {len(seen) - NAMED} more" if len(seen) > NAMED else ""
        since = "" if lease.held_s is None or not lease.held else in_words(lease.held_s, plain=True)
        host, pid = ("HTTP", "") if lease.is_http else (lease.host, lease.pid)
        held = None if lease.is_http else lease.held  # a lease over HTTP is taken before its messages
        queues = ", ".join(seen[:NAMED]) + more
        rows.append(WorkerRow(lease.name, host, pid, queues, held, since, lease.left_ms <= 0))
    return sorted(rows, key=lambda row: (-(row.held or 0), row.name))
