"""The store's operations on single waiting messages, found by their ids."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple, TypeVar

from kombu_delayq.message.fields import CHAIN_ID
from kombu_delayq.message.pages import pages
from kombu_delayq.redis.replies import Command, as_bytes, as_text, digest
from kombu_delayq.store.client import ScriptCall
from kombu_delayq.store.searching import MAX_BYTES, Searching, SearchScript
from kombu_delayq.store.types import JOURNAL, QueueForm, Waiting, hidden

T = TypeVar("T")

#: Largest number of further messages of one id that one call finds.
MAX_TWINS = 100
#: Largest number of messages that one call changes, by layout: in list layout each costs Redis a few times more.
CHANGES_A_CALL = {"hash": 100, "redisson": 30, JOURNAL: 100}


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


class Lookup(Searching):
    """Finds waiting messages by their ids, cancels and moves them. A few hundred ids at a time keep calls short."""

    def get(self, queues: Sequence[str], ids: Sequence[str]) -> dict[str, list[Waiting]]:
        """Reads the waiting messages of some ids; one round trip.

        Args:
            queues: Names of the queues to search.
            ids: Task ids, or ids under which messages are stored.

        Returns:
            By id, the waiting messages of the id, the next due first; several when two tasks have one id. An id without
            messages is left out.
        """

        def call(form: QueueForm, part: Sequence[str]) -> ScriptCall:
            return self._client.stored(*form), [MAX_TWINS, MAX_BYTES, *map(as_bytes, part)], form.layout

        return self._of_ids(SearchScript("get", call), queues, ids, {})

    def cancel(
        self,
        queues: Sequence[str],
        ids: Sequence[str],
        found: dict[str, list[Waiting]] | None = None,
    ) -> dict[str, list[Waiting]]:
        """Removes the waiting messages of some ids; one round trip, two if there are any. Returns them as ``get`` does.

        The returned messages will never be delivered. An id that is not returned had no message. If an id has messages
        and none of them is a step of a delay chain, this undoes ``refuse`` for the id.

        Args:
            queues: Names of the queues to search.
            ids: As for ``get``.
            found: Filled with the result, part by part, so that a caller has the parts that came before an error.
        """

        def call(form: QueueForm, part: Sequence[str]) -> ScriptCall:
            args: list[Any] = [MAX_TWINS, MAX_BYTES, self._keys.counts(form.queue)]
            return self._client.stored(*form), [*args, *map(as_bytes, part)], form.layout

        found = {} if found is None else found
        try:
            return self._of_ids(SearchScript("cancel", call), queues, ids, found)
        finally:
            self.end_chains({identity: found[identity] for identity in ids if identity in found})

    def reschedule(self, queue: str, changes: Sequence[Change]) -> list[str]:
        """Changes when messages of one queue are due.

        Returns:
            A word for each change: ``rescheduled``; or, with nothing changed, ``not_delayed``, ``changed`` (another
            body, or another due time, waits under the id by now) or ``due`` (the new due time is past).
        """

        def call(layout: str, part: Sequence[Change]) -> ScriptCall:
            args: list[Any] = [self._client.wake(queue, layout), queue, self._keys.counts(queue)]
            for message, due_ms, body in part:
                args += [*as_read(message), repr(due_ms), body]
            return self._client.stored(queue, layout), args, layout

        return self._in_each_form("reschedule", [(change.message, change) for change in changes], call)

    def run_now(self, queue: str, changes: Sequence[Change]) -> list[str]:
        """Pushes messages of one queue to its lists before they are due. Ignores the due times of the changes.

        Returns:
            A word for each change: ``transferred``; or, with nothing changed, ``not_delayed`` or ``changed``, as in
            ``reschedule``.
        """

        def call(layout: str, part: Sequence[Change]) -> ScriptCall:
            args: list[Any] = [self._keys.counts(queue), *self._client.list_of_priority]
            for message, _, body in part:
                args += [*as_read(message), body]
            return [*self._client.stored(queue, layout), *self._client.ready(queue)], args, layout

        return self._in_each_form("run_now", [(change.message, change) for change in changes], call)

    def discard(self, queue: str, messages: Sequence[tuple[Waiting, str]]) -> list[str]:
        """Removes messages of one queue that are still as they were read; other messages of their ids stay.

        Args:
            queue: Its name.
            messages: Each message, and the id of the delay chain of which it is a step, which ends; else an empty text.

        Returns:
            A word for each message: ``cancelled``; or, with nothing changed, ``not_delayed`` or ``changed``, as in
            ``reschedule``.
        """

        def call(layout: str, part: Sequence[Waiting]) -> ScriptCall:
            args: list[Any] = [self._keys.counts(queue)]
            for message in part:
                args += as_read(message)
            return self._client.stored(queue, layout), args, layout

        words = self._in_each_form("discard", [(message, message) for message, _ in messages], call)
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
        self._client.run("refuse", [self._keys.cancelled, self._keys.chains], [ttl_ms, inf, 0, *map(as_bytes, chains)])
        self._client.send([("ZREM", self._keys.chains, *map(as_bytes, chains))])
        for page in pages(chains, CHANGES_A_CALL["hash"]):
            later = self.get([queue], page)
            steps = [(one, "") for found in later.values() for one in found if is_step(one)]
            self.discard(queue, steps)

    def _in_each_form(
        self, operation: str, items: Sequence[tuple[Waiting, T]], call: Callable[[str, Sequence[T]], ScriptCall]
    ) -> list[str]:
        """Runs a script for messages of one queue, for each layout in which they are, some at a time."""
        words = [""] * len(items)
        for layout in dict.fromkeys(message.layout for message, _ in items):
            places = (at for at, (message, _) in enumerate(items) if message.layout == layout)
            for part in pages(places, CHANGES_A_CALL[layout], MAX_BYTES, lambda at: len(items[at][0].body or b"")):
                replies = self._client.run(operation, *call(layout, [items[at][1] for at in part]))
                for at, word in zip(part, replies, strict=True):
                    words[at] = as_text(word)
        return words


def as_read(message: Waiting) -> list[Any]:
    """Returns what a script compares, so that it changes no other message under the same id: id, SHA-1 and due time."""
    return [as_bytes(message.id), digest(message.body or b""), repr(message.due_ms)]
