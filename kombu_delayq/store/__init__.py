"""The delayed messages of one Redis database: one method for each operation in ``lua/``, here or in a base class."""

import re
from collections.abc import Iterable, Sequence
from math import inf
from time import monotonic
from typing import Any

from redis.exceptions import ResponseError

from kombu_delayq.connection import pools
from kombu_delayq.connection.text import Command, as_text
from kombu_delayq.errors import UnsupportedRedis
from kombu_delayq.store.bulk_jobs import BulkJobs
from kombu_delayq.store.chains import DelayChains
from kombu_delayq.store.client import Call, in_each_form
from kombu_delayq.store.dead_letters import Upkeep
from kombu_delayq.store.leases import Leases
from kombu_delayq.store.lookup import WaitingMessages
from kombu_delayq.store.queues import Conversion
from kombu_delayq.store.repair import Repairs
from kombu_delayq.store.scan import QueueParts
from kombu_delayq.store.types import Heads, Offer, Offered, PageId, QueueForm, QueueStats, Transferred
from kombu_delayq.store.wake import WakeListener

OLDEST_REDIS = (6, 2)
#: A call that transfers entries of Redisson's form takes one of so many shares of a batch, of its messages and of its
#: bytes: so much more an entry costs Redis, and each byte, for an entry that leaves lets others be read.
LIST_SHARE, LIST_BYTES_SHARE = 2, 16
#: How long a page of ``send_many`` is known when it comes again, in ms: above what noticing a lost connection takes.
PAGE_TTL_MS = 120_000


class DelayStore(WaitingMessages, DelayChains, QueueParts, Upkeep, Repairs, Conversion, BulkJobs, Leases):
    """Keeps messages until they are due. Errors of the Redis client pass through as they are."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: Queues that have held others since the given time, as of ``monotonic``.
        self._held_others: dict[str, float] = {}

    def offer(self, queue: str, *offers: Offer, expire_ms: int = 0) -> Offered:
        """Stores messages until they are due; one round trip.

        Args:
            queue: Where they go then.
            offers: The messages. A few hundred at a time keep Redis responsive.
            expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.
        """
        # A transfer worker must know the queue. It does while the queue holds others; else it is told before.
        told = not self._is_known(queue)
        if told:
            _, reply, _ = self.send(self.offer_commands(queue, offers, expire_ms))
        else:
            reply = self._run("offer", *self._offer_call(queue, offers, expire_ms))
        offered = Offered(as_text(reply[0]), *reply[1:])
        if offered.place != "first":
            self._held_others[queue] = monotonic()
        else:
            self._held_others.pop(queue, None)
            if not told:
                self.ask("SADD", self.keys.queues, queue)
        return offered

    def offer_commands(self, queue: str, offers: Iterable[Offer], expire_ms: int = 0) -> list[Command]:
        """Returns the commands of ``offer``, for a caller that sends them with others of its own."""
        keys, args = self._offer_call(queue, offers, expire_ms)
        return self._known(queue, self._text_of("offer", keys, args))

    def _is_known(self, queue: str) -> bool:
        """Whether a queue held others lately, so that nobody has forgotten it."""
        forget_after = self.options.forget_after
        age_s = monotonic() - self._held_others.get(queue, -inf)
        return age_s < (inf if forget_after is None else forget_after / 2)

    def put(self, queue: str, page: PageId, offers: Sequence[Offer], expire_ms: int = 0) -> str:
        """Publishes a page of messages; one round trip. The same page, when it comes again, changes nothing.

        Args:
            queue: Where they go when they are due; an empty due time is now.
            page: Which page it is. Those before it are not to be sent any more.
            offers: The messages. A few hundred at a time keep Redis responsive.
            expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.

        Returns:
            ``first``, ``head`` or ``behind``, as of ``offer``; ``repeated`` for a page that Redis has already.
        """
        replies = self.send(self.put_commands(queue, page, offers, expire_ms))
        return as_text(replies[len(replies) // 2])  # the name goes before and after, if at all

    def put_commands(self, queue: str, page: PageId, offers: Sequence[Offer], expire_ms: int = 0) -> list[Command]:
        """Returns the commands of ``put``, for a caller that does not wait for their replies."""
        keys = [self.keys.sender(page.sender), *self._stored(queue), *self.ready(queue)]
        args = [self._wake(queue), queue, expire_ms, page.number, PAGE_TTL_MS, *self._list_of_priority]
        is_delayed = False
        for each in offers:
            args += each
            is_delayed = is_delayed or bool(each.due)
        command = self._text_of("put", keys, args)
        return self._known(queue, command) if is_delayed else [command]

    def _text_of(self, operation: str, keys: list[str], args: list[Any]) -> Command:
        # Not the SHA: a script cache that was flushed cannot fail what is sent with others.
        return ("EVAL", self.script(operation).text, len(keys), *keys, *args)

    def _offer_call(self, queue: str, offers: Iterable[Offer], expire_ms: int) -> tuple[list[str], list[Any]]:
        args: list[Any] = [self._wake(queue), queue, expire_ms]
        for each in offers:
            args += each
        return self._stored(queue), args

    def adopt(self, queue: str, offer: Offer, tag: str, unacked_index: str, unacked: str, expire_ms: int = 0) -> bool:
        """Moves a message that a consumer holds into the store.

        Args:
            queue: Where it came from.
            offer: The message, with an absolute due time.
            tag: Its delivery tag; empty when the consumer does not hold it, as it does not acknowledge.
            unacked_index: Full name of kombu's ZSET of unacked delivery tags.
            unacked: Full name of kombu's HASH of unacked messages.
            expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.

        Returns:
            Whether the store has it; False when by Redis's clock it is due already and stays with the consumer.
        """
        args = [self._wake(queue), queue, expire_ms, tag, *offer]
        keys = [*self._stored(queue), unacked_index, unacked]
        return as_text(self._run_known("adopt", queue, keys, args)) != "due"

    def give_back(self, queue: str, priority: int, body: str) -> int:
        """Puts a message that a consumer could not keep back where it came from, also into a full Redis.

        Returns the length of that list.
        """
        step = self._list_of_priority[priority]
        return int(self._run("give_back", [self.ready(queue)[step]], [body]))

    def transfer(self, queue: str, backup: str | None = None) -> Transferred:
        """Moves a batch of messages that are due to the lists from which kombu consumes.

        Args:
            queue: Its name.
            backup: The form in which they are, by default the store's own.
        """
        keys = [*self._stored(queue, backup), *self.ready(queue)]
        share, bytes_share = (LIST_SHARE, LIST_BYTES_SHARE) if (backup or self.backup) == "list" else (1, 1)
        batch = (max(self.options.transfer_batch // share, 1), max(self.options.transfer_batch_bytes // bytes_share, 1))
        args = [*batch, *self._list_of_priority]
        moved, lost, first, now, head = self._run("transfer", keys, args, backup)
        now_ms = float(now)
        latest_ms = now_ms - float(first) if first else 0.0
        return Transferred(moved, lost, latest_ms, now_ms, float(head) if head else None)

    @in_each_form
    def heads(self, queues: Sequence[str]) -> Heads:
        """Reads when the next message of each queue is due, in either form of backup."""
        forms = [QueueForm(queue, backup) for queue in queues for backup in self._forms]
        now, *heads = self._run("heads", [self._due(*form) for form in forms], [])
        return Heads(float(now), {form: float(due) for form, due in zip(forms, heads, strict=True) if due})

    @in_each_form
    def stats(self, queue: str) -> QueueStats:
        """Counts a queue's messages, in either form of backup."""
        keys = [self._due(queue, self._forms[0]), self._due(queue, self._forms[-1]), *self.ready(queue)]
        now, delayed, ready, overdue, head = self._run("stats", keys, [])
        return QueueStats(queue, float(now), delayed, ready, overdue, float(head) if head else None)

    def now_ms(self) -> float:
        """Returns Redis's clock, ms since the epoch."""
        seconds, microseconds = self.client.time()
        return float(seconds) * 1000 + float(microseconds) / 1000

    @in_each_form
    def size(self, queue: str) -> int:
        """Counts the delayed messages of a queue, in either form of backup."""
        return sum(self.send([("ZCARD", self._due(queue, backup)) for backup in self._forms]))

    def queues(self) -> list[str]:
        """Returns the names of the queues that hold or held delayed messages."""
        return sorted(map(as_text, self.client.smembers(self.keys.queues)))

    @in_each_form
    def keep_alive(self, queue: str, expire_ms: int = 0) -> None:
        """Notes that a queue is in use, which puts off its expiry, and that it is forgotten; one round trip.

        In Redisson's form it makes the queue known too: its first message may be that of a JVM service, which tells
        nobody.

        Args:
            queue: Its name.
            expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.
        """
        args = [expire_ms, queue, int(self.backup == "list")]
        shared = [self.keys.queues, self.keys.used]
        calls: list[Call] = [([*self._stored(queue, each), *shared], args, each) for each in self._forms]
        for reply in self._run_each("keep_alive", calls)[0]:
            if isinstance(reply, Exception):
                raise reply

    def listen(self) -> WakeListener:
        """Subscribes to the announcements of new heads."""
        return WakeListener(self.client, self.keys)

    def check_version(self) -> None:
        """Raises UnsupportedRedis if the server is older than 6.2; a server that does not tell is taken as it is."""
        version = str(self._info("server").get("redis_version", ""))
        found = re.match(r"(\d+)\.(\d+)", version)
        if found and (int(found[1]), int(found[2])) < OLDEST_REDIS:
            raise UnsupportedRedis(f"Redis {version} is too old for kombu-delayq, which needs 6.2 or later")

    def eviction_warning(self) -> str:
        """Returns what is to be said of a server that may evict messages, else an empty text."""
        policy = str(self._info("memory").get("maxmemory_policy", "noeviction"))
        if policy == "noeviction":
            return ""
        return (
            f"Redis has maxmemory-policy {policy}: when its memory is full it may drop delayed messages and whole "
            "queues without a word. Set it to noeviction"
        )

    def close(self) -> None:
        """Closes the connections of the client, behind Sentinel also those to the Sentinels."""
        pools.close(self.client.connection_pool)

    def _info(self, section: str) -> dict[str, Any]:
        try:
            return dict(self.client.info(section))
        except ResponseError:  # forbidden by an ACL, or renamed by the server
            return {}
