"""Gives back what consumers held whose lease has ended, beside the other work of a leading transfer worker."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from time import monotonic

from kombu.log import get_logger
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from kombu_delayq.message import beyond_delivery_limit, pages, read_note, to_json
from kombu_delayq.store import PAGE, ConsumerLease, DelayStore, Ended, Look, Requeued
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
        for lease in ended:
            if lease.name not in fenced:
                continue
            try:
                returned = self._give_back(store, lease, tags.get(lease.name, ()), until)
                if returned is not None:
                    reports.setdefault(lease.name, (lease, _Returned()))[1].add(returned)
                if returned is None or monotonic() > until:
                    return False
            except ResponseError as error:
                if self._is_news(lease.name, error):
                    logger.error(
                        "some messages of the dead consumer %s stay in hand: %s", *map(readable, (lease.name, error))
                    )
        return True

    def _give_back(
        self, store: DelayStore, lease: ConsumerLease, tags: Sequence[str], until: float
    ) -> _Returned | None:
        """Gives back what a consumer held, and forgets the consumer. Returns what; None if time was up before.

        Raises:
            ResponseError: Some messages cannot go back now; the others have.
        """
        returned = self._returned.setdefault(lease.name, _Returned())
        errors: list[ResponseError] = []
        for number, page in enumerate(pages(reversed(tags), PAGE)):
            if number and monotonic() > until:
                return None
            self._put_back(store, lease, page, tags[0], errors)
        store.fetching.return_in_flight(lease.name, [self._group] if self._group else lease.queues)
        if errors:
            raise errors[0]
        store.consumers.leave(lease.name, self._group)
        del self._returned[lease.name]
        self._errors.pop(lease.name, None)
        return returned

    def _put_back(
        self, store: DelayStore, lease: ConsumerLease, tags: Sequence[str], first: str, errors: list[ResponseError]
    ) -> None:
        """Puts a page of messages back, those last that the consumer fetched first, so that these are consumed next.

        Of the messages at their delivery limit only the ``first`` of the consumer is buried. All others have come as
        often into the hands of consumers that died, because they were prefetched behind the one that killed these.
        """
        returned, options = self._returned[lease.name], store.options
        back: defaultdict[str, list[Requeued]] = defaultdict(list)
        letters: list[Requeued] = []
        for held in store.consumers.notes(tags, self._group):
            note = read_note(as_bytes(held.note))
            if note is None or note.exchange:
                returned.unread.add(held.tag)
                continue
            limit, queue = options.delivery_limit, options.dead_letter_queue
            if limit is not None and note.deaths >= limit and held.tag == first:
                letter = beyond_delivery_limit(note.message, note.deaths, lease.name, queue)
                letters.append(Requeued(held.tag, queue, note.priority, to_json(letter)))
            else:
                row = Requeued(held.tag, note.routing_key, note.priority, note.given_back())
                back[note.routing_key].append(row)
        for queue, messages in back.items():
            with _collected(errors):
                returned.queues[queue] += len(messages) - len(store.fetching.requeue(messages, "next", redelivers=True))
        if letters:
            store.queues.note_dead_letters(options.dead_letter_queue, len(letters))
        with _collected(errors):
            missing = store.fetching.requeue(letters, "last", fetched_from=self._group)
            returned.buried += len(letters) - len(missing)

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


@contextmanager
def _collected(errors: list[ResponseError]) -> Iterator[None]:
    try:
        yield
    except ResponseError as error:
        errors.append(error)


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
