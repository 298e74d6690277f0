"""Numbers, durations and times as the page shows them, and what it says of queues with them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from celery_ext.delays.durations import in_words
from celery_ext.serve.page.chart import Bars
from kombu_delayq.message.due import moment_of
from kombu_delayq.store.counts import LATENESS_BOUNDS_S
from kombu_delayq.store.nodes import Cluster
from kombu_delayq.store.types import Memory

if TYPE_CHECKING:
    from celery_ext.journal import JournalState

#: How late the oldest overdue message of a queue may be before the page says so, in s. Transfers are faster than that.
LATE_S = 5.0
#: From how many s on the page says that ready messages wait for long.
WAITS_S = 300.0
#: Shares of Redis's memory limit from which the page warns, and from which all is not well.
FULL, OVERFULL = 0.8, 0.95

#: A due time is shown as ``now`` from one bound to the other, s from now: the figures are up to 2 s old.
NOW_S = (-3.0, 0.5)
_BYTES = ("bytes", "kB", "MB", "GB", "TB")
_SHORT = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


@dataclass(frozen=True)
class Moment:
    """A time.

    Attributes:
        ms: ms since the epoch.
        iso: In ISO 8601 and UTC; empty for a time beyond the year 9999.
        text: For people, in UTC. The page's script writes it anew in the browser's zone.
        words: How far away it is, such as ``in 3h 12m``.
    """

    ms: float
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
        return Moment(at_ms, "", "never" if at_ms > 0 else "always", "")
    at, now = moment_of(at_ms).astimezone(UTC), moment_of(now_ms).astimezone(UTC)
    clock = f"{at:%H:%M:%S}"
    if at.date() != now.date():
        clock = f"{at.day} {at:%b}{'' if at.year == now.year else f' {at.year}'}, {at:%H:%M}"
    iso = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Moment(at_ms, iso, clock, _away((at_ms - now_ms) / 1000))


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


def late(value: float | None, most: float = LATENESS_BOUNDS_S[-1]) -> str:
    """Returns a lateness, or another quantile in s, as the page shows it; empty if there is none yet.

    Args:
        value: The quantile.
        most: The last bound, beyond which it is not known.
    """
    if value is None:
        return ""
    return seconds(value) if isfinite(value) else f"> {seconds(most)}"


@dataclass(frozen=True)
class QueueRow:
    """What the page shows of a queue.

    Attributes:
        queue: Its name.
        delayed: Number of messages that wait for their due time.
        ready: Number of messages that wait for a consumer.
        overdue: Number of delayed messages whose due time is past.
        overdue_by_s: For how long the oldest of them has been due, s.
        unacked: Number of messages in the hands of consumers; None if Redis does not say it.
        next_due: When the next message is due.
        p50: Median lateness.
        p99: Lateness of which 99 % are no larger.
        consumers: Number of consumers that live; None if Redis does not say it.
        waited_p50: Median of how long messages waited for a consumer; empty if none did.
        waited_p99: The time that 99 % waited at most.
        held_back: What holds overdue messages back, in words; empty if nothing does.
        held_until: About when as many have left as are overdue now; None if none is held back.
        too_late: What became of messages that were too late, in words; empty if none was.
        paused: Since when it is paused; None if it is not.
        oldest_s: For how long the oldest ready message has been waiting, s; 0 if none is ready, None if unknown.
        error: Why Redis refuses to count the queue; empty if it does not.
        bars: What comes due, as bars.
        bars_text: The same in words.
        in_journal: How many of the delayed messages only the journal has.
        slot: Its hash slot; None on a server without slots.
        node: The node that serves the slot; None if nobody does, or it is not known.
    """

    queue: str
    delayed: int
    ready: int
    overdue: int
    overdue_by_s: float
    unacked: int | None
    next_due: Moment | None
    p50: str
    p99: str
    consumers: int | None
    waited_p50: str = ""
    waited_p99: str = ""
    held_back: str = ""
    held_until: Moment | None = None
    too_late: str = ""
    paused: Moment | None = None
    oldest_s: float | None = 0.0
    error: str = ""
    bars: Bars | None = None
    bars_text: str = ""
    in_journal: int = 0
    slot: int | None = None
    node: str | None = None

    @property
    def is_late(self) -> bool:
        """Whether a message is overdue for so long that somebody should look."""
        return not self.held_back and self.overdue > 0 and self.overdue_by_s >= LATE_S

    @property
    def oldest(self) -> str:
        """For how long the oldest ready message has been waiting, in words; empty where nobody knows."""
        return in_words(self.oldest_s, plain=True) if self.ready and self.oldest_s is not None else ""

    @property
    def waits_long(self) -> bool:
        """Whether ready messages wait for so long that somebody should look."""
        return self.ready > 0 and not self.paused and (self.oldest_s or 0.0) >= WAITS_S

    @property
    def overdue_by(self) -> str:
        """For how long the oldest overdue message has been due, in words."""
        return in_words(self.overdue_by_s, plain=True)


@dataclass(frozen=True)
class Health:
    """Whether all is well.

    Attributes:
        state: ``ok``, ``warn`` or ``bad``.
        title: The answer, a few words.
        reasons: Sentences that say why.
        leader: Name of the leading transfer worker; None if nobody leads.
        standby: Names of those that lead next.
        memory: Redis's memory.
    """

    state: str
    title: str
    reasons: list[str]
    leader: str | None
    standby: list[str]
    memory: Memory

    @property
    def memory_percent(self) -> float | None:
        """How much of its limit Redis uses, 0 to 100; None without a limit."""
        return None if self.memory.share is None else round(min(100 * self.memory.share, 100), 1)

    @property
    def memory_text(self) -> str:
        """Memory in use; ``unknown`` if Redis hides it."""
        return size(self.memory.used) if self.memory.used else "unknown"

    @property
    def memory_limit(self) -> str:
        """The limit in words."""
        return f"of {size(self.memory.limit)}" if self.memory.limit else "no limit"


def health(
    rows: Sequence[QueueRow],
    leader: str | None,
    standby: Sequence[str],
    memory: Memory,
    journal: "JournalState | None" = None,
    cluster: Cluster | None = None,
    letters: Mapping[str, int] = MappingProxyType({}),
    without_disk: Sequence[str] = (),
    *,
    is_recent: bool = True,
    eviction: str = "",
) -> Health:
    """Judges whether all is well: the worst that was found is the title, and everything found is a reason.

    Args:
        rows: The queues.
        leader: Name of the leading transfer worker; None if nobody leads.
        standby: Names of those that lead next.
        memory: Redis's memory.
        journal: The journal; None without one.
        cluster: The nodes; None on a server without hash slots.
        letters: How many dead letters each queue of them has.
        without_disk: Addresses of the servers that keep nothing on disk.
        is_recent: Whether the latest dead letter came within a day.
        eviction: Why Redis may evict messages; empty if it does not.
    """
    delayed = sum(row.delayed for row in rows)
    found = [
        *_nodes(cluster),
        *(_Fault(True, *problem) for problem in (journal.problems if journal else [])),
        *_leader(leader, delayed),
        *_overdue(rows),
        *_idle(rows, letters),
        *_waiting(rows, letters),
        *_paused(rows),
        *_memory(memory),
        *_promotion(journal),
        *(_dead(letters) if is_recent else ()),
        *_without_disk(without_disk),
        *([_Fault(False, "Redis may drop messages", f"{eviction}.")] if eviction else []),
        *_unreadable(rows),
    ]
    found.sort(key=lambda fault: not fault.is_bad)  # stable: those of a kind stay in this order
    state, title, reasons = "ok", "All is well", [_calm(rows, delayed)]
    if found:
        state, title = "bad" if found[0].is_bad else "warn", found[0].title + (", and more" if len(found) > 1 else "")
        reasons = [fault.text for fault in found]
    return Health(state, title, reasons, leader, list(standby), memory)


class _Fault(NamedTuple):
    """What is not well: whether it is bad, or only deserves a look; a title; and a sentence."""

    is_bad: bool
    title: str
    text: str


def _nodes(cluster: Cluster | None) -> Iterator[_Fault]:
    if cluster is None:
        return
    if cluster.uncovered:
        text = f"No node serves {number(cluster.uncovered)} of the hash slots: queues in them stand still."
        yield _Fault(True, "A part of the cluster is away", text)
    for node in cluster.down:
        yield _Fault(False, "A node is not well", f"The {node.role} {node.name} is {node.state}.")


def _leader(leader: str | None, delayed: int) -> Iterator[_Fault]:
    if leader is None:
        waits = f"{number(delayed)} delayed tasks stay" if delayed else "delayed tasks would stay"
        text = f"No transfer worker leads, so {waits} where they are: start a worker."
        yield _Fault(True, "Nobody transfers", text)


def _overdue(rows: Sequence[QueueRow]) -> Iterator[_Fault]:
    if late_rows := [row for row in rows if row.is_late]:
        worst = max(late_rows, key=lambda row: row.overdue_by_s)
        overdue = sum(row.overdue for row in late_rows)
        text = f"{number(overdue)} {_tasks(overdue)} overdue in {_named(late_rows)}, the oldest by {worst.overdue_by}."
        yield _Fault(worst.overdue_by_s >= 60, "Tasks are overdue", text)


def _idle(rows: Sequence[QueueRow], letters: Mapping[str, int]) -> Iterator[_Fault]:
    if idle := [row for row in rows if row.ready and row.consumers == 0 and row.queue not in letters]:
        ready = sum(row.ready for row in idle)
        text = f"{number(ready)} ready {_tasks(ready)} without a consumer in {_named(idle)}."
        yield _Fault(False, "Nobody consumes", text)


def _waiting(rows: Sequence[QueueRow], letters: Mapping[str, int]) -> Iterator[_Fault]:
    if slow := [row for row in rows if row.waits_long and row.consumers != 0 and row.queue not in letters]:
        worst = max(slow, key=lambda row: row.oldest_s or 0.0)
        text = f"The oldest ready task of {_named(slow)} has been waiting for a worker for {worst.oldest}."
        yield _Fault(False, "Tasks wait for workers", text)


def _paused(rows: Sequence[QueueRow]) -> Iterator[_Fault]:
    if paused := [row for row in rows if row.paused]:
        ready = sum(row.ready for row in paused)
        first = min((row.paused for row in paused if row.paused), key=lambda since: since.ms)
        text = f"Somebody paused {_named(paused)} {first.words}: {number(ready)} ready {_tasks(ready)} held there."
        title = "A queue is paused" if len(paused) == 1 else "Queues are paused"
        yield _Fault(False, title, text)


def _memory(memory: Memory) -> Iterator[_Fault]:
    if (share := memory.share) is not None and share >= FULL:
        text = f"Redis uses {share:.0%} of its memory limit; beyond it, it refuses tasks."
        yield _Fault(share >= OVERFULL, "Redis is nearly full", text)


def _promotion(journal: "JournalState | None") -> Iterator[_Fault]:
    if journal is not None and journal.is_behind:
        text = f"What should be in Redis by now waits in the journal, for {in_words(journal.lag_s, plain=True)} so far."
        yield _Fault(False, "Promotion is behind", text)


def _dead(letters: Mapping[str, int]) -> Iterator[_Fault]:
    held = {queue: count for queue, count in letters.items() if count}
    if count := sum(held.values()):
        letter = "dead letter waits" if count == 1 else "dead letters wait"
        where = f"“{next(iter(held))}”" if len(held) == 1 else f"{len(held)} queues"
        text = f"{number(count)} {letter} in {where}: tasks that failed for good, to be replayed or dropped."
        yield _Fault(False, "Tasks have failed for good", text)


def _without_disk(servers: Sequence[str]) -> Iterator[_Fault]:
    if servers:
        which = "Redis keeps" if len(servers) == 1 else f"{len(servers)} nodes of Redis keep"
        text = f"{which} nothing on disk: a restart loses all that waits."
        yield _Fault(False, "Redis keeps nothing on disk", text)


def _unreadable(rows: Sequence[QueueRow]) -> Iterator[_Fault]:
    if broken := [row for row in rows if row.error]:
        text = f"Redis refuses to count {_named(broken)}: {broken[0].error}"
        yield _Fault(False, "A queue cannot be read", text)


def _calm(rows: Sequence[QueueRow], delayed: int) -> str:
    if not delayed:
        return "No task waits."
    heads = [row.next_due for row in rows if row.next_due is not None]
    first = min(heads, key=lambda head: head.ms, default=None)
    queues = sum(row.delayed > 0 for row in rows)
    where = f"{number(queues)} queues" if queues > 1 else "one queue"
    said = f"{number(delayed)} delayed {'tasks' if delayed > 1 else 'task'} in {where}"
    return f"{said}; the next is due {first.words}." if first and first.words else f"{said}."


def _tasks(count: int) -> str:
    return "task is" if count == 1 else "tasks are"


def _named(rows: Sequence[QueueRow]) -> str:
    """Returns the name of a queue, or how many there are."""
    return f"“{rows[0].queue}”" if len(rows) == 1 else f"{len(rows)} queues"


class NodeRow(NamedTuple):
    """What the page shows of a node.

    Attributes:
        name: Its address.
        role: Its role, in words.
        slots: Number of its hash slots; None for a replica.
        queues: Number of queues on it; None for a replica.
        memory: Its memory in words; empty if it is not known.
        behind: How far a replica is behind its primary; empty if that is not known.
        state: How it is.
        is_well: Whether it serves as it should.
    """

    name: str
    role: str
    slots: int | None
    queues: int | None
    memory: str
    behind: str
    state: str
    is_well: bool


def nodes_of(cluster: Cluster | None, queues: Sequence[QueueRow]) -> list[NodeRow]:
    """Returns the rows of a cluster's nodes; none on a server without hash slots."""
    if cluster is None:
        return []
    down, living = (
        {node.id for node in cluster.down},
        Counter(row.node for row in queues),
    )
    return [
        NodeRow(
            node.name,
            f"replica of {node.primary}" if node.primary else node.role,
            None if node.primary else node.count,
            None if node.primary else living[node.name],
            "" if node.memory is None else size(node.memory.used),
            "" if node.lag_bytes is None else size(node.lag_bytes),
            node.state + (f", {node.moving:,} slots on their way" if node.moving else ""),
            node.id not in down,
        )
        for node in cluster.nodes
    ]
