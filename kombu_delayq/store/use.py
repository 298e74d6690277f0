"""Which queues are in use, and which may be forgotten."""

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress

from redis.exceptions import RedisError, ResponseError

from kombu_delayq.connection.nodes import clients_of
from kombu_delayq.connection.replies import checked, time_ms
from kombu_delayq.connection.text import as_bytes, as_text
from kombu_delayq.store.client import ScriptCall, StorePart
from kombu_delayq.store.registry import QueueRegistry

#: Consumers note the use of a queue, and the leader looks for unused ones, every 1/24 of ``forget_after``.
FORGET_SHARE = 1 / 24
#: For how many times ``forget_after`` the time of last use is kept of a queue that nobody knows any more.
KEPT_FOR = 3


class QueueUse(StorePart):
    """Notes which queues are in use, and forgets the others."""

    def keep_alive(self, queue: str, expire_ms: int = 0) -> None:
        """Notes that a queue is in use, so that it expires later and is not forgotten; one round trip, in a cluster 2.

        In Redisson's layout it also registers the queue: the first message may come from a JVM service, which registers
        nothing.

        Args:
            queue: Its name.
            expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.
        """

        def note(forms: Sequence[str]) -> None:
            args = [expire_ms, queue, int(self._client.layout == "redisson"), self._keys.counts(queue)]
            shared = [] if self._keys.slots else [self._keys.queues, self._keys.used]
            calls: list[ScriptCall] = [([*self._client.stored(queue, form), *shared], args, form) for form in forms]
            checked(self._client.run_each("keep_alive", calls)[0])

        self._client.in_each_form(note)
        if self._keys.slots:
            self.note_use(queue)

    def note_use(self, queue: str) -> None:
        """Does for ``keep_alive`` what its script cannot do in a cluster, where the names of queues are elsewhere."""
        args = [queue, int(self._client.layout == "redisson")]
        self._client.run("note_use", [self._keys.queues, self._keys.used], args)

    def forget(self, queues: Sequence[str], after_s: float, heard: Collection[str] = ()) -> list[str]:
        """Forgets queues without messages that have been unused for some time; one round trip, in a cluster four.

        A queue is in use if it has a message or a consumer (see ``keep_alive``), or if a JVM service listens to its new
        heads. The first time that a queue is seen, its time begins. Its counters go with it, but for those of a
        queue that is forgotten at once: they are kept for ``forget_after``.

        Args:
            queues: Names, about a hundred.
            after_s: For how long they must have been unused, in s; 0 forgets an empty queue at once.
            heard: Names of the queues in Redisson's layout to whose new heads transfer workers listen, the caller among
                them. So JVM services are those listeners that are more than the transfer workers.

        Returns:
            Names of the forgotten queues.

        In a cluster the names are in another slot than a queue. So a name leaves first, and comes back if the queue has
        a message then, see ``QueueRegistry``. Meanwhile its time of last use stays: if the caller dies in between,
        ``half_forgotten`` finds the name.
        """
        if self._keys.slots:
            return self._client.in_each_form(lambda forms: self._forget_apart(queues, after_s, heard, forms))

        def act(forms: Sequence[str]) -> list[str]:
            is_alone = "redisson" not in forms
            asks = after_s > 0 and not is_alone  # whether a JVM service listens
            keys = [self._keys.queues, self._keys.used]
            args = [str(after_s * 1000), self._keys.wake, str(self._client.options.counts_kept_ms)]
            for queue in queues:
                other_due = self._client.due(queue, "hash" if is_alone else "redisson")
                keys += [*self._client.stored(queue, "hash"), other_due]
                args += [
                    queue,
                    self._keys.counts(queue),
                    self._keys.channel(queue) if asks else "",
                    str(int(queue in heard)),
                ]
            return list(map(as_text, self._client.run("forget", keys, args, "hash")))

        return self._client.in_each_form(act)

    def half_forgotten(self) -> list[str]:
        """Returns names of queues that somebody was about to forget who has died then; only in a cluster are there any.

        ``forget`` makes those known again that have messages.
        """
        if self._keys.slots:
            with suppress(ResponseError):
                return list(map(as_text, self._client.ask("ZDIFF", 2, self._keys.used, self._keys.queues)))
        return []

    def forget_consumed(self, queues: Sequence[str]) -> list[str]:
        """Forgets in a cluster that queues had consumers which have none any more, and of which nothing is in hand.

        At most four round trips. The name leaves first. Who becomes a consumer meanwhile notes the name before it takes
        its lease and again after that, so one of the two sees the other.

        Args:
            queues: Names of some hundred queues.

        Returns:
            Names of the forgotten queues.
        """
        noted = self._keys.consumed_queues
        idle = [queue for queue, is_used in zip(queues, self._are_consumed(queues), strict=True) if not is_used]
        if not idle:
            return []
        self._client.ask("SREM", noted, *idle)
        back = [queue for queue, is_used in zip(idle, self._are_consumed(idle), strict=True) if is_used]
        if back:
            self._client.ask("SADD", noted, *back)
        return [queue for queue in idle if queue not in back]

    def _are_consumed(self, queues: Sequence[str]) -> list[bool]:
        """Returns of each queue whether it has a consumer, or a message in hand, as far as its node says."""
        of_share = self._keys.consumers, self._keys.unacked, self._keys.unacked_index
        commands = [("EXISTS", *(key(self._keys.share(queue)) for key in of_share)) for queue in queues]
        return [reply != 0 for reply in self._client.replies(commands)] if commands else []

    def vacate(self, queues: Sequence[str], how: str, forms: Sequence[str]) -> list[bool]:
        """Clears away what is left of queues without messages, or only looks for messages; one round trip.

        Args:
            queues: Names of the queues.
            how: ``look`` to clear nothing away; ``at_once`` to keep the counters for ``forget_after``, ``unused`` to
                remove them as well.
            forms: The layouts in which to look for messages.

        Returns:
            For each queue, whether it has messages.
        """
        other = "redisson" if "redisson" in forms else "hash"
        kept_ms = str(self._client.options.counts_kept_ms)
        calls: list[ScriptCall] = [
            (
                [*self._client.stored(queue, "hash"), self._client.due(queue, other)],
                [how, kept_ms, self._keys.counts(queue)],
                "hash",
            )
            for queue in queues
        ]
        replies = checked(self._client.run_each("vacate", calls)[0])
        return [as_text(reply) == "used" for reply in replies]

    def unlist(self, leaving: Sequence[str], in_use: Sequence[str], kept_ms: float) -> None:
        """Makes queues unknown, in a cluster, and notes of these and of others that they are in use now.

        A full Redis does it as well.

        Args:
            leaving: Names of the queues that become unknown. A time of use that was noted before stays.
            in_use: Names of queues that stay known.
            kept_ms: Older times of use are removed, ms; 0 keeps all.
        """
        args = [kept_ms, len(leaving), *leaving, *in_use]
        self._client.run("unlist", [self._keys.queues, self._keys.used], args)

    def _forget_apart(
        self, queues: Sequence[str], after_s: float, heard: Collection[str], forms: Sequence[str]
    ) -> list[str]:
        if not queues:
            return []
        leaving, in_use = self._looked_through(queues, after_s, heard, forms)
        if leaving or in_use or after_s:
            self.unlist(leaving, in_use, KEPT_FOR * after_s * 1000)
        return self._let_go(leaving, "unused" if after_s else "at_once", forms) if leaving else []

    def _looked_through(
        self, queues: Sequence[str], after_s: float, heard: Collection[str], forms: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """Returns the queues that may be forgotten, and those whose use is to be noted. Finds half forgotten ones."""
        after_ms, registry = after_s * 1000, QueueRegistry(self._client)
        names = [("ZMSCORE", self._keys.used, *queues), ("SMISMEMBER", self._keys.queues, *queues)]
        time, lasts, known = self._client.send([("TIME",), *names])
        now_ms = time_ms(time)
        has_messages = self.vacate(queues, "look", forms)
        listened = self._listened_to(queues, heard) if after_s > 0 and "redisson" in forms else set[str]()
        leaving: list[str] = []
        in_use: list[str] = []
        for queue, last_ms, is_known, is_full in zip(queues, lasts, known, has_messages, strict=True):
            is_used = is_full or queue in listened
            if not is_used and (not after_ms or (last_ms is not None and now_ms - last_ms >= after_ms)):
                leaving.append(queue)
            elif last_ms is None or (is_used and now_ms - last_ms > after_ms * FORGET_SHARE):
                in_use.append(queue)
            if is_full and not is_known:
                registry.know(queue)
        return leaving, in_use

    def _let_go(self, leaving: Sequence[str], how: str, forms: Sequence[str]) -> list[str]:
        """Clears queues away whose names have left, and brings the names back of those that have a message by now.

        Where a full Redis refuses a name, ``half_forgotten`` finds it. Returns the names of the others.
        """
        registry = QueueRegistry(self._client)
        try:
            is_full_again = self.vacate(leaving, how, forms)
        except Exception:
            for queue in leaving:
                registry.know(queue)
            raise
        gone = [queue for queue, is_full in zip(leaving, is_full_again, strict=True) if not is_full]
        for queue in leaving:
            if queue not in gone:
                registry.know(queue)
        if gone:
            self._client.send([("ZREM", self._keys.used, *gone)])
        return gone

    def _listened_to(self, queues: Sequence[str], heard: Collection[str]) -> set[str]:
        """Returns those of some queues to whose new heads a JVM service listens, on any node; all if one is silent.

        Args:
            queues: Names of the queues.
            heard: As of ``forget``.
        """
        channels = {queue: as_bytes(self._keys.channel(queue)) for queue in queues}
        counts = Counter[bytes]()
        try:
            for node in clients_of(self._client.redis, replicas=True).values():
                found = node.pubsub_numsub(*channels.values(), as_bytes(self._keys.wake))
                counts.update({as_bytes(channel): int(count) for channel, count in found})
        except RedisError:
            return set(queues)
        ours = counts[as_bytes(self._keys.wake)]
        return {queue for queue, channel in channels.items() if counts[channel] > (ours if queue in heard else 0)}
