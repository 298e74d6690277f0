"""The store's operations by which transfer workers agree on who leads."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from redis.exceptions import NoPermissionError

from kombu_delayq.redis import (
    Args,
    Call,
    Command,
    HashKey,
    Key,
    SetKey,
    StringKey,
    StringKeys,
    ZSetKey,
    ZSetKeys,
    checked,
    operation,
    time_ms,
)
from kombu_delayq.store.part import StorePart
from kombu_delayq.store.types import DelayedQueue, Head, QueueHeads, WatchedHeads
from kombu_delayq.text import as_text


class Look(NamedTuple):
    """What Redis says beside a lease, on a server without hash slots.

    Attributes:
        heads: The heads of the queues that were asked about.
        queues: The names of these queues.
        has_ended: Whether the lease of a consumer may have ended.
        is_watched: Whether it is to be found out who is gone: a message is in hand, or a consumer that has subscribed
            may have no subscriber.
        consumed: Of the leader, names of the queues that are consumed; None if that is not known, as while a message is
            in hand.
        renewed: Names of the consumers whose leases it has renewed.
    """

    heads: QueueHeads
    queues: frozenset[str]
    has_ended: bool
    is_watched: bool
    consumed: frozenset[str] | None
    renewed: frozenset[str]


class Lease(NamedTuple):
    """The transfer worker that leads.

    Attributes:
        leader: Name of the leading transfer worker.
        queues: Names of the queues that hold or held delayed messages.
        rank: Rank of the worker that asked: 1 leads, 2 and 3 are the leader's standbys, of which one leads next, and 0
            waits.
        look: What else Redis has said, if it was asked.
    """

    leader: str
    queues: list[str]
    rank: int
    look: Look | None = None


class LookKeys(NamedTuple):
    """The keys of ``look``, without those of queues."""

    queues: SetKey
    lease: StringKey
    standby: StringKey
    second: StringKey
    consumers: ZSetKey
    consumed: HashKey
    unacked: HashKey


class _Looked(NamedTuple):
    taken: tuple[str, int, list[str]]
    now_ms: float
    has_ended: int
    is_watched: int
    due_ms: list[float | None]
    of_consumers: list[str]
    renewed: list[str]


@operation()
def lead(*, queues: SetKey, leases: StringKeys, name: str, ttl: int) -> tuple[str, int, list[str]]: ...
@operation()
def look(
    *,
    keys: LookKeys,
    dues: ZSetKeys,
    name: str,
    ttl: int,
    channels: str,
    heads: int,
    told: str,
    listed: str,
    lasts: int,
    idle: Args[str],
) -> _Looked: ...
@operation()
def watched(*, consumed: HashKey, unacked: HashKey, channels: str) -> int: ...
@operation()
def release(*, leases: StringKeys, name: str) -> str: ...
@operation()
def watch_heads(*, due: ZSetKey, bucket: HashKey) -> tuple[float, float | None, bytes, float | None]: ...


class Leases(StorePart):
    """Leases of transfer workers: one worker leads, and two standbys take over when it dies."""

    #: The layouts of a look that was refused. An ACL may forbid the keys of one; ``Delivery.dues`` leaves it out then.
    _refused: frozenset[str] | None = None

    def lead(self, name: str) -> Lease:
        """Takes or renews the lease of the leading transfer worker, or one of its standbys', if one is free."""
        call = lead(queues=self._keys.queues, leases=self._keys.leases, name=name, ttl=self._ttl_ms)
        return self._lease(*self._client.run(call))

    def look(
        self, name: str, dues: Mapping[DelayedQueue, Key], consumed: Sequence[str] = (), idle: Sequence[str] = ()
    ) -> Lease:
        """Does what ``lead`` does, and looks at what else there is to do; one round trip.

        With hash slots it does not look, nor after an ACL has forbidden some key.

        Args:
            name: Name of the worker.
            dues: The queues at whose heads to look, see ``Delivery.dues``.
            consumed: The queues of whose lists the leader tells the consumers which have messages.
            idle: Names of consumers that hold nothing; it also renews their leases.
        """
        asked = frozenset(delayed.layout for delayed in dues)
        if self._keys.groups is None and asked != self._refused:
            try:
                return self._look(name, dues, consumed, idle)
            except NoPermissionError:
                self._refused = asked
        return self.lead(name)

    def watched(self) -> bool:
        """Returns what ``Look.is_watched`` says, on a server without hash slots; one round trip."""
        keys = self._keys
        call = watched(consumed=keys.consumed(""), unacked=keys.unacked(""), channels=keys.presence(""))
        return bool(self._client.run(call))

    @property
    def _ttl_ms(self) -> int:
        return round(self._client.options.lease_ttl * 1000)

    def _look(self, name: str, dues: Mapping[DelayedQueue, Key], consumed: Sequence[str], idle: Sequence[str]) -> Lease:
        keys = self._keys
        of_consumers = keys.consumers(""), keys.consumed(""), keys.unacked("")
        own = LookKeys(keys.queues, keys.lease, keys.standby, keys.second_standby, *of_consumers)
        lists = [name for queue in consumed for name in self._client.ready(queue)]
        lists += [keys.unacked("")] if lists else []
        call = look(
            keys=own,
            dues=[*dues.values(), *lists],
            name=name,
            ttl=self._ttl_ms,
            channels=keys.presence(""),
            heads=len(dues),
            told=keys.lists,
            listed=json.dumps(lists) if lists else "",
            lasts=round(self._client.options.consumer_ttl * 1000),
            idle=idle,
        )
        found = self._client.run(call)
        due_ms = {delayed: at for delayed, at in zip(dues, found.due_ms, strict=True) if at is not None}
        queues = frozenset(delayed.queue for delayed in dues)
        looked = Look(
            heads=QueueHeads(found.now_ms, due_ms),
            queues=queues,
            has_ended=bool(found.has_ended),
            is_watched=bool(found.is_watched),
            consumed=_queues_in(found.of_consumers) if found.of_consumers else None,
            renewed=frozenset(found.renewed),
        )
        return self._lease(*found.taken)._replace(look=looked)

    def _lease(self, leader: str, rank: int, queues: Sequence[str]) -> Lease:
        # Somebody else may have written a name that cannot be used.
        return Lease(leader, sorted(filter(self._keys.is_usable, queues)), rank)

    def release(self, name: str) -> bool:
        """Gives a lease back, the leader's or a standby's. Returns whether one was held under this name."""
        return self._client.run(release(leases=self._keys.leases, name=name)) == "released"

    def leader(self) -> str | None:
        """Returns the name of the leading transfer worker."""
        name = self._client.redis.get(self._keys.lease)
        return None if name is None else as_text(name)

    def leads_under(self, prefix: str) -> bool:
        """Returns whether a transfer worker leads under another key prefix of this database; True if it is not known.

        The ACL of a user may forbid to ask.
        """
        with suppress(NoPermissionError):
            return self._client.redis.get(replace(self._keys, prefix=prefix).lease) is not None
        return True

    def standbys(self) -> list[str]:
        """Returns the names of the transfer workers that lead next, if the leader dies."""
        _, *standbys = self._keys.leases
        return [as_text(name) for name in self._client.redis.mget(standbys) if name is not None]

    def watch_heads(self, delayed_queues: Sequence[DelayedQueue]) -> WatchedHeads:
        """Reads whether the leader is there, and the heads of some queues; one round trip.

        Redis says whether the leader is there if it may ask for subscribers (``PUBSUB``), and if all who hold a lease
        listen to announcements. With several nodes subscribers are anywhere, and a node knows only its own. So there
        only the lease says whether a leader is there, and a standby notices a leader that was killed by the messages
        that nobody transfers, see ``AbandonedHeads``. A node that is away is no error as long as another one says what
        time it is.
        """
        asked: list[Command] = [*(("GET", key) for key in self._keys.leases), ("TIME",)]
        asked.append(("PUBSUB", "NUMSUB", self._keys.wake))
        replies, before_and_after = self._client.run_each(map(self._watch_call, delayed_queues), asked)
        *leases, time, listeners = (before for before, _ in before_and_after)
        is_partial = self._client.pool.is_partial
        checked(reply for reply in (leases[0], *replies) if not is_partial(reply))
        found = {
            delayed: reply for delayed, reply in zip(delayed_queues, replies, strict=True) if not is_partial(reply)
        }
        if not found:
            checked([time])
        clocks = [] if isinstance(time, Exception) else [time_ms(time)]
        now_ms = max([*clocks, *(reply[0] for reply in found.values())])
        heads = {delayed: _head(*head) for delayed, (_, *head) in found.items() if head[0] is not None}
        return WatchedHeads(now_ms, self._is_gone(leases, listeners), heads, frozenset(delayed_queues) - found.keys())

    def _is_gone(self, leases: Sequence[Any], listeners: Any) -> bool:
        """Whether the leader is gone, by the names in the leases and by who listens to announcements.

        The subscription of a process that is killed ends at once, and its lease later.
        """
        if any(isinstance(holder, Exception) for holder in leases):
            return False
        holders = sum(holder is not None for holder in leases)
        is_silent = False
        if not (isinstance(listeners, Exception) or self._client.pool.several):
            is_silent = int(listeners[-1]) < holders  # behind the name of the channel
        return leases[0] is None or is_silent

    def _watch_call(self, delayed: DelayedQueue) -> Call[Any]:
        due, limits = self._client.due(*delayed), self._client.options.limits_of(delayed.queue)
        is_limited = limits is not None and limits.rate is not None
        return watch_heads(due=due, bucket=self._keys.bucket(delayed.queue) if is_limited else due)


def _queues_in(of_consumers: Sequence[str]) -> frozenset[str]:
    found = set[str]()
    for text in of_consumers:
        with suppress(ValueError):  # somebody else may have written it
            found.update(queue for queue in json.loads(text) if isinstance(queue, str))
    return frozenset(found)


def _head(due: float, entry: bytes, held: float | None) -> Head:
    return Head(max(due, held or 0), entry, held is not None)
