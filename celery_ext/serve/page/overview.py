"""The overview: whether all is well, what comes due when, and what each queue holds."""

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from math import inf
from time import monotonic
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from celery_ext.doctor import Finding, examine_servers
from celery_ext.features import modules_of
from celery_ext.health import NEARLY_FULL, Level, QueueState, count_queues
from celery_ext.serve.access.identity import Caller, caller_of
from celery_ext.serve.page.chart import bounds, chart, span_of
from celery_ext.serve.page.figures import Fault, health, lasting, number
from celery_ext.serve.page.past import past
from celery_ext.serve.page.rendering import View, render
from celery_ext.serve.service import ServeBroker, serve_of, visible_queues
from kombu_delayq.store import ConsumerLease

#: Rows of the table of queues, and of that of consumers.
ROWS = 25
#: What the page calls what is bad about a server, by the check that has found it.
_OF_SERVERS = {
    "eviction": "Redis may drop messages",
    "memory": "Redis is nearly full",
    "persistence": "Redis does not keep all on disk",
}
#: How often the servers are asked for their memory and their disk, in s.
LOOK_S = 30.0


class ServerFaults:
    """What `delayq doctor` finds bad about the servers. That seldom changes, so they are not asked each time.

    Args:
        broker: The broker of the server.
    """

    def __init__(self, broker: ServeBroker) -> None:
        self._broker = broker
        self._asked_s = -inf
        self._found: list[Fault] = []

    def look(self) -> list[Fault]:
        """Returns it; of the disk only errors, because snapshots alone are what Redis has by default."""
        if monotonic() - self._asked_s > LOOK_S:
            self._asked_s = monotonic()
            with suppress(*self._broker.store.pool.partial_errors):
                found = examine_servers(self._broker.store)
                bad = [one for one in found if one.check != "persistence" or one.level is Level.ERROR]
                self._found = list(map(fault_of, bad))
        return self._found


def fault_of(finding: Finding) -> Fault:
    """Returns what the page says of what the doctor finds about a server."""
    is_bad = finding.check == "memory" and finding.level is Level.ERROR  # tasks are refused, or soon will be
    return Fault(is_bad, _OF_SERVERS.get(finding.check, "Redis is not well"), f"{finding.found}.")


def consumers_of(leases: Iterable[ConsumerLease], caller: Caller) -> list[tuple[ConsumerLease, list[str]]]:
    """Returns the consumers of the queues of a caller, and these queues of each; those that hold most come first."""
    found = [(lease, seen) for lease in leases if (seen := caller.queues_of(lease.queues))]
    # A lease over HTTP is taken before its messages.
    return sorted(found, key=lambda row: (0 if row[0].is_http else -(row[0].held or 0), row[0].name))


class _Shown(NamedTuple):
    """A column of the table of consumers behind their hosts: its name, its class, and its text; a dash for none."""

    text: str
    css: str
    cell: Callable[[ConsumerLease, list[str]], str | None]


_CONSUMERS = (
    _Shown("Process", "n", lambda lease, _: None if lease.is_http else lease.pid),
    _Shown("In hand", "n", lambda lease, _: None if lease.is_http or lease.held is None else number(lease.held)),
    _Shown("Oldest for", "n", lambda lease, _: lasting(lease.held_s) if lease.held and lease.held_s else None),
    _Shown("Consumes", "wide", lambda _, queues: _few(queues)),
)


def _few(queues: list[str]) -> str:
    return ", ".join(queues[:4]) + (f" and {len(queues) - 4} more" if len(queues) > 4 else "")


class _Column(NamedTuple):
    """A column of the table of queues: with a ``key`` it can be sorted by, under the name ``by`` in the address."""

    text: str
    css: str = "n"
    by: str = ""
    key: Callable[[QueueState], Any] | None = None
    largest_first: bool = True


_COLUMNS = (
    _Column("Queue", "name", "queue", lambda row: row.stats.queue, largest_first=False),
    _Column("Due soon", ""),
    _Column("Delayed", by="delayed", key=lambda row: row.stats.delayed),
    _Column("Ready", by="ready", key=lambda row: row.stats.ready),
    _Column("Oldest", by="oldest", key=lambda row: row.stats.oldest_ready_s or 0.0),
    _Column("Overdue", by="overdue", key=lambda row: row.stats.overdue),
    _Column("Unacked", by="unacked", key=lambda row: row.unacked or 0),
    _Column("Next due", "when", "next", lambda row: row.stats.next_due_ms or inf, largest_first=False),
    _Column("Late, median"),
    _Column("Late, 99 %"),
    _Column("Consumers", by="consumers", key=lambda row: row.consumers or 0),
)


def overview(request: Request) -> Response:
    """Answers with the overview."""
    serve, page, given = serve_of(request), View(request, "overview"), request.query_params
    store = serve.store
    cluster = store.nodes()
    store = store.unless_away(store.reading) or store
    span, caller = span_of(request), caller_of(request)
    asked = {name: given.get(name, "").strip()[:200] for name in ("span", "sort", "name")}

    def link(**changed: str) -> str:
        return page.to("", **{**asked, **changed})

    page.now_ms = store.now_ms()
    queues = visible_queues(request, store)
    due = store.unless_away(lambda: store.figures.due_counts(queues, bounds(page.now_ms, span))) or {}
    rows = count_queues(store, queues, cluster)
    known = store.unless_away(store.queues.of_letters) or ()
    buried = caller.queues_of(sorted({*known, *serve.settings.dead_letters}))
    brought = [module.summary(store, buried, page.now_ms) for module in modules_of("pages")]
    leader = store.unless_away(lambda: store.leases.leader() or "")
    servers = serve.broker.part(ServerFaults).look()
    faults = [fault for summary in brought for fault in summary.faults]
    verdict = health(rows, leader, store.beside, cluster, buried, [*faults, *servers])
    shown, by, descending = _sorted(rows, asked["name"].lower(), asked["sort"], [*verdict.troubled])
    first = int(found) if (found := given.get("first", "")).isascii() and found.isdecimal() and len(found) < 7 else 0
    last = min(first + ROWS, len(shown))
    return render(
        "overview.html",
        page,
        health=verdict,
        troubled=verdict.troubled,
        leader=leader,
        standby=store.if_allowed(store.leases.standbys) or [],
        memory=store.memory(),
        nearly_full=NEARLY_FULL,
        chart=chart(span, page.now_ms, due, link, in_parts=True),
        due=due,
        past=past(store, queues, buried, span, page.now_ms),
        queues=shown[first:last],
        asked=asked,
        link=link,
        before=link(first=str(max(first - ROWS, 0) or "")) if first else "",
        more=link(first=str(last)) if last < len(shown) else "",
        shown=f"{number(min(first + 1, len(shown)))} to {number(last)} of {number(len(shown))}",
        columns=_COLUMNS,
        sorted_by=by,
        descending=descending,
        brought=brought,
        consumer_columns=_CONSUMERS,
        consumers=consumers_of(store.if_allowed(store.consumers.all) or (), caller),
        rows=ROWS,
        cluster=cluster,
        on_node=Counter(row.node for row in rows),
    )


def _sorted(
    rows: Iterable[QueueState], name: str, order: str, troubled: list[str]
) -> tuple[list[QueueState], _Column | None, bool]:
    """Returns the queues that the reader wants to see, the column that they are sorted by, and whether it descends.

    Args:
        rows: All queues, by their names.
        name: A part of the names of those wanted, or a pattern with ``*``, in small letters.
        order: A column, with ``.turned`` for the other direction; empty for those first that are in trouble.
        troubled: Their names, the worst first.
    """
    wanted = [row for row in rows if name in row.stats.queue.lower() or fnmatchcase(row.stats.queue.lower(), name)]
    by, _, turned = order.partition(".")
    column = next((column for column in _COLUMNS if column.key and column.by == by), None)
    if column is None:
        places = {queue: place for place, queue in enumerate(troubled)}
        return sorted(wanted, key=lambda row: places.get(row.stats.queue, len(places))), None, False
    descending = column.largest_first is not bool(turned)
    return sorted(wanted, key=column.key, reverse=descending), column, descending
