"""How a journal is: what waits in it, whether it is promoted in time, and what Redis has lost."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple, Protocol

from redis.exceptions import RedisError

from celery_ext.delays import in_words
from celery_ext.journal.deadlines import CALL_S, deadline
from celery_ext.journal.errors import JournalRefused, JournalUnavailable
from celery_ext.journal.facts import LeadingPromoter
from celery_ext.journal.journal import Journal
from celery_ext.journal.promotion import ALL, Marker, Promotion
from kombu_delayq.store import Store

#: From which lag promotion counts as behind, in s. A promotion takes much less.
BEHIND_S = 60.0


class StoreOfTwo(Store, Protocol):
    """What the state of a journal is read from: its tables, and Redis's side of it."""

    journal: Journal
    promotion: Promotion


class Loss(NamedTuple):
    """Data that Redis has lost, and that nobody has restored.

    Attributes:
        ended_ms: When the loss was noticed, ms since the epoch.
        messages: How many messages may have to be restored; None if nobody has counted them.
    """

    ended_ms: float
    messages: int | None


class JournalState(NamedTuple):
    """How a journal is.

    Attributes:
        url: Its database, without a password.
        error: Why the database does not answer; None if it does. Then everything below that the tables have is empty.
        promoter: Name of the process that promotes; None if nobody does.
        waiting: By queue, how many messages only the journal has.
        offered: By queue, how many rows it keeps of messages that Redis was given.
        next_promotion_ms: When the next message is promoted, ms since the epoch; None if none waits in the journal.
        lag_s: For how long the oldest message that should be in Redis by now has been waiting for that, s.
        watermark_age_s: How far behind Redis's clock the watermark is, s; None if nobody has noted one.
        losses: What Redis has lost, and nobody has restored.
        fault: What is wrong with Redis that no promoter has noted yet: ``lost`` (Redis has lost the marker),
            ``behind`` (it was set back to an older state), ``other`` (it belongs to another journal) or ``elsewhere``
            (the journal is led from another Redis); else None.
        leader: Who leads from there, in words; None with any other fault.
        promoted: How many messages were promoted.
        restored: How many messages were restored.
        size_bytes: Size of the tables; None where the database does not tell.
        option: The option ``journal``. With ``far`` it has no rows of messages that were published into Redis.
    """

    url: str
    error: str | None
    promoter: str | None
    waiting: Mapping[str, int] = MappingProxyType({})
    offered: Mapping[str, int] = MappingProxyType({})
    next_promotion_ms: float | None = None
    lag_s: float = 0.0
    watermark_age_s: float | None = None
    losses: Sequence[Loss] = ()
    fault: str | None = None
    leader: str | None = None
    promoted: int = 0
    restored: int = 0
    size_bytes: int | None = None
    option: str = "all"

    @property
    def has_lost(self) -> bool:
        """Whether Redis has lost data that nobody has restored."""
        return bool(self.losses) or self.fault in ("lost", "behind")

    @property
    def is_behind(self) -> bool:
        """Whether promotion is later than it ever should be."""
        return self.lag_s >= BEHIND_S

    @property
    def problems(self) -> list[tuple[bool, str, str]]:
        """What is wrong, for people, the worst first: whether it is bad, a title, and a sentence."""
        other = "Redis belongs to another journal, so nothing is promoted: is `journal_url` right?"
        away = "The database of the journal does not answer: what waits there is not shown."
        nobody = "No process promotes from the journal, so what waits there stays: start a worker."
        behind = f"What should be in Redis by now waits in the journal, for {in_words(self.lag_s, plain=True)} so far."
        told = {
            (True, "Redis has lost data", self._lost): self.has_lost,
            (True, "Redis belongs to another journal", other): self.fault == "other",
            (True, "The journal belongs to another Redis", f"Nothing is promoted: {self.leader}."): bool(self.leader),
            (True, "The journal is away", away): self.error is not None,
            (True, "Nobody promotes", nobody): self.promoter is None and self.fault not in ("other", "elsewhere"),
            (False, "Promotion is behind", behind): self.is_behind,
        }
        return [found for found, is_so in told.items() if is_so]

    @property
    def _lost(self) -> str:
        rest = " What an app with `journal` 'far' has published into Redis alone does not come back."
        rest = rest if self.option == "far" else ""
        if not self.losses:
            start = "start one, then run `delayq journal restore`"
            return f"Redis has lost data, and no promoter has noted it yet: {start}.{rest}"
        found = sum(loss.messages or 0 for loss in self.losses)
        tasks = "task is" if found == 1 else "tasks are"
        return f"Redis has lost data, and about {found:,} {tasks} to be restored: run `delayq journal restore`.{rest}"


def state_of(store: StoreOfTwo, *, counted: bool = True) -> JournalState:
    """Looks at the journal of a store. A database that is away is no error here.

    Args:
        store: The store.
        counted: Whether to count what is to be restored, which takes the longer the more it is.

    Raises:
        RedisError, OSError: Redis does not answer.
    """
    journal, promoter = store.journal, store.promotion.promoter()
    try:
        with deadline(CALL_S):
            totals, sizes, moved_to_ms = journal.totals(), journal.sizes(), journal.watermarks().moved_to_ms
            first_ms = journal.next_due()
            epochs = journal.unrestored()
            counts = journal.count_lost() if epochs and counted else None
            losses = [Loss(one.ended_ms, None if counts is None else counts[one.epoch]) for one in epochs]
            if noted_ms := journal.missing_ms():
                losses.append(Loss(noted_ms, journal.count_missing() if counted else None))
    except JournalRefused as error:
        return JournalState(journal.url, error.said, promoter, option=store.options.journal)
    # Behind the table, whose heartbeat comes first.
    leader = leader_elsewhere(journal, store.promotion, totals.heartbeat)
    now_ms, lead_ms = store.now_ms(), store.options.journal_lead * 1000
    fault = "elsewhere" if leader else fault_of(store, totals.heartbeat)
    return JournalState(
        journal.url,
        None,
        promoter,
        waiting={queue: size.waiting for queue, size in sizes.items()},
        offered={queue: size.offered for queue, size in sizes.items()},
        next_promotion_ms=None if first_ms is None else first_ms - lead_ms,
        lag_s=0.0 if first_ms is None else max(now_ms + lead_ms - first_ms, 0.0) / 1000,
        watermark_age_s=max(now_ms - moved_to_ms, 0.0) / 1000 if moved_to_ms else None,
        losses=losses if leader is None else (),  # those are of the other Redis
        fault=fault,
        leader=str(leader) if leader else None,
        promoted=totals.promoted,
        restored=totals.restored,
        size_bytes=totals.size_bytes,
        option=store.options.journal,
    )


def fault_of(store: StoreOfTwo, heartbeat: int | None = None) -> str | None:
    """Returns what is wrong with Redis that no promoter has noted yet; see ``JournalState.fault``.

    Args:
        store: The store.
        heartbeat: The journal's heartbeat, if the caller has read it.

    Raises:
        JournalRefused: The database does not answer.
    """
    journal, promotion = store.journal, store.promotion
    heartbeat = journal.heartbeat() if heartbeat is None else heartbeat  # before the markers
    faults = [marker_fault(promotion.marker(one), journal.id, heartbeat) for one in sorted(journal.marked()) or [ALL]]
    # Before the first heartbeat nobody has promoted, so nobody has written a marker.
    known = ("other", "lost", "behind") if heartbeat else ("other",)
    return next((fault for fault in known if fault in faults), None)


def leader_elsewhere(journal: Journal, promotion: Promotion, heartbeat: int = 0) -> LeadingPromoter | None:
    """Returns who leads the journal from another Redis, or with another key prefix, and is alive; None if nobody does.

    Args:
        journal: The tables.
        promotion: Redis's side of them.
        heartbeat: The journal's heartbeat, which tells an older copy of the Redis from it.

    Raises:
        JournalRefused: The database does not answer.
    """
    led = journal.leader()
    if led is None or not led.is_alive:
        return None
    marker = promotion.marker()
    if marker is not None and marker.redis == led.redis and marker.heartbeat >= heartbeat - 1:
        return None
    own = LeadingPromoter(0, "nobody", "", promotion.server(), promotion.place())
    return None if own.has_place_of(led) else led


def refuse_elsewhere(journal: Journal, promotion: Promotion) -> None:
    """Raises JournalUnavailable if the journal is led from another Redis: its messages are those of that one."""
    leader = None
    with suppress(RedisError, OSError):  # of a Redis that is away nobody knows
        leader = leader_elsewhere(journal, promotion)
    if leader is not None:
        raise JournalUnavailable(str(leader))


def marker_fault(marker: Marker | None, journal: str, heartbeat: int) -> str | None:
    """Returns what is wrong beside a marker, by the id and the heartbeat of the journal."""
    if marker is None:
        return "lost"
    if marker.id != journal:
        return "other"
    return "behind" if marker.heartbeat < heartbeat - 1 else None
