"""The overview: whether all is well, what comes due when, and the queues."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple

from redis.exceptions import ResponseError
from starlette.requests import Request
from starlette.responses import Response

from celery_ext.connection import look_at_journal
from celery_ext.serve.access.identity import caller_of
from celery_ext.serve.page.chart import SPANS, chart
from celery_ext.serve.page.figures import QueueRow, health, nodes_of
from celery_ext.serve.page.gather import Disk, gather, letters_of
from celery_ext.serve.page.rendering import View, render
from celery_ext.serve.service import serve_of


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
    store, journal = look_at_journal(serve.store)
    span = span_of(request)
    names = set(store.queues.names())
    names.update(serve.broker.app.amqp.queues)
    caller = caller_of(request)
    found = gather(store, caller.queues_of(sorted(names)), span)
    page.now_ms = found.now_ms
    order = request.query_params.get("sort", "")
    links = {name: page.links.to("", span=name, sort=order) for name in SPANS}
    buried = caller.queues_of(sorted({*store.figures.dead_letter_queues(), *serve.settings.dead_letters}))
    has_all = journal is not None and store.options.journal == "all"
    verdict = health(
        found.rows,
        store.leases.leader(),
        _standbys(request),
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


def _standbys(request: Request) -> list[str]:
    try:
        return serve_of(request).store.leases.standbys()
    except ResponseError:
        return []


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
