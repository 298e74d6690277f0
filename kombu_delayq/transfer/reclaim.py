"""Gives back what consumers held whose lease has ended, beside the other work of a leading transfer worker."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Literal, NamedTuple

from kombu.log import get_logger
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from kombu_delayq.message import beyond_delivery_limit, pages, read_note, to_json
from kombu_delayq.store import PAGE, ConsumerLease, DelayStore, Ended, Look, Requeued, consumer_of
from kombu_delayq.text import as_bytes, readable
from kombu_delayq.transfer.dead import HOLDS_S, LOOK_FRACTION, EndedLeases, GoneConsumers

logger = get_logger(__name__)

#: For about so long at a time, in s, the worker gives messages back. Then it delivers until its next look at Redis.
SLICE_S = 0.1


@dataclass
class _Returned:
    """What of a consumer has been given back so far.

    Attributes:
        queues: Number of messages by the queue to which they went.
        buried: Number of messages that went to the dead letters.
        unread: Tags whose notes cannot be read.
    """

    queues: Counter[str] = field(default_factory=Counter)
    buried: int = 0
    unread: set[str] = field(default_factory=set)

    def add(self, other: "_Returned") -> None:
        """Adds what was given back of another slot group."""
        self.queues += other.queues
        self.buried += other.buried
        self.unread |= other.unread


class _Dead(NamedTuple):
    """A consumer that is dead, and the tags of what it holds in one slot group, the first fetched one first."""

    lease: ConsumerLease
    tags: Sequence[str]


#: What has been given back of consumers that are gone, by name.
_Reports = dict[str, tuple[ConsumerLease, _Returned]]


class _OfGroup:
    """Gives back what consumers held in one slot group.

    Args:
        group: Its name, see ``Keys.slot_group``.

    Attributes:
        ended: The consumers whose lease has ended.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self.ended = EndedLeases()
        self._returned: dict[str, _Returned] = {}
        self._errors: dict[str, str] = {}

    def note(self, error: Exception) -> None:
        """Logs an error, unless it is the same as before. On one server raises one that is no refusal."""
        if not (self._group or isinstance(error, ResponseError)):
            raise error
        if self._is_news("", error):
            logger.error("what dead consumers held is not given back: %s", readable(error))

    def note_refusal(self, error: Exception) -> None:
        """Logs, once, that Redis does not say which processes have ended."""
        if self._is_news("gone", error):
            logger.warning("what killed consumers held goes back only when their leases end: %s", readable(error))

    def reclaim(self, store: DelayStore, ended: Sequence[ConsumerLease], reports: _Reports) -> bool:
        """Gives back what consumers held, for about ``SLICE_S``, and adds what of those that are gone to ``reports``.

        Returns False if time was up before it was done.
        """
        begun = monotonic()
        fenced = set(store.consumers.fence([lease.name for lease in ended], self._group))
        tags = store.consumers.tags_of(fenced, self._group)
        searched = monotonic()
        until = searched + max(SLICE_S, searched - begun)  # half of the time at least is for giving back
        dead = [_Dead(lease, tags.get(lease.name, ())) for lease in ended if lease.name in fenced]
        for some in pages(dead, PAGE, PAGE, lambda each: len(each.tags)):
            gone = self._give_back(store, some, until)
            for lease, returned in gone or ():
                reports.setdefault(lease.name, (lease, _Returned()))[1].add(returned)
            if gone is None or monotonic() > until:
                return False
        return True

    def _give_back(
        self, store: DelayStore, dead: Sequence[_Dead], until: float
    ) -> list[tuple[ConsumerLease, _Returned]] | None:
        """Gives back what consumers held, and forgets them. Returns what of which; None if time was up before.

        A consumer of which some messages cannot go back now is not forgotten.
        """
        failed: dict[str, Exception] = {}
        held = [(tag, each) for each in dead for tag in reversed(each.tags)]
        for number, page in enumerate(pages(held, PAGE)):
            if number and monotonic() > until:
                return None
            self._put_back(store, dict(page), failed)
        in_flight = {each.lease.name: [self._group] if self._group else each.lease.queues for each in dead}
        failed |= store.fetching.return_in_flight(in_flight)
        gone = {each.lease.name: each.lease for each in dead if each.lease.name not in failed}
        try:
            store.consumers.leave([*gone], self._group)
        except ResponseError as error:
            failed |= dict.fromkeys(gone, error)
            gone = {}
        for name, why in failed.items():
            if self._is_news(name, why):
                logger.error("some messages of the dead consumer %s stay in hand: %s", *map(readable, (name, why)))
        for name in gone:
            self._errors.pop(name, None)
        return [(lease, self._returned.pop(name, _Returned())) for name, lease in gone.items()]

    def _put_back(self, store: DelayStore, dead: Mapping[str, _Dead], failed: dict[str, Exception]) -> None:
        """Puts a page of messages back, those last that a consumer fetched first, so that these are consumed next.

        Of the messages at their delivery limit only the first of a consumer is buried. All others have come as often
        into the hands of consumers that died, because they were prefetched behind the one that killed these.

        Args:
            store: The store of the broker.
            dead: The consumers by the tags of the messages.
            failed: Gets an error of each consumer of which some messages cannot go back now.
        """
        limit, queue = store.options.delivery_limit, store.options.dead_letter_queue
        back, letters = list[Requeued](), list[Requeued]()
        for held in store.consumers.notes([*dead], self._group):
            note, consumer = read_note(as_bytes(held.note)), dead[held.tag]
            if note is None or note.exchange:
                self._of(consumer).unread.add(held.tag)
            elif limit is not None and note.deaths >= limit and held.tag == consumer.tags[0]:
                letter = beyond_delivery_limit(note.message, note.deaths, consumer.lease.name, queue)
                letters.append(Requeued(held.tag, queue, note.priority, to_json(letter)))
            else:
                back.append(Requeued(held.tag, note.routing_key, note.priority, note.given_back()))
        if letters:
            store.queues.note_dead_letters(queue, len(letters))
        for row in self._requeue(store, back, "next", failed):
            self._of(dead[row.tag]).queues[row.queue] += 1
        for row in self._requeue(store, letters, "last", failed):
            self._of(dead[row.tag]).buried += 1

    def _requeue(
        self, store: DelayStore, rows: list[Requeued], place: Literal["next", "last"], failed: dict[str, Exception]
    ) -> list[Requeued]:
        group, is_next = self._group, place == "next"
        missing, errors = store.fetching.requeue_each(rows, place, redelivers=is_next, fetched_from=group)
        for tag, error in errors.items():
            failed.setdefault(consumer_of(tag), error)
        return [row for row in rows if row.tag not in errors and row.tag not in missing]

    def _of(self, dead: _Dead) -> _Returned:
        return self._returned.setdefault(dead.lease.name, _Returned())

    def _is_news(self, consumer: str, error: Exception) -> bool:
        """Whether this error has not been met with this consumer before."""
        known, self._errors[consumer] = self._errors.get(consumer), str(error)
        return known != str(error)


class Reclaiming:
    """Looks now and then for consumers whose lease has ended, and puts what they held back into its queues.

    The leader does so at once, and its standbys where its own process has ended. Otherwise standbys only look, and step
    in where the leader does not. In a cluster, what one node refuses keeps nothing from going back on the others.
    """

    def __init__(self) -> None:
        self._next_look = -inf
        self._groups: dict[str, _OfGroup] = {}
        self._gone = GoneConsumers()
        self._reports: _Reports = {}  # of what is to be logged when all groups are done
        self._judged: set[str] = set()  # names of gone consumers; reclaiming them removes the names
        self._look: Look | None = None
        self._looked_at = -inf

    def note(self, look: Look | None) -> None:
        """Learns what Redis has just said, so that it need not be asked what that answers; None for nothing."""
        self._look, self._looked_at = look, monotonic()
        self._gone.note(look)

    def wait_s(self) -> float:
        """Returns how long a leader may wait before it calls ``go_on`` again, in s."""
        return max(min(self._next_look - monotonic(), self._gone.wait_s()), 0.0)

    def go_on(self, store: DelayStore, *, leads: bool, leader: str = "") -> None:
        """Looks at the consumers, if it is time, and gives back what can be given back in about ``SLICE_S``.

        Args:
            store: The store of the broker.
            leads: Whether this worker leads.
            leader: Of a standby, the name of the leader. When the leader's process has ended, a standby gives back
                what consumers held that are gone, as the leader does: another one leads only when its lease has ended.
        """
        if leads or leader:
            self._judge(store, leader)
        else:
            self._gone.forget()
        if monotonic() < self._next_look:
            return
        self._next_look = monotonic() + store.options.consumer_ttl * LOOK_FRACTION
        try:
            found = self._ended(store)
        except ResponseError as error:
            self._of("").note(error)
            return
        for group, failure in found.failed.items():
            self._of(group).note(failure)
        dead = self._dead(store, found, leads=leads)
        until = monotonic() + SLICE_S
        for group, leases in dead.items():
            try:
                is_done = self._of(group).reclaim(store, leases, self._reports)
            except (RedisError, OSError) as error:
                self._of(group).note(error)
            else:
                if not is_done or monotonic() > until:
                    self._next_look = -inf
                    return
        for lease, returned in self._reports.values():
            _report(store, lease, returned)
        self._reports.clear()

    def _ended(self, store: DelayStore) -> Ended:
        """Returns the consumers whose lease has ended; Redis is not asked if it has just said that there are none."""
        look, self._look = self._look, None
        if look is None or look.has_ended or self._reports or monotonic() - self._looked_at > HOLDS_S:
            return store.consumers.ended()
        return Ended(look.heads.now_ms, {"": []}, {})

    def _judge(self, store: DelayStore, leader: str) -> None:
        """Ends the leases of consumers whose processes have ended; beside a ``leader`` that lives it only looks."""
        try:
            gone = self._gone.look(store)
        except NoPermissionError as error:
            self._gone.rest()
            self._of("").note_refusal(error)
            return
        if leader and _process(leader) not in {_process(name) for names in gone.values() for name in names}:
            return
        for group, names in gone.items():
            store.consumers.end_leases(names, group)
            self._judged.update(names)
            self._next_look = -inf

    def _dead(self, store: DelayStore, found: Ended, *, leads: bool) -> dict[str, list[ConsumerLease]]:
        """Returns the consumers of each slot group whose messages this worker has to give back now."""
        self._judged.intersection_update(lease.name for leases in found.leases.values() for lease in leases)
        dead = {}
        for group, leases in found.leases.items():
            late = self._of(group).ended.late(store.options, found.now_ms, leases, leads=leads)
            late += [lease for lease in leases if lease.name in self._judged and lease not in late]
            if late:
                dead[group] = late
        return dead

    def _of(self, group: str) -> _OfGroup:
        return self._groups.setdefault(group, _OfGroup(group))


def _process(name: str) -> str:
    """Returns host and number of the process of a consumer or a transfer worker."""
    return name.rpartition(":")[0]


def _report(store: DelayStore, lease: ConsumerLease, returned: _Returned) -> None:
    """Says what became of the messages of a dead consumer."""
    if lease.is_http:
        logger.warning(
            "lease %s of a consumer over HTTP has ended before all of its messages were acknowledged. Of these, %s",
            readable(lease.name),
            "; ".join(_fates(store, returned)) or "nothing was left",
        )
        return
    logger.warning(
        "consumer %s, which was process %s on host %s, is dead or was silent for too long. Of what it held, %s",
        *map(readable, (lease.name, lease.pid, lease.host)),
        "; ".join(_fates(store, returned)) or "nothing was left",
    )


def _fates(store: DelayStore, returned: _Returned) -> Iterator[str]:
    if returned.queues:
        queues = ", ".join(f"{count} to {readable(name)!r}" for name, count in sorted(returned.queues.items()))
        yield f"{returned.queues.total()} went back ({queues})"
    if returned.buried:
        limit, queue = store.options.delivery_limit, store.options.dead_letter_queue
        yield f"{returned.buried} went to the dead letters in {queue!r}, because of delivery_limit={limit}"
    if returned.unread:
        yield f"{len(returned.unread)} cannot be read and stay for `delayq repair`, among them {min(returned.unread)}"
