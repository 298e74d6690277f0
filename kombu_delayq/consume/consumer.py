"""A consumer as Redis knows it: a name with a lease, under which it holds messages."""

import os
import socket
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING
from uuid import uuid4

from kombu.log import get_logger
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from kombu_delayq.consume.acks import drained
from kombu_delayq.consume.lost import LostRequests
from kombu_delayq.message import pages
from kombu_delayq.redis import checked
from kombu_delayq.store import PAGE, Fetched, LeaseEnded, LeaseHeartbeat, Outcome, QueueWaits, Request

if TYPE_CHECKING:
    from kombu_delayq.store import DelayStore

logger = get_logger(__name__)

#: For so many heartbeats it is known when a message was fetched: for five hours, with leases of a minute.
BEATS_KEPT = 1200


class _Lease:
    """The lease of a consumer in one group.

    Attributes:
        name: Under which it has the lease.
        is_taken: Whether Redis has given the lease.
        asked_at: When the owner has last asked to renew it, in s of ``monotonic``.
        renewed_at: When the request that Redis has last granted was sent, in s of ``monotonic``.
        queues: Names of all queues for whose messages it has waited.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: set[str] = set()
        self.is_taken = False
        self.asked_at = self.renewed_at = monotonic()

    def grant(self, sent_at: float) -> None:
        """Notes that Redis has given or renewed the lease."""
        self.is_taken, self.renewed_at = True, sent_at


class Consumer:
    """The consumer of one connection to the broker. Any thread may use it.

    It has one lease in each slot group (see ``Keys.slot_group``), all of them under the same name at first. Where a
    lease has ended, the consumer goes on under another name, in this group alone.

    Args:
        queues: Returns the names of the queues that it consumes.

    Attributes:
        held: Delivery tags of the messages in hand, with the names of their queues; and of tasks that have a place.
        going_on: Delivery tags of tasks that run, and have a place until they end.
        waits: How long messages waited in their queues before it fetched them.
        lost: Requests whose replies were lost.
        subscribed: Its names for which it has a subscription that ends with its process (see ``Presence``).
    """

    def __init__(self, queues: Callable[[], Iterable[str]]) -> None:
        self.held: dict[str, str] = {}
        self.going_on: set[str] = set()
        self.waits = QueueWaits()
        self.subscribed: Collection[str] = ()
        self.lost = LostRequests()
        self._next = 1
        self._queues = queues
        self._outcomes: deque[tuple[str, Outcome]] = deque()
        self._begin()

    @property
    def name(self) -> str:
        """``host:pid:random``; another one after the only lease has ended, and after a fork."""
        lease = self._leases.get("")
        return self._name if lease is None else lease.name

    @property
    def is_own(self) -> bool:
        """Whether this process gave the consumer its name."""
        return self._pid == os.getpid()

    @property
    def has_lease(self) -> bool:
        """Whether it has a lease in any group, which a fork does not have."""
        return self.is_own and any(lease.is_taken for lease in list(self._leases.values()))

    @property
    def names(self) -> set[str]:
        """The names under which it has leases."""
        return {lease.name for lease in list(self._leases.values()) if lease.is_taken}

    def name_in(self, group: str) -> str:
        """Returns the name under which it has its lease in a group."""
        lease = self._leases.get(group)
        return self._name if lease is None else lease.name

    def numbers(self, count: int) -> int:
        """Returns the first of ``count`` numbers for delivery tags, which nobody else gets."""
        with self._numbering:
            self._next += count
            return self._next - count

    def idle_names(self, since_s: float) -> list[str]:
        """Returns the names under which it has a lease in the only group, while it holds nothing.

        Args:
            since_s: Of leases that were not renewed for so long.
        """
        lease = self._idle_lease()
        return [lease.name] if lease is not None and monotonic() - lease.renewed_at > since_s else []

    def note_renewed(self, names: Collection[str], sent_at: float) -> None:
        """Learns that a transfer worker of this process has renewed leases. sent_at: In s of ``monotonic``."""
        for lease in list(self._leases.values()):
            if lease.name in names:
                lease.grant(sent_at)

    def keeps_lease(self, within_s: float) -> bool:
        """Whether its lease was renewed within so many s, and Redis knows all that ``renew`` would say."""
        lease = self._idle_lease()
        if lease is None or self._said != self._to_say() or monotonic() - lease.renewed_at > within_s:
            return False
        self._beats.append((self._next, monotonic()))
        return True

    def renew(self, store: "DelayStore", group: str | None = None) -> None:
        """Renews the lease in a group, or takes one under a new name if it has ended.

        Args:
            store: The store to use.
            group: By default all slot groups of what it consumes or holds; it leaves those in which it does nothing any
                more. An error in one group is raised only after the others.
        """
        if not self.is_own:
            self.held.clear()
            self.going_on.clear()
            self.lost = LostRequests()
            self._begin()
        with self._lock:
            queues = defaultdict[str, list[str]](list)
            for queue in sorted(self._queues()):
                queues[store.keys.slot_group(queue)].append(queue)
            if group is not None:
                self._lease_in(group).asked_at = monotonic()
                self._renew(store, group, queues[group])
            else:
                self._renew_all(store, queues)

    def named(self, request: Request, group: str) -> Request:
        """Returns a request in the name that it has in a group, with numbers that are not used."""
        return request._replace(consumer=self.name_in(group), first=self.numbers(request.most))

    def fetch(self, store: "DelayStore", group: str, request: Request) -> list[Fetched]:
        """Fetches messages in its name; one round trip, or three if its lease has ended.

        Args:
            store: The store to use.
            group: Their slot group.
            request: What to fetch; without a name and a number.
        """
        try:
            return self._fetch(store, self.named(request, group))
        except LeaseEnded:
            self.renew(store, group)
            return self._fetch(store, self.named(request, group))

    def count(self, queue: str, outcome: Outcome) -> None:
        """Counts what has become of a task of a queue. ``report`` sends it."""
        self._outcomes.append((queue, outcome))

    def report(self, store: "DelayStore") -> None:
        """Sends what was counted, if there is any; one round trip. What a node that is away misses is sent again."""
        counted = Counter(drained(self._outcomes))
        found = defaultdict[str, dict[Outcome, int]](dict)
        for (queue, outcome), number in counted.items():
            found[queue][outcome] = number
        try:
            errors = store.figures.count_minute(found)
        except BaseException:
            self._outcomes.extend(counted.elements())
            raise
        away = {queue: error for queue, error in errors.items() if not isinstance(error, ResponseError)}
        self._outcomes.extend(one for one in counted.elements() if one[0] in away)
        checked(away.values())

    def put_back_others(self, store: "DelayStore") -> None:
        """Puts messages back that it holds after its connection was lost, but for those whose tasks have places."""
        of_group = defaultdict[str, list[str]](list)
        for tag, queue in list(self.held.items()):
            if tag not in self.going_on:
                of_group[store.keys.slot_group(queue)].append(tag)
        for group, tags in of_group.items():
            for page in reversed([*pages(tags, PAGE)]):
                store.fetching.put_back(page, group)
                for tag in page:
                    self.held.pop(tag, None)

    def leave(self, store: "DelayStore") -> None:
        """Gives leases back. Where messages are held, a lease ends by itself, and they go back to their queues.

        That goes also for what Redis fetched for a request whose reply was lost, and for what a failover brought back.
        What that brought back to in-flight lists goes to the queues at once. Call again while ``has_lease``.
        """
        with self._lock:
            if self.is_own:
                for group in [*self._leases]:
                    self._leave(store, group)

    def _fetch(self, store: "DelayStore", request: Request) -> list[Fetched]:
        try:
            return store.fetching.fetch(request)
        except (ResponseError, LeaseEnded):
            raise
        except BaseException:
            self.lost.add(request)
            raise

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._name = _new_name()
        self._next = 1
        #: Numbers that were next at its latest heartbeats, and when, in s of ``monotonic``: so each message has a time.
        self._beats = deque([(1, monotonic())], BEATS_KEPT)
        self._leases: dict[str, _Lease] = {}
        self._said: tuple[set[str], set[str]] | None = None  # what Redis knows of it
        # A fork copies locks in any state.
        self._lock = Lock()
        # Beside the other lock, because that one is held while Redis renews leases, which a node that hangs delays.
        self._numbering: Lock = Lock()

    def _held_s(self, tags: Sequence[str]) -> float | None:
        """Returns for how long it has held the oldest of some messages, in s, up to a heartbeat too long."""
        if not tags:
            return None
        number = int(tags[0].rpartition(".")[2])
        before = next((at for first, at in reversed(self._beats) if first <= number), self._beats[0][1])
        return round(monotonic() - before, 1)

    def _lease_in(self, group: str) -> _Lease:
        return self._leases.setdefault(group, _Lease(self._name))

    def _renew_all(self, store: "DelayStore", queues: dict[str, list[str]]) -> None:
        failed: Exception | None = None
        try:
            store.consumers.note_queues([queue for of_group in queues.values() for queue in of_group])
        except (RedisError, OSError) as error:
            failed = error
        held = defaultdict[str, list[str]](list)
        for tag, queue in list(self.held.items()):
            held[store.keys.slot_group(queue)].append(tag)
        busy = {*queues, *held}
        self._beats.append((self._next, monotonic()))
        self._said, said = None, self._to_say()
        heartbeats = []
        for group in sorted({*busy, *self._leases}):
            lease = self._lease_in(group)
            lease.queues.update(queues.get(group, ()))
            if group in busy or monotonic() - lease.asked_at < store.options.consumer_ttl:
                heartbeats.append(
                    LeaseHeartbeat(
                        consumer=lease.name,
                        group=group,
                        queues=queues.get(group, []),
                        tags=held.get(group, []),
                        is_new=not lease.is_taken,
                        subscribed=lease.name in self.subscribed,
                        held_s=self._held_s(held.get(group, [])),
                    )
                )
            else:
                self._leave(store, group)
        sent_at = monotonic()
        # In one call, because each call waits for a node that hangs.
        for heartbeat, found in zip(heartbeats, store.consumers.heartbeat_each(heartbeats), strict=True):
            if isinstance(found, Exception):
                failed = failed or found
            elif found:
                self._leases[heartbeat.group].grant(sent_at)
            else:
                self._begin_anew(store, heartbeat.group)
                self._heartbeat(store, heartbeat.group, self._leases[heartbeat.group], list(heartbeat.queues))
        _note(store, *(heartbeat.group for heartbeat in heartbeats if heartbeat.is_new))
        if failed is not None:
            raise failed
        self._said = None if held else said

    def _idle_lease(self) -> _Lease | None:
        """Returns its lease in the only group, if it has one there and holds nothing."""
        lease = self._leases.get("")
        is_idle = self.is_own and not (self.held or self.going_on)
        return lease if is_idle and lease is not None and lease.is_taken else None

    def _to_say(self) -> tuple[set[str], set[str]]:
        """Returns what it says of itself while it holds nothing."""
        return set(self._queues()), set(self.subscribed)

    def _renew(self, store: "DelayStore", group: str, queues: list[str]) -> None:
        lease = self._lease_in(group)
        if not self._heartbeat(store, group, lease, queues):
            self._begin_anew(store, group)
            self._heartbeat(store, group, self._leases[group], queues)

    def _begin_anew(self, store: "DelayStore", group: str) -> None:
        """Goes on under another name in a group whose lease has ended, or has been lost by Redis."""
        lease, count = self._leases[group], len(self._tags_in(store, group))
        if monotonic() - lease.renewed_at < store.options.consumer_ttl:
            logger.warning(
                "Redis does not know the lease of consumer %s, which should not have ended yet: Redis has lost data, "
                "as with FLUSHALL or a failover, a clock was set, or its subscription was gone for seconds. %d "
                "messages are in the consumer's hands. It goes on under another name",
                lease.name,
                count,
            )
        else:
            logger.warning(
                "consumer %s was silent for longer than consumer_ttl, %g s, and counts as dead: the %d messages in its "
                "hands go back to their queues, and run twice. It goes on under another name",
                lease.name,
                store.options.consumer_ttl,
                count,
            )
        self._leases[group] = _Lease(_new_name())

    def _heartbeat(self, store: "DelayStore", group: str, lease: _Lease, queues: list[str]) -> bool:
        is_new, sent_at = not lease.is_taken, monotonic()
        lease.queues.update(queues)
        if is_new:
            _note(store, group)
        has_lease = store.consumers.heartbeat(
            lease.name,
            queues,
            self._tags_in(store, group),
            group=group,
            is_new=is_new,
            subscribed=lease.name in self.subscribed,
        )
        if has_lease:
            lease.grant(sent_at)
        if is_new:
            _note(store, group)
        return has_lease

    def _leave(self, store: "DelayStore", group: str) -> None:
        lease = self._leases[group]
        if not self.lost.has_any(store, group) and not self._tags_in(store, group):
            are_settled = self.lost.are_settled(group)
            checked(store.fetching.return_in_flight({lease.name: sorted(lease.queues)}).values())
            if not are_settled:
                return
            if not store.consumers.tags_of({lease.name}, group):
                store.consumers.leave([lease.name], group)
            # Otherwise a failover has lost that some messages were acknowledged or put back. The lease ends by itself.
            del self._leases[group]

    def _tags_in(self, store: "DelayStore", group: str) -> list[str]:
        """Returns the delivery tags of what it holds in a group."""
        return [tag for tag, queue in list(self.held.items()) if store.keys.slot_group(queue) == group]


def _note(store: "DelayStore", *groups: str) -> None:
    """Notes that queues have a consumer. If that fails because a node is away, the next heartbeat does it.

    That is done before a lease is taken and again after that, see ``Consumers.drop_idle``.
    """
    try:
        store.consumers.note_queues(groups)
    except NoPermissionError:
        raise
    except (RedisError, OSError) as error:
        logger.debug("it is not noted that queues %r have consumers: %s", groups, error)


def _new_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
