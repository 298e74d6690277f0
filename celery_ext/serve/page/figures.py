"""Numbers, durations and times as the page shows them, and what it says of queues with them."""

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC
from math import inf, isfinite
from typing import NamedTuple

from celery_ext.delays import in_words
from celery_ext.health import Level, QueueState, of_leader
from kombu_delayq.message import moment_of
from kombu_delayq.store import Beside, Cluster, Histogram

#: A due time is shown as ``now`` from one bound to the other, s from now: the figures are up to 2 s old.
NOW_S = (-3.0, 0.5)
_BYTES = ("bytes", "kB", "MB", "GB", "TB")
_SHORT = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


class Moment(NamedTuple):
    """A time.

    Attributes:
        iso: In ISO 8601 and UTC; empty for a time beyond the year 9999.
        text: For people, in UTC. The page's script writes it anew in the browser's zone.
        words: How far away it is, such as ``in 3h 12m``.
    """

    iso: str
    text: str
    words: str


def moment(at_ms: float | None, now_ms: float) -> Moment | None:
    """Returns a time as the page shows it; None for None.

    Args:
        at_ms: ms since the epoch.
        now_ms: Redis's clock.
    """
    if at_ms is None:
        return None
    if not isfinite(at_ms):
        return Moment("", "never" if at_ms > 0 else "always", "")
    at, now = moment_of(at_ms).astimezone(UTC), moment_of(now_ms).astimezone(UTC)
    clock = f"{at:%H:%M:%S}"
    if at.date() != now.date():
        clock = f"{at.day} {at:%b}{'' if at.year == now.year else f' {at.year}'}, {at:%H:%M}"
    iso = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Moment(iso, clock, _away((at_ms - now_ms) / 1000))


def _away(seconds: float) -> str:
    return "now" if NOW_S[0] < seconds < NOW_S[1] else in_words(seconds)


def number(count: float) -> str:
    """Returns a whole number with separators: ``1,000,000``."""
    return f"{count:,.0f}"


def size(count: float) -> str:
    """Returns a number of bytes: ``212 MB``."""
    unit = 0
    while count >= 1000 and unit < len(_BYTES) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.0f} {_BYTES[unit]}" if count >= 10 or unit == 0 else f"{count:.1f} {_BYTES[unit]}"


def seconds(value: float) -> str:
    """Returns a short duration: ``4 ms``, ``1.2 s``, ``5 min``."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    length, unit = next((length, unit) for length, unit in _SHORT if value >= length)
    shown = f"{value / length:.1f}".removesuffix(".0")
    return f"{shown} {unit}"


def lasting(value: float) -> str:
    """Returns a duration in s by its two largest units: ``1m 30s``."""
    return in_words(value, plain=True)


def quantile(found: Histogram, part: float) -> str:
    """Returns what a share of all messages, from 0 to 1, had at most; empty without messages."""
    value, bounds = found.quantile(part), found.bounds_s
    if value is None:
        return ""
    return seconds(value) if isfinite(value) else f"> {seconds(bounds[-1])}"


class Fault(NamedTuple):
    """What is not well.

    Attributes:
        is_bad: Whether it is bad, or only deserves a look.
        title: What it is, in a few words.
        text: The same in a sentence.
        queues: Names of the queues that it is about, the worst first.
        badge: What these queues are marked with.
        folder: The folder in which their pages are.
    """

    is_bad: bool
    title: str
    text: str
    queues: tuple[str, ...] = ()
    badge: str = ""
    folder: str = "queues"


class Summary(NamedTuple):
    """What a feature says on the overview.

    Attributes:
        text: What it counts.
        path: Its page.
        total: How many there are.
        faults: What is not well.
    """

    text: str
    path: str
    total: int
    faults: Sequence[Fault] = ()


class Health(NamedTuple):
    """Whether all is well: ``ok``, ``warn`` or ``bad``; the answer in a few words; and what says why."""

    state: str
    title: str
    reasons: list[Fault]

    @property
    def troubled(self) -> dict[str, Fault]:
        """The worst fault of each queue that has one, the worst first."""
        found: dict[str, Fault] = {}
        for fault in self.reasons:
            for queue in fault.queues if fault.folder == "queues" else ():
                found.setdefault(queue, fault)
        return found


def health(
    rows: Sequence[QueueState],
    leader: str | None,
    beside: Beside | None = None,
    cluster: Cluster | None = None,
    letters: Collection[str] = (),
    others: Sequence[Fault] = (),
) -> Health:
    """Judges whether all is well: the worst that was found is the title, and everything found is a reason.

    Args:
        rows: The queues.
        leader: Name of the leading transfer worker; empty if nobody leads, None if the node that knows it is away.
        beside: What keeps messages beside Redis; None without it.
        cluster: The nodes; None on a server without hash slots.
        letters: Names of the queues of dead letters.
        others: What is bad about the servers, and what features bring.
    """
    delayed = sum(row.stats.delayed for row in rows)
    brought = [Fault(*problem) for problem in beside.problems] if beside is not None else []
    found = [
        *_nodes(cluster),
        *(fault for fault in brought if fault.is_bad),
        *_leader(leader, delayed),
        *_overdue(rows),
        *_idle(rows, letters),
        *_waiting(rows, letters),
        *_paused(rows),
        *(fault for fault in brought if not fault.is_bad),
        *others,
        *_unreadable(rows),
    ]
    found.sort(key=lambda fault: not fault.is_bad)  # stable: those of a kind stay in this order
    if not found:
        return Health("ok", "All is well", [Fault(False, "", _calm(rows, delayed))])
    more = f"; {len(found) - 1} more below" if len(found) > 1 else ""
    return Health("bad" if found[0].is_bad else "warn", found[0].title + more, found)


def _nodes(cluster: Cluster | None) -> Iterator[Fault]:
    if cluster is None:
        return
    if cluster.uncovered:
        text = f"No node serves {number(cluster.uncovered)} of the hash slots: queues in them stand still."
        yield Fault(True, "A part of the cluster is away", text)
    for node in cluster.down:
        yield Fault(False, "A node is not well", f"The {node.role} {node.name} is {node.state}.")


def _leader(leader: str | None, delayed: int) -> Iterator[Fault]:
    if leader is None:
        text = "The node is away that knows who leads, and all queues; those of the app are shown. Workers go on."
        yield Fault(False, "Nobody knows who leads", text)
    if leader == "":
        waits = f"{number(delayed)} delayed tasks stay" if delayed else "delayed tasks would stay"
        text = f"No transfer worker leads, so {waits} where they are: start a worker."
        yield Fault(of_leader(leads=False, delayed=delayed) is Level.ERROR, "Nobody transfers", text)


def _overdue(rows: Sequence[QueueState]) -> Iterator[Fault]:
    if late_rows := sorted((row for row in rows if row.of_overdue.is_bad), key=lambda row: -row.stats.overdue_ms):
        worst_s = max(row.stats.overdue_ms for row in late_rows) / 1000
        overdue = sum(row.stats.overdue for row in late_rows)
        by = lasting(worst_s)
        text = f"{number(overdue)} {_tasks(overdue)} overdue in {_named(late_rows)}, the oldest by {by}."
        is_bad = any(row.of_overdue is Level.ERROR for row in late_rows)
        yield Fault(is_bad, f"Tasks of {_named(late_rows)} are overdue", text, _names(late_rows), "overdue")


def _idle(rows: Sequence[QueueState], letters: Collection[str]) -> Iterator[Fault]:
    idle = [row for row in rows if row.of_consumers(is_of_letters=row.stats.queue in letters).is_bad]
    if idle := sorted(idle, key=lambda row: -row.stats.ready):
        work = sum(row.stats.ready + row.stats.overdue for row in idle)
        text = f"{number(work)} {_tasks(work)} ready or due without a consumer in {_named(idle)}."
        yield Fault(False, f"Nobody consumes {_named(idle)}", text, _names(idle), "no consumer")


def _waiting(rows: Sequence[QueueState], letters: Collection[str]) -> Iterator[Fault]:
    slow = [row for row in rows if row.of_waits.is_bad and row.consumers != 0 and row.stats.queue not in letters]
    if slow := sorted(slow, key=lambda row: -(row.stats.oldest_ready_s or 0.0)):
        oldest = lasting(max(row.stats.oldest_ready_s or 0.0 for row in slow))
        text = f"The oldest ready task of {_named(slow)} has been waiting for a worker for {oldest}."
        yield Fault(False, f"Tasks of {_named(slow)} wait for workers", text, _names(slow), "waits long")


def _paused(rows: Sequence[QueueState]) -> Iterator[Fault]:
    if paused := [row for row in rows if row.paused_ms is not None]:
        ready = sum(row.stats.ready for row in paused)
        since = _away(min((row.paused_ms or 0.0) - row.stats.now_ms for row in paused) / 1000)
        text = f"Somebody paused {_named(paused)} {since}: {number(ready)} ready {_tasks(ready)} held there."
        title = f"{_named(paused)} {'is' if len(paused) == 1 else 'are'} paused"
        yield Fault(False, title, text, _names(paused), "paused")


def _unreadable(rows: Sequence[QueueState]) -> Iterator[Fault]:
    if broken := [row for row in rows if row.stats.error]:
        text = f"Redis refuses to count {_named(broken)}: {broken[0].stats.error}"
        yield Fault(False, f"{_named(broken)} cannot be read", text, _names(broken), "unreadable")


def _calm(rows: Sequence[QueueState], delayed: int) -> str:
    if not delayed:
        return "No task waits."
    soon_ms = [row.stats.next_due_ms - row.stats.now_ms for row in rows if row.stats.next_due_ms is not None]
    queues = sum(row.stats.delayed > 0 for row in rows)
    where = f"{number(queues)} queues" if queues > 1 else "one queue"
    said = f"{number(delayed)} delayed {'tasks' if delayed > 1 else 'task'} in {where}"
    first_ms = min(soon_ms, default=inf)
    return f"{said}; the next is due {_away(first_ms / 1000)}." if isfinite(first_ms) else f"{said}."


def _tasks(count: int) -> str:
    return "task is" if count == 1 else "tasks are"


def _names(rows: Sequence[QueueState]) -> tuple[str, ...]:
    return tuple(row.stats.queue for row in rows)


def _named(rows: Sequence[QueueState]) -> str:
    """Returns the name of a queue, or how many there are."""
    return f"“{rows[0].stats.queue}”" if len(rows) == 1 else f"{len(rows)} queues"
