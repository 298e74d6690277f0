"""The overview: whether all is well, what comes due when, and what each queue holds."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from celery_ext.serve.access.identity import caller_of
from celery_ext.serve.counting import QueueState, allowed, count_queues, visible_queues
from celery_ext.serve.page.chart import SPANS, bounds, chart, small_bars
from celery_ext.serve.page.figures import QueueRow, health, late, moment, nodes_of, number
from celery_ext.serve.page.rendering import View, render
from celery_ext.serve.service import ServeBroker, serve_of
from kombu_delayq.store import OperatorStore
from kombu_delayq.store.nodes import Cluster

#: How often the servers are asked whether they keep anything on disk, in s.
DISK_S = 30.0


@dataclass(frozen=True)
class Gathered:
    """The figures of some queues.

    Attributes:
        now_ms: Redis's clock, ms since the epoch.
        rows: What the page shows of each queue.
        due: How many messages of each queue come due when: counts of ``chart.bounds``.
        cluster: The nodes; None on a server without hash slots.
    """

    now_ms: float
    rows: list[QueueRow]
    due: dict[str, list[int]]
    cluster: Cluster | None = None


def gather(store: OperatorStore, queues: Sequence[str], span: str) -> Gathered:
    """Reads the figures of queues.

    Args:
        store: The broker's store.
        queues: Their names.
        span: A key of ``chart.SPANS``.
    """
    cluster = store.nodes.overview()
    now_ms = store.now_ms()
    due = store.figures.due_counts(queues, bounds(now_ms, span))
    rows = [_row(state, due.get(state.stats.queue, [])) for state in count_queues(store, queues, cluster)]
    return Gathered(now_ms, rows, due, cluster)


class Disk:
    """Which servers keep nothing on disk. A setting seldom changes, so the servers are not asked each time.

    Args:
        broker: The broker of the server.
    """

    def __init__(self, broker: ServeBroker) -> None:
        self._broker = broker
        self._asked_s = -inf
        self._missing: list[str] = []

    def missing(self) -> list[str]:
        """Returns the addresses of servers that have neither an append-only file nor snapshots, as far as they tell."""
        if monotonic() - self._asked_s > DISK_S:
            self._asked_s = monotonic()
            with suppress(*self._broker.store.nodes.errors):
                self._missing = self._look()
        return self._missing

    def _look(self) -> list[str]:
        servers = self._broker.store.servers
        without_log = [name for name, info in servers.info().items() if info.get("aof_enabled") == 0]
        saves = servers.setting("save") if without_log else {}
        return [name for name in without_log if saves.get(name) == ""]


def letters_of(store: OperatorStore, queues: Iterable[str]) -> dict[str, int]:
    """Returns how many dead letters some queues hold; none of those that cannot be read."""
    found: dict[str, int] = {}
    for queue in queues:
        with suppress(*store.nodes.errors):
            found[queue] = sum(store.letters.lists(queue).values())
    return found


def _row(state: QueueState, due: Sequence[int]) -> QueueRow:
    stats, counts = state.stats, state.counts
    held_back = counts.holding(stats)
    p50, p99 = (late(counts.lateness.quantile(share)) for share in (0.5, 0.99))
    return QueueRow(
        stats.queue,
        stats.delayed,
        stats.ready,
        stats.overdue,
        stats.overdue_ms / 1000 if stats.overdue else 0.0,
        state.unacked,
        moment(stats.next_due_ms, stats.now_ms),
        p50,
        p99,
        state.consumers,
        held_back=f"held back by its rate, {number(stats.overdue)} wait, at {held_back.per_s:g}/s" if held_back else "",
        held_until=moment(held_back.clear_ms(stats.now_ms, stats.overdue), stats.now_ms) if held_back else None,
        too_late=", ".join(f"{number(count)} {what}" for what, count in counts.too_late.items() if count),
        paused=moment(state.paused_ms, stats.now_ms),
        error=stats.error,
        bars=small_bars(due),
        bars_text=f"{sum(due[1:-1]):,} come due in the time of the chart",
        in_journal=stats.in_journal,
        slot=state.slot,
        node=state.node,
    )


class _Column(NamedTuple):
    text: str
    css: str
    key: Callable[[QueueRow], Any] | None
    by: str
    largest_first: bool = True


_COLUMNS = (
    _Column("Queue", "name", lambda row: row.queue, "queue", largest_first=False),
    _Column("Due soon", "", None, ""),
    _Column("Delayed", "n", lambda row: row.delayed, "delayed"),
    _Column("Ready", "n", lambda row: row.ready, "ready"),
    _Column("Overdue", "n", lambda row: row.overdue, "overdue"),
    _Column("Unacked", "n", lambda row: row.unacked or 0, "unacked"),
    _Column("Next due", "when", lambda row: row.next_due.ms if row.next_due else inf, "next", largest_first=False),
    _Column("Late, median", "n", None, ""),
    _Column("Late, 99 %", "n", None, ""),
    _Column("Consumers", "n", lambda row: row.consumers or 0, "consumers"),
)


class _Head(NamedTuple):
    """The head of a column: ``sort`` is its ``aria-sort``."""

    text: str
    css: str
    sort: str
    link: str


def overview(request: Request) -> Response:
    """Answers with the overview."""
    serve, page = serve_of(request), View(request, "overview")
    store, journal = serve.store.look_at_journal()
    span = span_of(request)
    caller = caller_of(request)
    found = gather(store, visible_queues(request, store), span)
    page.now_ms = found.now_ms
    order = request.query_params.get("sort", "")
    links = {name: page.links.to("", span=name, sort=order) for name in SPANS}
    buried = caller.queues_of(sorted({*store.figures.dead_letter_queues(), *serve.settings.dead_letters}))
    has_all = journal is not None and store.options.journal == "all"
    verdict = health(
        found.rows,
        store.leases.leader(),
        allowed(store, store.leases.standbys) or [],
        store.memory(),
        journal,
        found.cluster,
        letters_of(store, buried),
        [] if has_all else serve.broker.part(Disk).missing(),
    )
    return render(
        "overview.html",
        page,
        health=verdict,
        chart=chart("*", span, found.now_ms, found.due, links),
        queues=_sorted(found.rows, order),
        columns=_heads(page, span, order),
        nodes=nodes_of(found.cluster, found.rows),
    )


def span_of(request: Request) -> str:
    """Returns the span that the chart shows, a key of ``SPANS``."""
    span = request.query_params.get("span", "")
    return span if span in SPANS else "hour"


def _sorted(rows: Sequence[QueueRow], order: str) -> list[QueueRow]:
    by, _, turned = order.partition(".")
    for column in _COLUMNS:
        if column.key is not None and column.by == by:
            return sorted(rows, key=column.key, reverse=column.largest_first is not bool(turned))
    return list(rows)


def _heads(page: View, span: str, order: str) -> list[_Head]:
    by, _, turned = (order or "queue").partition(".")
    heads = []
    for column in _COLUMNS:
        link = sort = ""
        if column.key is not None:
            is_by = column.by == by
            link = page.links.to("", span=span, sort=column.by + (".turned" if is_by and not turned else ""))
            sort = ("descending" if column.largest_first is not bool(turned) else "ascending") if is_by else ""
        heads.append(_Head(column.text, column.css, sort, link))
    return heads
