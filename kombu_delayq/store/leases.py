"""The store's operations by which transfer workers agree on who leads."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from redis.exceptions import NoPermissionError

from kombu_delayq.redis import (
    Call,
    Command,
    HashKey,
    SetKey,
    StringKeys,
    ZSetKey,
    checked,
    operation,
    time_ms,
)
from kombu_delayq.store.part import StorePart
from kombu_delayq.store.types import DelayedQueue, Head, WatchedHeads
from kombu_delayq.text import as_bytes, as_text


class Lease(NamedTuple):
    """The transfer worker that leads.

    Attributes:
        leader: Name of the leading transfer worker.
        queues: Names of the queues that hold or held delayed messages.
        rank: Rank of the worker that asked: 1 leads, 2 and 3 are the leader's standbys, of which one leads next, and 0
            waits.
    """

    leader: str
    queues: list[str]
    rank: int


@operation()
def lead(*, queues: SetKey, leases: StringKeys, name: str, ttl: int) -> tuple[str, int, list[str]]: ...
@operation()
def release(*, leases: StringKeys, name: str) -> str: ...
@operation()
def watch_heads(*, due: ZSetKey, bucket: HashKey) -> tuple[float, float | None, bytes, float | None]: ...


class Leases(StorePart):
    """Leases of transfer workers: one worker leads, and two standbys take over when it dies."""

    def lead(self, name: str) -> Lease:
        """Takes or renews the lease of the leading transfer worker, or one of its standbys', if one is free."""
        ttl_ms = round(self._client.options.lease_ttl * 1000)
        call = lead(queues=self._keys.queues, leases=self._keys.leases, name=name, ttl=ttl_ms)
        leader, rank, queues = self._client.run(call)
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

    def all_quiet(self, known: Collection[str], queues: Iterable[str]) -> bool:
        """Returns whether a transfer worker that waits has nothing to do; one round trip.

        It has nothing to do while others hold the leases, the registered queues are the known ones, and no message is
        due. Plain commands find that out: scripts that run rarely cost Redis many times more. An error, such as a key
        of the wrong type, counts as something to do.

        Args:
            known: Names of the queues that ``lead`` returned.
            queues: Names of other queues to look after. A message in one of them is something to do, because the queue
                is not registered.
        """
        names = dict.fromkeys((*known, *queues))
        heads_of = [(self._client.due(queue), queue in known) for queue in names]
        with self._client.redis.pipeline(transaction=False) as pipe:
            pipe.mget(self._keys.leases)
            pipe.smembers(self._keys.queues)
            pipe.time()
            for due, _ in heads_of:
                pipe.zrange(as_bytes(due), 0, 0, withscores=True)
            replies = pipe.execute(raise_on_error=False)
        if any(isinstance(reply, Exception) for reply in replies):
            return False
        holders, known_now, time, *heads = replies
        if None in holders:
            return False
        now_ms = time_ms(time)
        waits = (
            not head or (is_known and head[0][1] > now_ms) for (_, is_known), head in zip(heads_of, heads, strict=True)
        )
        return all(waits) and set(map(as_text, known_now)) == set(known)

    def _watch_call(self, delayed: DelayedQueue) -> Call[Any]:
        due, limits = self._client.due(*delayed), self._client.options.limits_of(delayed.queue)
        is_limited = limits is not None and limits.rate is not None
        return watch_heads(due=due, bucket=self._keys.bucket(delayed.queue) if is_limited else due)


def _head(due: float, entry: bytes, held: float | None) -> Head:
    return Head(max(due, held or 0), entry, held is not None)
