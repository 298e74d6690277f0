"""Finding and changing messages by their ids, in Redis and in the journal."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from math import inf
from uuid import uuid4

from celery_ext.journal.both import PartOfBoth
from celery_ext.journal.epochs import loss_of
from celery_ext.journal.journal import Journal
from celery_ext.journal.promotion import ALL, Promotion, Row
from celery_ext.journal.rows import Addition
from celery_ext.journal.schema import MISSING, WAITING
from celery_ext.journal.views import add_to_count, as_read, names_of
from kombu_delayq.errors import UnreadableMessage
from kombu_delayq.message import key_of, with_eta
from kombu_delayq.redis import time_ms
from kombu_delayq.store import BESIDE, LAYOUT_OF, Change, Lookup, StoreClient, Waiting, is_step, shared_id
from kombu_delayq.text import as_bytes


def split(messages: Sequence[Waiting]) -> tuple[list[int], list[int]]:
    """Returns the positions of the messages that were read in the journal, and of those that were read in Redis."""
    places: tuple[list[int], list[int]] = [], []
    for at, message in enumerate(messages):
        places[message.layout != BESIDE].append(at)
    return places


#: How often rows are promoted early that stay in the journal, such as because another caller changes them just now.
PROMOTE_TRIES = 3


def rows_as_read(rows: Sequence[Row], messages: Sequence[Waiting]) -> list[Row | None]:
    """Returns for each message its row as it was read: one that waits for a message of the journal, else any."""
    by_content: defaultdict[object, list[Row]] = defaultdict(list)
    for row in rows:
        by_content[as_read(row)].append(row)
    found: list[Row | None] = [None] * len(messages)
    in_journal, in_redis = split(messages)
    for places, waits in ((in_journal, True), (in_redis, False)):
        for at in places:
            same = by_content[as_read(messages[at])]
            fitting = next((row for row in same if row.state == WAITING or not waits), None)
            if fitting is not None:
                found[at] = fitting
                same.remove(fitting)
    return found


def rows_at_any_time(rows: Sequence[Row], messages: Sequence[Waiting]) -> list[Row | None]:
    """Returns for each message its row; for a message in Redis without one as it was read, one with another due time.

    While a caller moves a message, its row has another due time than the message.
    """
    found = rows_as_read(rows, messages)
    left = [row for row in rows if row.state != WAITING and row not in found]
    for at in split(messages)[1]:
        if found[at] is None:
            found[at] = next((row for row in left if _is_same(row.body, messages[at].body or b"")), None)
            left = [row for row in left if row is not found[at]]
    return found


def _is_same(body: bytes, other: bytes) -> bool:
    """Whether two bodies are of one message, but for the eta."""
    try:
        return body == other or with_eta(body, 0.0) == with_eta(other, 0.0)
    except UnreadableMessage:
        return False


def promote_early(journal: Journal, promotion: Promotion, rows: Sequence[Row]) -> set[int]:
    """Promotes single rows early. The guard lets each row come once, also when the promoter has read it.

    The rows stay in the guard: a promoter may have read them before they were marked. A row that was marked or changed
    since the caller read it is left out.

    Returns:
        The numbers of the rows that Redis was given now or before. None, if Redis belongs to no journal yet.
    """
    there = set[int]()
    by_group: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_group[promotion.group_of(row.queue)].append(row)
    for group, left in by_group.items():
        while left:
            marker, epoch = promotion.marker(group), journal.epoch()
            if marker is None or marker.id != journal.id:
                break
            if marker.epoch > epoch or (group == ALL and marker.epoch < epoch):  # a queue's may be of an earlier one
                break
            # Since the caller read a row, a promoter may have pushed it, marked it and taken it out of the guard, and
            # its message may have left Redis. And a claim that came before the marker of the queue was not kept. So
            # each row is held first, and then read again.
            hold = uuid4().hex
            promotion.claim_rows(left, hold)
            left = journal.rows([row.seq for row in left])
            word, words = promotion.promote(marker.id, marker.token, left, hold)
            promoted = {seq for seq, word in words.items() if word in ("promoted", "pushed")}
            journal.mark(promoted, epoch)
            there |= promoted
            # Somebody else was faster: another caller, or a promoter, or one that was just elected.
            again = "free" if word == "superseded" else ""
            left = [row for row in left if words.get(row.seq, again) == "free"]
    return there


class JournaledLookup(PartOfBoth[Lookup]):
    """Finds waiting messages by their ids wherever they wait, cancels and moves them.

    Nothing changes before the database has answered. Rows of messages that Redis was given follow what becomes of
    these, so that a restore brings back no message that was cancelled.
    """

    def __init__(self, redis: Lookup, journal: Journal, client: StoreClient, promotion: Promotion) -> None:
        super().__init__(redis, journal)
        self._client = client
        self._promotion = promotion

    def get(self, queues: Sequence[str], ids: Sequence[str]) -> dict[str, list[Waiting]]:
        """Reads the waiting messages of some ids; see ``Lookup.get``."""
        rows, found = self._both(lambda: self._journal.get(ids) if ids else [], lambda: self._redis.get(queues, ids))
        return _merged(found, [row.waiting for row in rows if row.queue in {*queues}], ids)

    def cancel_at_once(self, ids: Sequence[str], found: dict[str, list[Waiting]]) -> set[str]:
        """Removes nothing: the journal is asked first, by ``cancel``. See ``Lookup.cancel_at_once``."""
        return {*ids}

    def cancel(
        self,
        queues: Sequence[str],
        ids: Sequence[str],
        found: dict[str, list[Waiting]] | None = None,
    ) -> dict[str, list[Waiting]]:
        """Removes the waiting messages of some ids; see ``Lookup.cancel``. The journal is searched in all queues.

        A message that a Redis had which has lost its data is cancelled, too, if it was not due by then.
        """
        found = {} if found is None else found
        if not ids:
            return found
        rows = self._journal.delete(ids)  # of any state: a row that stays could be restored
        taken = self._claimed(rows)
        in_redis: dict[str, list[Waiting]] = {}
        try:
            self._redis.cancel(queues, ids, in_redis)
        finally:
            known = {one.body for messages in in_redis.values() for one in messages}
            lost = self._lost([row for row in rows if row.state != WAITING and row.body not in known])
            found |= _merged({**in_redis}, [row.waiting for row in (*taken, *lost)], ids)
        # Also those of messages stored beside others, and those just made.
        removed = [one for messages in in_redis.values() for one in messages]
        self.delete_rows_of(names_of(removed), {(one.queue, one.priority, one.body) for one in removed})
        self._redis.end_chains({identity: found[identity] for identity in found if identity not in in_redis})
        for queue in {row.queue for row in taken}:
            add_to_count(self._client, queue, "cancel", sum(row.queue == queue for row in taken))
        return found

    def promote_ids(self, queue: str, ids: Collection[str]) -> list[Row]:
        """Promotes what waits in the journal under some ids or waiting keys, so that Redis knows all that waits so.

        Returns:
            The rows that stay: Redis takes none, because no promoter leads at the queue yet, or it has lost its data.
        """
        rows: list[Row] = []
        for _ in range(PROMOTE_TRIES):
            rows = [row for row in self._journal.get(ids) if row.queue == queue]
            if not rows:
                break
            promote_early(self._journal, self._promotion, rows)
        return rows

    def delete_rows_of(self, ids: Collection[str], gone: Collection[tuple[str, int, bytes | None]]) -> None:
        """Deletes the rows of messages that have left Redis.

        Args:
            ids: Their ids, those of other messages among them.
            gone: Queue, priority and body of each.
        """
        rows = self._journal.get(ids, None) if gone else []
        seqs = [row.seq for row in rows if (row.queue, row.priority, row.body) in gone]
        self._claimed(self._journal.delete_rows(seqs, None) if seqs else [])

    def discard(self, queue: str, messages: Sequence[tuple[Waiting, str]]) -> list[str]:
        """Removes messages of one queue that are still as they were read; see ``Lookup.discard``."""
        read = [message for message, _ in messages]
        words = ["not_delayed"] * len(messages)
        rows, (from_journal, from_redis) = self.rows_of(queue, read), split(read)
        waiting = [row.seq for row in rows if row and row.state == WAITING]
        taken = {row.seq for row in self._claimed(self._journal.delete_rows(waiting) if waiting else [])}
        done = {at for at, row in enumerate(rows) if row is not None and row.seq in taken}
        for at in sorted(done):
            words[at] = "cancelled"
            if chain := messages[at][1]:
                self._note_end(chain)
        add_to_count(self._client, queue, "cancel", len(taken))
        # A row may be taken that was just pushed: its message was read in Redis, and is there.
        in_redis = sorted({*from_redis, *from_journal} - done.intersection(from_journal))
        asked = [(self._as_in_redis(read[at]), messages[at][1]) for at in in_redis]
        for at, word in zip(in_redis, self._redis.discard(queue, asked) if asked else [], strict=True):
            words[at] = "cancelled" if words[at] == "cancelled" else word
        self._delete_rows_behind(queue, [read[at] for at in in_redis if words[at] == "cancelled"])
        self._discard_later_steps(queue, [messages[at][1] for at, word in enumerate(words) if word == "cancelled"])
        return words

    def reschedule(self, queue: str, changes: Sequence[Change]) -> list[str]:
        """Changes when messages of one queue are due; see ``Lookup.reschedule``.

        A message of the journal that is due within the horizon by then comes to Redis. What is in Redis stays there.
        """
        now_ms = self._now_ms()
        far_ms = now_ms + self._client.options.journal_horizon * 1000
        words = ["due" if change.due_ms <= now_ms else "" for change in changes]
        rows = self._ask_journal(queue, changes, words, far_ms)
        for at, (change, row) in enumerate(zip(changes, rows, strict=True)):
            if (
                not words[at] and row is not None and change.due_ms > row.due_ms
            ):  # a row is never due before its message
                self._journal.follow([(row.seq, self._addition(queue, change, row))])
        for at in self._ask_redis(self._redis.reschedule, queue, changes, words):
            self._follow(queue, changes[at], rows[at], words[at])
        return words

    def run_now(self, queue: str, changes: Sequence[Change]) -> list[str]:
        """Pushes messages of one queue to its lists before they are due; see ``Lookup.run_now``.

        If Redis does not belong to the journal yet, a message of the journal becomes due now, and the first promoter
        pushes it: the word is ``rescheduled`` then.
        """
        words, now_ms = [""] * len(changes), self._now_ms()
        now = [change._replace(due_ms=now_ms) for change in changes]
        rows = self._ask_journal(queue, now, words, inf)
        for at in self._ask_redis(self._redis.run_now, queue, changes, words):
            row = rows[at]
            if words[at] == "transferred" and row is not None:  # its row has come due as well
                self._journal.follow([(row.seq, self._addition(queue, now[at], row))])
        return words

    def _ask_journal(
        self, queue: str, changes: Sequence[Change], words: list[str], far_ms: float
    ) -> Sequence[Row | None]:
        """Changes messages that stay in the journal, and promotes those that are due up to ``far_ms``.

        Args:
            queue: The queue of the messages.
            changes: The changes.
            words: The words so far; a change that has one is left out, and gets one if nothing is left to do in Redis.
            far_ms: Ms since the epoch.

        Returns:
            The row of each message, which has to follow what becomes of it in Redis.
        """
        read = [change.message for change in changes]
        rows, (from_journal, from_redis) = self.rows_of(queue, read, at_any_time=True), split(read)
        here = {at: rows[at] for at in from_journal if not words[at]}
        near = [row for at, row in here.items() if row is not None and changes[at].due_ms <= far_ms]
        promoted = promote_early(self._journal, self._promotion, near)
        # Of messages that were found in Redis, a promoter may not have marked the rows yet.
        found = [rows[at] for at in from_redis]
        promote_early(
            self._journal, self._promotion, [row for row in found if row is not None and row.state == WAITING]
        )
        for at, row in here.items():
            if row is None or row.seq not in promoted:
                words[at] = self._replace(queue, row, changes[at])
        return rows

    def _ask_redis(
        self,
        change_each: Callable[[str, Sequence[Change]], list[str]],
        queue: str,
        changes: Sequence[Change],
        words: list[str],
    ) -> list[int]:
        """Makes the changes that have no word yet in Redis, and notes their words. Returns which they were."""
        left = [at for at, word in enumerate(words) if not word]
        asked = [changes[at]._replace(message=self._as_in_redis(changes[at].message)) for at in left]
        for at, word in zip(left, change_each(queue, asked) if asked else [], strict=True):
            words[at] = word
        return left

    def _replace(self, queue: str, row: Row | None, change: Change) -> str:
        """Changes a message that waits in the journal, and counts that. Returns the word for it.

        ``changed`` says that its row was changed, marked or deleted since the message was read.
        """
        if row is None:
            return "changed"
        if self._promotion.claim_rows([row])[row.seq] == "pushed":  # it is in Redis by now, or has left it
            return "not_delayed"
        [seq] = self._journal.replace([(row.seq, self._addition(queue, change, row))])
        if seq is None:
            return "changed"
        # Again, because a promoter may have dropped the claim before the row was replaced.
        if self._promotion.claim_rows([row])[row.seq] == "pushed":
            if self._redis.discard(row.queue, [(self._as_in_redis(row.waiting), "")]) != ["cancelled"]:
                self._claimed(self._journal.delete_rows([seq]))
                return "not_delayed"
            add_to_count(self._client, row.queue, "cancel", -1)
        add_to_count(self._client, queue, "reschedule", 1)
        return "rescheduled"

    def _follow(self, queue: str, change: Change, row: Row | None, word: str) -> None:
        """Lets the row of a message in Redis follow its reschedule, or takes that back if it has failed.

        It is not taken back if another caller has changed the message: that caller may rely on the row as it is now.
        """
        if row is None:
            return
        later = change.due_ms > row.due_ms
        if word == "rescheduled" and not later:
            self._journal.follow([(row.seq, self._addition(queue, change, row))])
        elif word not in ("rescheduled", "changed") and later:
            self._journal.follow([(row.seq, _addition_of(row))])

    def _addition(self, queue: str, change: Change, row: Row | None) -> Addition:
        """Returns a changed message in the layout that the journal takes, for a queue."""
        message, due_ms = change.message, float(LAYOUT_OF[self._client.layout].kept_ms(change.due_ms))
        identity = row.id if row else shared_id(message.id) or message.id
        return Addition(queue, identity, due_ms, message.priority, change.body, row.expire_ms if row else 0)

    def rows_of(self, queue: str, messages: Sequence[Waiting], *, at_any_time: bool = False) -> list[Row | None]:
        """Returns for each message its row as it was read: one that waits for a message of the journal, else any.

        Args:
            queue: The queue of the messages.
            messages: The messages.
            at_any_time: Whether a row with another due time will do; see ``rows_at_any_time``.
        """
        rows = [row for row in self._journal.get(names_of(messages), None) if row.queue == queue] if messages else []
        return (rows_at_any_time if at_any_time else rows_as_read)(rows, messages)

    def _lost(self, rows: Sequence[Row]) -> list[Row]:
        """Returns those of the rows whose messages Redis has lost: they were not due when it lost its data."""
        if not rows:
            return []
        ended, current = {one.epoch: one for one in self._journal.epochs()}, self._journal.epoch()
        unnoticed: dict[str, float] = {}
        found = []
        for row in rows:
            if row.state > current:  # Redis was given it after a loss that nobody has noted yet
                continue
            loss = loss_of(ended, row.state, row.queue)
            if row.state == MISSING:
                limit_ms = -inf
            elif loss is not None:
                limit_ms = inf if loss.restored_ms is not None else loss.watermarks.of(row.queue)
            else:
                if row.queue not in unnoticed:
                    unnoticed[row.queue] = self._unnoticed_ms(row.queue)
                limit_ms = unnoticed[row.queue]
            if row.due_ms >= limit_ms:
                found.append(row)
        return found

    def _unnoticed_ms(self, queue: str) -> float:
        """Returns the watermark of a queue whose loss nobody has noticed yet; infinity without a loss."""
        heartbeat = self._journal.heartbeat()  # before the marker, which is never more than one behind it
        if not heartbeat:
            return inf
        marker = self._promotion.marker(queue)
        if marker is None and queue not in self._journal.marked():
            marker = self._promotion.marker()  # a queue that is new may have no marker yet
        is_lost = marker is None or marker.heartbeat < heartbeat - 1
        return self._journal.watermarks().of(queue) if is_lost else inf

    def _claimed(self, rows: Sequence[Row]) -> list[Row]:
        """Claims deleted rows. Returns those that no promoter has put, or will put, into Redis."""
        waited = [row for row in rows if row.state == WAITING]
        words = self._promotion.claim_rows(waited) if waited else {}
        return [row for row in waited if words[row.seq] == "claimed"]

    def _delete_rows_behind(self, queue: str, removed: Sequence[Waiting]) -> None:
        """Deletes rows of messages that were removed from Redis, also those marked, or moved, since they were read.

        Not before: the row of a message that stays, because another caller has changed it, has to stay as well.
        """
        if removed:
            rows = self.rows_of(queue, [self._as_in_redis(message) for message in removed], at_any_time=True)
            left = [row.seq for row in rows if row]
            self._claimed(self._journal.delete_rows(left, None) if left else [])

    def _discard_later_steps(self, queue: str, chains: Sequence[str]) -> None:
        """Removes steps that wait in the journal of chains that have ended: a copy of the removed step may have run."""
        ended = [chain for chain in chains if chain]
        rows = self._journal.get(ended) if ended else []
        steps = [row.waiting for row in rows if row.queue == queue and is_step(row.waiting)]
        if steps:
            self.discard(queue, [(step, "") for step in steps])

    def _note_end(self, chain: str) -> None:
        ttl_ms = round(self._client.options.cancelled_ttl * 1000)
        until_ms = self._now_ms() + ttl_ms
        self._client.send(
            [
                ("ZADD", self._client.keys.cancelled, "GT", repr(until_ms), as_bytes(chain)),
                ("PEXPIRE", self._client.keys.cancelled, ttl_ms),
                ("ZREM", self._client.keys.chains, as_bytes(chain)),
            ]
        )

    def _as_in_redis(self, message: Waiting) -> Waiting:
        return message._replace(layout=self._client.layout)

    def _now_ms(self) -> float:
        return time_ms(self._client.ask("TIME"))


def _merged(found: dict[str, list[Waiting]], rows: Sequence[Waiting], ids: Collection[str]) -> dict[str, list[Waiting]]:
    """Adds messages of the journal to what Redis has found for ids or waiting keys, but for those that Redis has."""
    for one in rows:
        for name in {one.id, key_of(one.id)}.intersection(ids):
            known = found.get(name, [])
            if as_read(one) not in map(as_read, known):
                found[name] = [*known, one]
    for messages in found.values():
        messages.sort(key=lambda message: message.due_ms)
    return found


def _addition_of(row: Row) -> Addition:
    return Addition(row.queue, row.id, row.due_ms, row.priority, row.body, row.expire_ms)
