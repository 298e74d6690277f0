"""The overview: whether all is well, what comes due when, and what each queue holds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import inf
from time import monotonic
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from celery_ext.serve.access.identity import caller_of
from celery_ext.serve.counting import allowed, visible_queues
from celery_ext.serve.page.chart import SPANS, chart, span_of
from celery_ext.serve.page.figures import QueueRow, health, nodes_of, number
from celery_ext.serve.page.gathered import gather
from celery_ext.serve.page.past import past
from celery_ext.serve.page.rendering import View, render
from celery_ext.serve.page.workers import workers
from celery_ext.serve.service import ServeBroker, serve_of
from kombu_delayq.message.dead_letters import buried_ms
from kombu_delayq.store import OperatorStore

#: Rows of the table of queues.
ROWS = 50
#: All is not well while the latest dead letter is younger than this, in ms. Who leaves older ones has seen them.
RECENT_MS = 86_400_000
#: How often the servers are asked whether they keep anything on disk, in s.
DISK_S = 30.0


class ServerSettings:
    """Which servers keep nothing on disk, or evict. A setting seldom changes, so the servers are not asked each time.

    Args:
        broker: The broker of the server.
    """

    def __init__(self, broker: ServeBroker) -> None:
        self._broker = broker
        self._asked_s = -inf
        self._missing: list[str] = []
        self._eviction = ""

    @property
    def eviction(self) -> str:
        """Why Redis may evict messages; empty if it does not, or does not tell."""
        self.missing()
        return self._eviction

    def missing(self) -> list[str]:
        """Returns the addresses of servers that have neither an append-only file nor snapshots, as far as they tell."""
        if monotonic() - self._asked_s > DISK_S:
            self._asked_s = monotonic()
            with suppress(*self._broker.store.nodes.errors):
                self._missing = self._look()
                self._eviction = self._broker.store.eviction_warning()
        return self._missing

    def _look(self) -> list[str]:
        servers = self._broker.store.servers
        without_log = [name for name, info in servers.info().items() if info.get("aof_enabled") == 0]
        saves = servers.setting("save") if without_log else {}
        return [name for name in without_log if saves.get(name) == ""]


def letters_of(store: OperatorStore, queues: Iterable[str]) -> tuple[dict[str, int], float]:
    """Returns how many dead letters some queues hold, none of those that cannot be read, and when the latest came.

    The time is in ms since the epoch; ``inf`` where a letter does not say it, or Redis refuses to show the letter; and
    0 without any letter.
    """
    found: dict[str, int] = {}
    latest = 0.0
    for queue in queues:
        with suppress(*store.nodes.errors):
            lists = store.letters.lists(queue)
            found[queue] = sum(lists.values())
            latest = max(latest, *(_latest_ms(store, key, count) for key, count in lists.items()))
    return found, latest


def _latest_ms(store: OperatorStore, key: str, count: int) -> float:
    try:
        letters = store.letters.page(key, count - 1, 1) if count else []
    except store.nodes.errors:
        return inf
    times = [inf if (at_ms := buried_ms(letter)) is None else at_ms for letter in letters]
    return max(times, default=0.0)


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
    _Column("Oldest", "n", lambda row: row.oldest_s or 0.0, "oldest"),
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
    asked = _Asked.of(request.query_params)
    links = {name: page.links.to("", **{**asked.query, "span": name}) for name in SPANS}
    buried = caller.queues_of(sorted({*store.letters.queues(), *serve.settings.dead_letters}))
    has_all = journal is not None and store.options.journal == "all"
    settings = serve.broker.part(ServerSettings)
    letters, latest_ms = letters_of(store, buried)
    verdict = health(
        found.rows,
        store.leases.leader(),
        allowed(store, store.leases.standbys) or [],
        store.memory(),
        journal,
        found.cluster,
        letters,
        [] if has_all else settings.missing(),
        is_recent=found.now_ms - latest_ms < RECENT_MS,
        eviction=settings.eviction,
    )
    shown = _sorted([row for row in found.rows if asked.is_in(row.queue)], asked.sort)
    rows = shown[asked.first : asked.first + ROWS]
    return render(
        "overview.html",
        page,
        health=verdict,
        chart=chart("*", span, found.now_ms, found.due, links),
        past=past(store, [row.queue for row in found.rows], buried, span, found.now_ms),
        queues=rows,
        asked=asked,
        pages=_pages(page, asked, len(shown)),
        columns=_heads(page, asked),
        letters=sum(letters.values()),
        workers=workers(allowed(store, store.consumers.all), caller),
        nodes=nodes_of(found.cluster, found.rows),
    )


@dataclass(frozen=True)
class _Asked:
    """What of the table of queues the reader wants to see, as it stands in the address.

    Attributes:
        span: A key of ``SPANS``; empty for the first.
        sort: A column, with ``.turned`` for the other direction.
        name: A part of the names of the queues, or a pattern with ``*``.
        first: How many queues come before.
    """

    span: str = ""
    sort: str = ""
    name: str = ""
    first: int = 0

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "_Asked":
        first = given.get("first", "")
        return cls(
            given.get("span", ""),
            given.get("sort", ""),
            given.get("name", "").strip()[:200],
            int(first) if first.isascii() and first.isdecimal() and len(first) < 7 else 0,
        )

    def is_in(self, queue: str) -> bool:
        """Whether a queue is wanted."""
        wanted = self.name.lower()
        return wanted in queue.lower() or fnmatchcase(queue.lower(), wanted)

    @property
    def query(self) -> dict[str, str]:
        """The same for a link, which begins with the first queue."""
        return {"span": self.span, "sort": self.sort, "name": self.name}


class _Pages(NamedTuple):
    """The pages of the table: a sentence, and the links to the page before and the next; empty where there is none."""

    text: str
    before: str
    next: str


def _pages(page: View, asked: _Asked, count: int) -> _Pages:
    last = min(asked.first + ROWS, count)

    def link(first: int) -> str:
        return page.links.to("", **asked.query, **({"first": str(first)} if first else {}))

    before = link(max(asked.first - ROWS, 0)) if asked.first else ""
    text = f"{number(min(asked.first + 1, count))} to {number(last)} of {number(count)}"
    return _Pages(text, before, link(last) if last < count else "")


def _sorted(rows: Sequence[QueueRow], order: str) -> list[QueueRow]:
    by, _, turned = order.partition(".")
    for column in _COLUMNS:
        if column.key is not None and column.by == by:
            return sorted(rows, key=column.key, reverse=column.largest_first is not bool(turned))
    return list(rows)


def _heads(page: View, asked: _Asked) -> list[_Head]:
    by, _, turned = (asked.sort or "queue").partition(".")
    heads = []
    for column in _COLUMNS:
        link = sort = ""
        if column.key is not None:
            is_by = column.by == by
            link = page.links.to("", **asked.query | {"sort": column.by + (".turned" if is_by and not turned else "")})
            sort = ("descending" if column.largest_first is not bool(turned) else "ascending") if is_by else ""
        heads.append(_Head(column.text, column.css, sort, link))
    return heads
