"""The store's operations on consumers: their leases, and what they hold."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from math import inf
from typing import Any, NamedTuple
from urllib.parse import quote

from redis.exceptions import RedisError

from kombu_delayq.message import pages
from kombu_delayq.processes import this_process
from kombu_delayq.redis import Args, Call, HashKey, ZSetKey, checked, operation, time_ms
from kombu_delayq.store.client import StoreClient
from kombu_delayq.store.keys import glob_escaped
from kombu_delayq.store.part import StorePart
from kombu_delayq.store.registry import QueueRegistry
from kombu_delayq.store.types import HTTP, PAGE, ConsumerLease, Held, LeaseHeartbeat
from kombu_delayq.text import as_bytes, as_text

#: A consumer renews its lease after this fraction of ``consumer_ttl``.
BEAT_FRACTION = 1 / 4

#: Names of consumers, with the ends of their leases, ms since the epoch.
_Rows = Sequence[tuple[bytes | str, float]]


class Ended(NamedTuple):
    """Consumers whose lease has ended.

    Attributes:
        now_ms: Redis's clock, ms since the epoch; in a cluster that of some node.
        leases: By slot group, also those in which no lease has ended.
        failed: Errors by slot group, where the leases cannot be read.
    """

    now_ms: float
    leases: dict[str, list[ConsumerLease]]
    failed: dict[str, Exception]


def consumer_of(tag: str) -> str:
    """Returns the name of the consumer that made a delivery tag, or an empty text for a tag of kombu's own."""
    name, _, number = tag.rpartition(".")
    return name if number.isdecimal() and name.count(":") >= 2 else ""


def http_consumer(caller: str, lease: str) -> str:
    """Returns the name of the consumer under which a consumer over HTTP receives messages.

    Args:
        caller: Name of the consumer over HTTP. Another caller's lease has another name, whatever its ``lease`` is.
        lease: Number of messages and random characters, with a hyphen in between.
    """
    return f"{HTTP}:{quote(caller, safe='')}:{lease}"


class LeaseKeys(NamedTuple):
    """The keys that a heartbeat changes."""

    consumers: ZSetKey
    consumed: HashKey
    unacked_index: ZSetKey


@operation()
def heartbeat(*, keys: LeaseKeys, consumer: str, ttl: int, about: str, is_new: bool, tags: Args[str]) -> str: ...
@operation()
def fence(*, consumers: ZSetKey, names: Args[str]) -> list[str]: ...
@operation()
def leave(*, consumers: ZSetKey, consumed: HashKey, places: HashKey, names: Args[str]) -> list[str]: ...


class Consumers(StorePart):
    """Knows which consumers live, and what those hold that do not.

    A consumer has one lease for all its queues. In a cluster it has one for each, in the queue's slot. So most methods
    are for one slot group, that of a queue (see ``Keys.slot_group``).
    """

    def __init__(self, client: StoreClient, registry: QueueRegistry) -> None:
        super().__init__(client, registry)
        self._known_groups: list[str] = []

    def slot_groups(self) -> list[str]:
        """Returns the names of all slot groups: one, or in a cluster one for each queue that has or had consumers."""
        return self._client.slot_groups()

    def note_queues(self, queues: Collection[str]) -> None:
        """Notes queues that are consumed, so that ``slot_groups`` has theirs; the only one needs no note."""
        noted, groups = self._keys.groups, {*map(self._keys.slot_group, queues)} - {""}
        if noted and groups:
            self._client.ask("SADD", noted, *sorted(groups))

    def drop_idle(self, queues: Sequence[str]) -> list[str]:
        """Makes slot groups unknown that had consumers and have none any more, and of which nothing is in hand.

        At most four round trips. The name leaves first. A process that becomes a consumer then notes the name before it
        takes its lease and again after that, so one of the two sees the other.

        Args:
            queues: Some hundred of ``slot_groups``; the only one on a plain server is always known.

        Returns:
            Those that are unknown now.
        """
        noted, queues = self._keys.groups, list(filter(None, queues))
        idle = [queue for queue, is_used in zip(queues, self._are_consumed(queues), strict=True) if not is_used]
        if noted is None or not idle:
            return []
        self._client.ask("SREM", noted, *idle)
        back = [queue for queue, is_used in zip(idle, self._are_consumed(idle), strict=True) if is_used]
        if back:
            self._client.ask("SADD", noted, *back)
        return [queue for queue in idle if queue not in back]

    def _are_consumed(self, queues: Sequence[str]) -> list[bool]:
        """Returns of each queue whether it has a consumer, or a message in hand, as far as its node says."""
        of_group = self._keys.consumers, self._keys.unacked, self._keys.unacked_index
        commands = [("EXISTS", *(key(queue) for key in of_group)) for queue in queues]
        return [reply != 0 for reply in self._client.replies(commands)]

    def heartbeat(
        self,
        consumer: str,
        queues: Sequence[str],
        tags: Sequence[str] = (),
        *,
        group: str | None = None,
        is_new: bool = False,
        subscribed: bool = False,
        ttl_s: float | None = None,
    ) -> bool:
        """Renews the lease of a consumer; a round trip for each 200 tags.

        In a cluster the caller tells ``note_queues`` of queues that are new to it.

        Args:
            consumer: Name of the consumer.
            queues: Names of the queues that it consumes, of one slot group.
            tags: Delivery tags of the messages that it holds. Stock workers leave these alone as well.
            group: Name of the slot group; by default that of the queues.
            is_new: Whether the name has no lease yet.
            subscribed: Whether it has subscribed to ``Keys.presence``.
            ttl_s: Length of the lease from now, in s; None for ``consumer_ttl``.

        Returns:
            Whether it has the lease. False if what it held is being reclaimed, or has been: then it needs another name.
            A lease that has ended without that is renewed.
        """
        group = self._keys.slot_group(next(iter(queues), "")) if group is None else group
        calls = self._heartbeat_calls(LeaseHeartbeat(consumer, group, queues, tags, is_new, subscribed), ttl_s)
        return all(self._client.run(call) != "ended" for call in calls)

    def heartbeat_each(self, heartbeats: Sequence[LeaseHeartbeat]) -> list[bool | Exception]:
        """Renews leases in several slot groups, as ``heartbeat`` does; one round trip to each node.

        Returns:
            For each whether the consumer has the lease, or an error.
        """
        calls = [self._heartbeat_calls(one) for one in heartbeats]
        replies = iter(self._client.run_each(chain.from_iterable(calls))[0])
        found = [[next(replies) for _ in of_group] for of_group in calls]
        return [
            next((each for each in of_group if isinstance(each, Exception)), None) or "ended" not in of_group
            for of_group in found
        ]

    def leave(self, consumers: Sequence[str], queue: str) -> None:
        """Forgets consumers that hold nothing any more, in the slot group of a queue; a round trip for 100 places."""
        of_group, consumed, places = self._keys.consumers(queue), self._keys.consumed(queue), self._keys.places(queue)
        while consumers:
            call = leave(consumers=of_group, consumed=consumed, places=places, names=consumers[:PAGE])
            consumers = [*self._client.run(call), *consumers[PAGE:]]

    def find(self, consumer: str, queue: str) -> ConsumerLease | None:
        """Returns a consumer of the slot group of a queue.

        Returns None if Redis does not know it: it has left, or what it held has gone back.
        """
        with self._client.redis.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.zscore(as_bytes(self._keys.consumers(queue)), consumer)
            time, ends_ms = pipe.execute()
        if ends_ms is None:
            return None
        return self._leases(time_ms(time), {queue: [(consumer, ends_ms)]})[queue][0]

    def all(self) -> list[ConsumerLease]:
        """Returns all consumers, those first whose lease ends first.

        Of a consumer with several leases that one is returned which ends first, with all its queues.
        """
        now_ms, rows = self._rows(-1)
        found: dict[str, ConsumerLease] = {}
        for lease in chain.from_iterable(self._leases(now_ms, _checked(rows)).values()):
            other = found.setdefault(lease.name, lease)
            if other is not lease:
                queues = sorted({*other.queues, *lease.queues})
                held = (other.held or 0) + (lease.held or 0)
                held_s = max((each.held_s for each in (other, lease) if each.held_s is not None), default=None)
                found[lease.name] = other._replace(
                    left_ms=min(other.left_ms, lease.left_ms), queues=queues, held=held, held_s=held_s
                )
        return sorted(found.values(), key=lambda lease: lease.left_ms)

    def in_group(self, queue: str) -> list[ConsumerLease]:
        """Returns the consumers of the slot group of a queue, those first whose lease ends first."""
        now_ms, rows = self._rows(-1, [queue])
        return self._leases(now_ms, _checked(rows))[queue]

    def by_queue(self) -> Counter[str]:
        """Counts the consumers that live, by queue. One over HTTP counts once, however many leases it has."""
        now_ms, rows = self._rows(-1)
        leases = chain.from_iterable(self._leases(now_ms, _checked(rows)).values())
        living = [(lease.pid if lease.is_http else lease.name, lease.queues) for lease in leases if lease.left_ms > 0]
        return Counter(queue for queue, _ in {(queue, who) for who, queues in living for queue in queues})

    def ended(self) -> Ended:
        """Finds consumers whose lease has ended, the first thousand of a slot group at most.

        One round trip where there are none; in a cluster one more, and to each node. While the node that knows the
        groups is away, those count that were found last.
        """
        try:
            self._known_groups = self.slot_groups()
        except (RedisError, OSError) as error:
            if not (self._known_groups and self._client.pool.is_partial(error)):
                raise
        now_ms, rows = self._rows(999, self._known_groups)
        known = {group: found for group, found in rows.items() if not isinstance(found, Exception)}
        failed = {group: found for group, found in rows.items() if isinstance(found, Exception)}
        late = {group: [row for row in found if row[1] <= now_ms] for group, found in known.items()}
        return Ended(now_ms, self._leases(now_ms, late), failed)

    def subscribed(self) -> dict[str, dict[str, str]]:
        """Returns the consumers that have said that they subscribe to their channels, with their processes.

        They are by slot group; groups that cannot be read now are left out. Processes have the names that
        ``this_process`` gives. Those whose lease has ended are among them.
        """
        groups = self._known_groups or self.slot_groups()
        replies = self._client.replies([("HGETALL", self._keys.consumed(group)) for group in groups])
        found: dict[str, dict[str, str]] = {}
        for group, reply in zip(groups, replies, strict=True):
            if isinstance(reply, Exception) and not self._client.pool.is_partial(reply):
                raise reply
            rows = reply.items() if isinstance(reply, dict) else ()
            abouts = {as_text(name): _about(noted) for name, noted in rows}
            found[group] = {
                name: str(about.get("process", "")) for name, about in abouts.items() if about.get("subscribed") is True
            }
        return found

    def without_subscriber(self, consumers: Sequence[str]) -> set[str]:
        """Returns those of the consumers to whose channels nobody subscribes now; one command."""
        channels = {self._keys.presence(name): name for name in consumers}
        reply = self._client.client_at(self._keys.lease).pubsub_numsub(*channels)
        return {channels[as_text(channel)] for channel, count in reply if not int(count)}

    def end_leases(self, consumers: Sequence[str], queue: str) -> None:
        """Ends the leases of consumers now, unless they have ended. A consumer that lives may still renew its lease."""
        now_ms = time_ms(self._client.redis.time())
        rows = [part for name in consumers for part in (now_ms, name)]
        self._client.ask("ZADD", self._keys.consumers(queue), "XX", "LT", *rows)

    def fence(self, consumers: Sequence[str], queue: str) -> list[str]:
        """Keeps consumers whose lease has ended from renewing it and from fetching messages, for good.

        Args:
            consumers: Their names.
            queue: Name of any queue of the slot group in which they have the lease.

        Returns:
            The names of those consumers; the others have renewed their lease meanwhile.
        """
        key = self._keys.consumers(queue)
        calls = (fence(consumers=key, names=page) for page in pages(consumers, PAGE))
        return [name for call in calls for name in self._client.run(call)]

    def tags_of(self, consumers: Collection[str], queue: str) -> dict[str, list[str]]:
        """Finds what consumers hold, by going once through all messages of a slot group that anybody holds.

        Args:
            consumers: Their names.
            queue: Name of any queue of the slot group.

        Returns:
            The tags of each consumer that holds any, those first that it fetched first.
        """
        pattern = f"{glob_escaped(*consumers)}.*" if len(consumers) == 1 else "*"
        found: dict[str, list[str]] = {}
        for page in self._all_tags(pattern, queue):
            for tag in map(as_text, page):
                if (consumer := consumer_of(tag)) in consumers:
                    found.setdefault(consumer, []).append(tag)
        return {consumer: sorted(set(tags), key=_number_of) for consumer, tags in found.items()}

    def counts(self, queue: str | None = None) -> Counter[str]:
        """Counts the messages in hand by consumer; an empty name stands for all consumers of stock kombu.

        Args:
            queue: Name of any queue of the slot group in which to count, by default in all.
        """
        found = Counter[str]()
        for group in self.slot_groups() if queue is None else [queue]:
            tags = {as_text(tag) for page in self._all_tags("*", group) for tag in page}
            found.update(map(consumer_of, tags))
        return found

    def notes(self, tags: Sequence[str], queue: str) -> list[Held]:
        """Returns those of some hundred messages of a slot group that are still held."""
        notes = self._client.ask("HMGET", self._keys.unacked(queue), *tags)
        return [Held(tag, note) for tag, note in zip(tags, notes, strict=True) if note is not None]

    def _heartbeat_calls(self, of: LeaseHeartbeat, ttl_s: float | None = None) -> list[Call[str]]:
        ttl_s = self._client.options.consumer_ttl if ttl_s is None else ttl_s
        of_hand = {"held": len(of.tags), "held_s": of.held_s}
        process = {"process": this_process()} if of.subscribed else {}
        known = {"queues": sorted(of.queues), "subscribed": of.subscribed}
        about = json.dumps({**known, **process, **of_hand, "places": True})
        own, group, ttl_ms = self._keys, of.group, round(ttl_s * 1000)
        keys = LeaseKeys(own.consumers(group), own.consumed(group), own.unacked_index(group))
        return [
            heartbeat(keys=keys, consumer=of.consumer, ttl=ttl_ms, about=about, is_new=of.is_new, tags=page)
            for page in [*pages(of.tags, PAGE)] or [[]]
        ]

    def _rows(self, stop: int, groups: Sequence[str] | None = None) -> tuple[float, dict[str, _Rows | Exception]]:
        """Reads the leases of slot groups, by default of all, up to a number in each; errors are among the results."""
        groups = self.slot_groups() if groups is None else groups
        with self._client.redis.pipeline(transaction=False) as pipe:
            pipe.time()
            for group in groups:
                pipe.zrange(as_bytes(self._keys.consumers(group)), 0, stop, withscores=True)
            now, *found = pipe.execute(raise_on_error=False)
        if isinstance(now, Exception):
            raise now
        return time_ms(now), dict(zip(groups, found, strict=True))

    def _leases(self, now_ms: float, rows: Mapping[str, _Rows]) -> dict[str, list[ConsumerLease]]:
        """Returns leases by slot group, in the order of their rows; a round trip if there are any."""
        asked = [group for group in rows if rows[group]]
        if not asked:
            return {group: [] for group in rows}
        names = [[as_text(name) for name, _ in rows[group]] for group in asked]
        replies = self._client.send(
            [("HMGET", self._keys.consumed(group), *of) for group, of in zip(asked, names, strict=True)]
        )
        found = {group: list[ConsumerLease]() for group in rows}
        for group, of, queues in zip(asked, names, replies, strict=True):
            for name, (_, ends_ms), noted in zip(of, rows[group], queues, strict=True):
                left_ms = ends_ms - now_ms if ends_ms else -inf
                found[group].append(self._lease(name, left_ms, _about(noted)))
        return found

    def _lease(self, name: str, left_ms: float, about: Mapping[str, Any]) -> ConsumerLease:
        queues = [queue for queue in about.get("queues", ()) if isinstance(queue, str)]
        held, held_s = (
            found if isinstance(found := about.get(key), (int, float)) else None for key in ("held", "held_s")
        )
        if held_s is not None:
            held_s += max(self._client.options.consumer_ttl - left_ms / 1000, 0.0)  # since its heartbeat
        knows_places = about.get("places") is True
        return ConsumerLease(name, left_ms, queues, None if held is None else int(held), held_s, knows_places)

    def _all_tags(self, pattern: str, queue: str) -> Iterator[list[Any]]:
        index, cursor = as_bytes(self._keys.unacked_index(queue)), 0
        while True:
            cursor, found = self._client.redis.zscan(index, cursor, match=as_bytes(pattern), count=1000)
            yield [tag for tag, _ in found]
            if not cursor:
                return


def _checked(rows: Mapping[str, _Rows | Exception]) -> dict[str, _Rows]:
    return dict(zip(rows, checked(rows.values()), strict=True))


def _number_of(tag: str) -> int:
    return int(tag.rpartition(".")[2])


def _about(noted: bytes | str | None) -> dict[str, Any]:
    """Returns what a consumer says of itself; nothing where somebody else has written it."""
    try:
        found = json.loads(as_text(noted or "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("queues"), list) else {}
