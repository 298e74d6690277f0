"""The store's operations on single waiting messages, found by their ids."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple, TypeVar

from kombu.log import get_logger
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from kombu_delayq.errors import listed
from kombu_delayq.message import CHAIN_ID, pages
from kombu_delayq.redis import Args, Call, Command, Key, NotReached, Rows, Stored, ZSetKey, is_full, operation
from kombu_delayq.store.client import Into, Lists
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.part import StorePart
from kombu_delayq.store.types import Waiting, hidden, rows_of, waiting_of
from kombu_delayq.text import as_bytes, as_text, digest, readable

logger = get_logger(__name__)

#: About the largest number of bytes that one call looks up, which limits how long it keeps Redis busy.
MAX_BYTES = 300_000


T = TypeVar("T")
#: Makes a call of ``get`` or ``cancel`` of a queue and some ids.
Find = Callable[[str, Sequence[str]], Call[list[Any]]]

#: Largest number of further messages of one id that one call finds.
MAX_DUPLICATES = 100
#: So many queues in which nothing waits any more are searched.
SPARE_QUEUES = 20


def warn_not_ended(error: BaseException) -> None:
    """Logs that a full Redis keeps no note of cancelled chains. What waits is removed: that frees memory."""
    logger.warning("delay chains whose step runs just now are not ended, only what waits is removed: %s", error)


@operation()
def get(*, keys: Stored, count: int, max_bytes: int, ids: Args[bytes]) -> list[Any]: ...
@operation(once=True)
def cancel(*, keys: Stored, count: int, max_bytes: int, counts: Key, ids: Args[bytes]) -> list[Any]: ...
@operation()
def reschedule(*, into: Into, counts: Key, rows: Rows[tuple[bytes, str, str, str, bytes]]) -> list[str]: ...
@operation(once=True)
def run_now(*, keys: Stored, counts: Key, lists: Lists, rows: Rows[tuple[bytes, str, str, bytes]]) -> list[str]: ...
@operation(once=True)
def discard(*, keys: Stored, counts: Key, rows: Rows[tuple[bytes, str, str]]) -> list[str]: ...
@operation()
def cancel_chains(
    *, cancelled: ZSetKey, chains: ZSetKey, ttl: int, most: float, in_use: bool, ids: Args[bytes]
) -> list[int]: ...


class NotSearched(RedisConnectionError):
    """A node of a cluster is away, so its queues were not searched for ids that no other queue has.

    Args:
        away: By queue, the error of its node: none of Redis, but of the connection.
        ids: The ids that were not found.
        found: What the other queues had, by id.
    """

    def __init__(self, away: dict[str, Exception], ids: list[str], found: dict[str, list[Waiting]]) -> None:
        queues, tasks = (f"{what}{'s' * (len(all_of) != 1)}" for what, all_of in (("queue", away), ("task", ids)))
        super().__init__(
            f"{len(away):,} {queues} not searched: {listed(list(away))}; {len(ids):,} {tasks} may still wait there: "
            f"{listed(ids)}: {next(iter(away.values()))}"
        )
        self.ids, self.found = ids, found
        #: Whether a node may have run the command that it did not answer.
        self.may_have_run = not all(isinstance(one, NotReached) for one in away.values())


class Change(NamedTuple):
    """A change of a waiting message.

    Attributes:
        message: The message as it was read. If another message has its id now, that one stays as it is.
        due_ms: New due time, ms since the epoch.
        body: New body, which contains the new due time.
    """

    message: Waiting
    due_ms: float
    body: bytes

    def __repr__(self) -> str:
        return f"Change(message={self.message!r}, due_ms={self.due_ms!r}, body={hidden(self.body)})"


def is_step(message: Waiting) -> bool:
    """Whether a message is a step of a delay chain."""
    # A step may have been delivered twice, and its other copy may run: then the step after it has to be refused.
    return CHAIN_ID.encode() in (message.body or b"")


class Lookup(StorePart):
    """Finds waiting messages by their ids, cancels and moves them. A few hundred ids at a time keep calls short."""

    #: The queues that ``cancel_at_once`` searches: those of the ``cancel`` before.
    _searched: frozenset[str] = frozenset()

    def get(self, queues: Sequence[str], ids: Sequence[str]) -> dict[str, list[Waiting]]:
        """Reads the waiting messages of some ids; one round trip.

        Args:
            queues: Names of the queues to search.
            ids: Task ids, or ids under which messages are stored.

        Returns:
            By id, the waiting messages of the id, the next due first; several when two tasks have one id. An id without
            messages is left out.

        Raises:
            NotSearched: A node of a cluster is away, and not all ids were found elsewhere.
        """
        return self._of_ids(self._get, queues, ids, {})

    def cancel(
        self,
        queues: Sequence[str],
        ids: Sequence[str],
        found: dict[str, list[Waiting]] | None = None,
    ) -> dict[str, list[Waiting]]:
        """Removes the waiting messages of some ids; one round trip, two if there are any. Returns them as ``get`` does.

        The returned messages will never be delivered. An id that is not returned had no message. If an id has messages
        and none of them is a step of a delay chain, this undoes ``cancel_chains`` for the id.

        Args:
            queues: Names of the queues to search.
            ids: As for ``get``.
            found: Filled with the result, part by part, so that a caller has the parts that came before an error.

        Raises:
            NotSearched: As ``get``. What the other nodes had is removed.
        """
        found = {} if found is None else found
        self._searched = frozenset(queues)
        try:
            return self._of_ids(self._cancel, queues, ids, found)
        finally:
            self.end_chains({identity: found[identity] for identity in ids if identity in found})

    def cancel_at_once(self, ids: Sequence[str], found: dict[str, list[Waiting]]) -> set[str]:
        """Removes waiting messages of some ids from the queues of the ``cancel`` before; one round trip.

        It refuses no step of a delay chain, and ends none.

        Args:
            ids: Task ids.
            found: Filled with the messages that were removed, by id.

        Returns:
            The ids that were not looked for everywhere: all where this store has cancelled nothing before or there are
            further queues, those with more messages than one call removes, and in a layout that other clients write,
            those without any.

        Raises:
            NotSearched: As ``cancel``.
        """
        queues = sorted(self._searched)
        if not queues:
            return {*ids}
        calls = [self._cancel(queue, ids) for queue in queues]
        known = ("SMEMBERS", self._keys.queues)
        replies, [(names, _)] = self._client.run_each(calls, [known], again=False)
        unsearched = set[str]()
        away = {queue: reply for queue, reply in zip(queues, replies, strict=True) if _is_away(reply)}
        for queue, reply in zip(queues, replies, strict=True):
            rows = [] if isinstance(reply, Exception) else reply
            unsearched.update(() if queue in away else ids[len(rows) :])
            self._add(queue, ids, rows, found)
        _check_found(away, ids, found)
        for identity, messages in found.items():
            messages.sort(key=lambda message: message.due_ms)
            if len(messages) >= MAX_DUPLICATES:
                unsearched.add(identity)
        if LAYOUT_OF[self._client.layout].is_shared:
            unsearched.update(identity for identity in ids if identity not in found)
        if isinstance(names, Exception):
            return {*ids}
        now_known = [name for name in map(as_text, names) if self._keys.is_usable(name)]
        missing = not self._searched.issuperset(now_known)
        if missing or len(self._searched) > len(now_known) + SPARE_QUEUES:
            self._searched = frozenset(now_known)
        return {*ids} if missing else unsearched

    def _get(self, queue: str, ids: Sequence[str]) -> Call[list[Any]]:
        keys = self._client.stored(queue)
        return get(keys=keys, count=MAX_DUPLICATES, max_bytes=MAX_BYTES, ids=map(as_bytes, ids))

    def _cancel(self, queue: str, ids: Sequence[str]) -> Call[list[Any]]:
        keys, counts = self._client.stored(queue), self._keys.counts(queue)
        return cancel(keys=keys, count=MAX_DUPLICATES, max_bytes=MAX_BYTES, counts=counts, ids=map(as_bytes, ids))

    def _of_ids(
        self, find: Find, queues: Sequence[str], ids: Sequence[str], found: dict[str, list[Waiting]]
    ) -> dict[str, list[Waiting]]:
        """Gets or cancels messages, also for messages of other clients that are not findable so far."""
        away = self._search(find, queues if ids else [], ids, found)
        missing = [identity for identity in ids if identity not in found]
        if missing:
            grown = [queue for queue in queues if queue not in away and self._index(queue)]
            away |= self._search(find, grown, missing, found)
        for messages in found.values():
            messages.sort(key=lambda message: message.due_ms)
        _check_found(away, ids, found)
        return found

    def _search(
        self, find: Find, queues: Sequence[str], ids: Sequence[str], found: dict[str, list[Waiting]]
    ) -> dict[str, Exception]:
        """Searches queues for ids and adds what it finds.

        It logs a queue that Redis refuses to search and goes on, so that the results of other queues are not lost.

        Returns:
            By queue, the errors of nodes that are away.

        Raises:
            redis.exceptions.ResponseError: None of the queues can be searched, and nothing has been found.
        """
        away: dict[str, Exception] = {}
        done = dict.fromkeys(queues, 0)  # how many of the ids were searched in each queue
        while done:
            replies, _ = self._client.run_each([find(queue, ids[count:]) for queue, count in done.items()])
            self._check(dict(zip(done, replies, strict=True)), -1 if found else len(queues))
            for queue, reply in zip(list(done), replies, strict=True):
                if isinstance(reply, Exception):
                    done[queue] = len(ids)
                    away |= {queue: reply} if _is_away(reply) else {}
                    continue
                self._add(queue, ids[done[queue] :], reply, found)
                done[queue] += len(reply)
            done = {queue: count for queue, count in done.items() if count < len(ids)}
        return away

    def _add(self, queue: str, ids: Sequence[str], rows: Sequence[Any], found: dict[str, list[Waiting]]) -> None:
        """Adds the messages of a queue's rows, one for each of the first ids, to those that were found."""
        for identity, parts in zip(ids, rows, strict=False):
            if parts:
                messages = (waiting_of(queue, self._client.layout, row) for row in rows_of(parts))
                found.setdefault(identity, []).extend(messages)

    def _check(self, replies: dict[str, Any], most: int) -> None:
        """Logs which queues Redis refuses to search; raises the first error if their number is ``most``."""
        failed = {queue: reply for queue, reply in replies.items() if isinstance(reply, ResponseError)}
        if len(failed) == most:
            raise next(iter(failed.values()))
        for queue, error in failed.items():
            logger.error("queue %r cannot be searched for delayed messages: %s", queue, readable(error))

    def _index(self, queue: str) -> int:
        try:
            return self.index(queue)
        except ResponseError as error:
            logger.error("queue %r cannot be searched for messages of other clients: %s", queue, readable(error))
            return 0

    def index(self, queue: str) -> int:
        """Makes messages that others have offered findable by their ids, in a shared layout. Returns how many."""
        return LAYOUT_OF[self._client.layout].index_others(self._client, queue)

    def reschedule(self, queue: str, changes: Sequence[Change]) -> list[str]:
        """Changes when messages of one queue are due.

        Returns:
            A word for each change: ``rescheduled``; or, with nothing changed, ``not_delayed``, ``changed`` (another
            body, or another due time, waits under the id by now) or ``due`` (the new due time is past).
        """

        def call(part: Sequence[Change]) -> Call[list[str]]:
            rows = [(*as_read(message), repr(due_ms), body) for message, due_ms, body in part]
            return reschedule(into=self._client.into(queue), counts=self._keys.counts(queue), rows=rows)

        return self._change_each([(change.message, change) for change in changes], call)

    def run_now(self, queue: str, changes: Sequence[Change]) -> list[str]:
        """Pushes messages of one queue to its lists before they are due. Ignores the due times of the changes.

        Returns:
            A word for each change: ``transferred``; or, with nothing changed, ``not_delayed`` or ``changed``, as in
            ``reschedule``.
        """

        def call(part: Sequence[Change]) -> Call[list[str]]:
            keys, counts, lists = self._client.stored(queue), self._keys.counts(queue), self._client.lists(queue)
            rows = [(*as_read(message), body) for message, _, body in part]
            return run_now(keys=keys, counts=counts, lists=lists, rows=rows)

        return self._change_each([(change.message, change) for change in changes], call)

    def discard(self, queue: str, messages: Sequence[tuple[Waiting, str]]) -> list[str]:
        """Removes messages of one queue that are still as they were read; other messages of their ids stay.

        Args:
            queue: Its name.
            messages: Each message, and the id of the delay chain of which it is a step, which ends; else an empty text.

        Returns:
            A word for each message: ``cancelled``; or, with nothing changed, ``not_delayed`` or ``changed``, as in
            ``reschedule``.
        """

        def call(part: Sequence[Waiting]) -> Call[list[str]]:
            return discard(keys=self._client.stored(queue), counts=self._keys.counts(queue), rows=map(as_read, part))

        words = self._change_each([(message, message) for message, _ in messages], call)
        chains = [chain for (_, chain), word in zip(messages, words, strict=True) if chain and word == "cancelled"]
        if chains:
            self._refuse(queue, chains)
        return words

    def end_chains(self, found: dict[str, list[Waiting]]) -> None:
        """Ends the chains whose steps were cancelled; other ids whose messages were are free for a chain again."""
        commands: list[Command] = []
        for identity, messages in found.items():
            key = self._keys.chains if any(map(is_step, messages)) else self._keys.cancelled
            commands.append(("ZREM", key, as_bytes(identity)))
        if commands:
            self._client.send(commands)

    def _refuse(self, queue: str, chains: Sequence[str]) -> None:
        """Ends delay chains of which a step was just removed.

        A copy of the step may have run and stored the next one meanwhile, so the queue is searched after the note.
        """
        ttl_ms = round(self._client.options.cancelled_ttl * 1000)
        try:
            of, ids = {"cancelled": self._keys.cancelled, "chains": self._keys.chains}, map(as_bytes, chains)
            self._client.run(cancel_chains(**of, ttl=ttl_ms, most=inf, in_use=False, ids=ids))
        except ResponseError as error:
            if not is_full(error):
                raise
            warn_not_ended(error)
        self._client.send([("ZREM", self._keys.chains, *map(as_bytes, chains))])
        for page in pages(chains, LAYOUT_OF["hash"].changes_a_call):
            later = self.get([queue], page)
            steps = [(one, "") for found in later.values() for one in found if is_step(one)]
            self.discard(queue, steps)

    def _change_each(
        self, items: Sequence[tuple[Waiting, T]], call: Callable[[Sequence[T]], Call[list[str]]]
    ) -> list[str]:
        """Runs a script for messages of one queue, some at a time."""
        words: list[str] = []
        most = LAYOUT_OF[self._client.layout].changes_a_call
        for part in pages(items, most, MAX_BYTES, lambda item: len(item[0].body or b"")):
            words += self._client.run(call([item for _, item in part]))
        return words


def _is_away(reply: object) -> bool:
    """Whether a reply is an error of the connection to a node, and none of Redis: nobody knows what the node has."""
    return isinstance(reply, Exception) and not isinstance(reply, ResponseError)


def _check_found(away: dict[str, Exception], ids: Sequence[str], found: dict[str, list[Waiting]]) -> None:
    """Raises the error of nodes that are away if an id was not found elsewhere; else logs it."""
    missing = [identity for identity in ids if identity not in found]
    if away and missing:
        raise NotSearched(away, missing, found)
    if away:
        queues, error = listed(list(away)), next(iter(away.values()))
        logger.warning("queues not searched for further tasks of ids that were found: %s: %s", queues, error)


def as_read(message: Waiting) -> tuple[bytes, str, str]:
    """Returns what a script compares, so that it changes no other message under the same id: id, SHA-1 and due time."""
    return as_bytes(message.id), digest(message.body or b""), repr(message.due_ms)
