"""Dead letters: as a user sees them, and how they are read, replayed and dropped. Knows the store, and no app."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from typing import Any

from celery_ext.waiting import DelayedTask
from kombu_delayq.message.dead_letters import DEAD_LETTER
from kombu_delayq.message.due import in_utc
from kombu_delayq.message.fields import priority_of
from kombu_delayq.message.rewrite import with_properties
from kombu_delayq.store import OperatorStore
from kombu_delayq.store.dead_letters import Letter
from kombu_delayq.store.types import Waiting


@dataclass(frozen=True, repr=False)
class DeadLetter:
    """A message in a queue of dead letters. Not all were buried by a failed task: anybody may put messages there.

    The repr has no arguments of the task, so that it may be logged.

    Attributes:
        buried_in: Name of the queue of dead letters.
        message: The message as it is in the list.
    """

    buried_in: str
    message: bytes

    def __repr__(self) -> str:
        at = self.at.isoformat() if self.at else None
        return f"<DeadLetter: {self.name} id={self.id!r} buried_in={self.buried_in!r} reason={self.reason!r} at={at}>"

    @cached_property
    def task(self) -> DelayedTask:
        """The task and its arguments."""
        task = DelayedTask(Waiting(self.buried_in, "", 0.0, 0, self.message))
        tag = task.properties.get("delivery_tag")
        return task if task.id or not isinstance(tag, str) else DelayedTask(task.message._replace(id=tag))

    @property
    def id(self) -> str:
        """The task id; for a message that is no task, the delivery tag."""
        return self.task.id

    @property
    def name(self) -> str | None:
        """Name of the task; None for a message that is no task."""
        return self.task.name

    @property
    def reason(self) -> str | None:
        """Why the message was buried; None for a message that kombu-delayq did not bury."""
        return self._text("reason")

    @property
    def error(self) -> str | None:
        """The last error of the task."""
        return self._text("error")

    @property
    def traceback(self) -> str | None:
        """Where the last error was raised, as Python prints it; None where no process of the task could say so."""
        return self._text("traceback")

    @property
    def worker(self) -> str | None:
        """Node name of the worker, or the host, that buried the message."""
        return self._text("worker")

    @property
    def exchange(self) -> str | None:
        """Exchange through which the task came to its worker; empty for the default exchange."""
        return self._text("exchange")

    @property
    def routing_key(self) -> str | None:
        """Routing key of the task; with the default exchange, the name of its queue."""
        return self._text("routing_key")

    @property
    def retries(self) -> int:
        """How often the task was retried."""
        found = self._record.get("retries")
        return found if isinstance(found, int) else 0

    @property
    def at(self) -> datetime | None:
        """When the message was buried, by the clock of the worker."""
        try:
            at = datetime.fromisoformat(self._text("at") or "")
        except ValueError:
            return None
        return in_utc(at)

    @property
    def priority(self) -> int:
        """0 to 9."""
        return priority_of({"properties": self.task.properties})

    def released(self, exchange: str, routing_key: str) -> bytes:
        """Returns the message to push to a queue: without the record, with this exchange and routing key as address."""
        address = {"exchange": exchange, "routing_key": routing_key}
        return with_properties(self.message, {DEAD_LETTER: None}, delivery_info=address)

    @property
    def _record(self) -> Mapping[str, Any]:
        found = self.task.properties.get(DEAD_LETTER)
        return found if isinstance(found, dict) else {}

    def _text(self, what: str) -> str | None:
        found = self._record.get(what)
        return found if isinstance(found, str) else None


#: Most dead letters in one call, and about the most bytes.
PAGE, PAGE_BYTES = 100, 1_000_000

#: How many of the latest letters of a list are searched for an id.
MOST_SEARCHED = 2_000

#: Decides where a dead letter goes.
Decide = Callable[[DeadLetter], Letter]


def queues(store: OperatorStore) -> set[str]:
    """Returns the queues of dead letters that Redis and the options know. All other queues hold tasks."""
    return {*store.figures.dead_letter_queues(), store.options.dead_letter_queue}


def count(store: OperatorStore, queue: str) -> Iterator[DeadLetter]:
    """Yields all dead letters of a queue, as ``browse`` does. Nobody else can replay or drop them meanwhile."""
    with store.letters.replaying(queue) as hold:
        for number, letter in enumerate(browse(store, queue)):
            if number % PAGE == 0:
                hold()
            yield letter


def browse(store: OperatorStore, queue: str) -> Iterator[DeadLetter]:
    """Yields the dead letters of a queue, priority by priority, the oldest first. Reads them a page at a time.

    It is no snapshot: if others take letters meanwhile, it may leave some out.
    """
    for key, length in store.letters.lists(queue).items():
        skip, count = 0, PAGE
        while skip < length:
            page = store.letters.page(key, skip, min(count, length - skip))
            if not page:
                break
            yield from (DeadLetter(queue, message) for message in page)
            skip, count = skip + len(page), _next_count(page)


def latest(store: OperatorStore, more: Iterable[str] = ()) -> Iterator[DeadLetter]:
    """Yields the latest ``MOST_SEARCHED`` dead letters of each queue and priority; nothing has an index of their ids.

    Args:
        store: The broker's store.
        more: Names of queues of dead letters, beside those that Redis knows. One that cannot be read is left out.
    """
    for queue in sorted({*store.figures.dead_letter_queues(), *more}):
        with suppress(*store.nodes.errors):
            yield from _latest(store, queue)


def _latest(store: OperatorStore, queue: str) -> Iterator[DeadLetter]:
    for key, length in store.letters.lists(queue).items():
        skip, count = max(length - MOST_SEARCHED, 0), PAGE
        while skip < length and (page := store.letters.page(key, skip, min(count, length - skip))):
            yield from (DeadLetter(queue, message) for message in page)
            skip, count = skip + len(page), _next_count(page)


def to_queue(letter: DeadLetter, queue: str, *, as_before: bool) -> Letter:
    """Decides that a dead letter goes to a queue.

    Args:
        letter: The dead letter.
        queue: Name of the queue.
        as_before: Whether the letter came from this queue. If so, it keeps its exchange and routing key.
    """
    way = (letter.exchange or "", letter.routing_key or queue) if as_before else ("", queue)
    return Letter(letter.message, "queue", queue, letter.priority, letter.released(*way))


def away(letter: DeadLetter) -> Letter:
    """Decides that a dead letter is dropped."""
    return Letter(letter.message, "away")


def back(letter: DeadLetter) -> Letter:
    """Decides that a dead letter stays."""
    return Letter(letter.message, "back")


def replay(
    store: OperatorStore, queue: str, decide: Decide, newest: datetime | None
) -> Iterator[tuple[DeadLetter, Letter]]:
    """Goes once through the dead letters of a queue and sends each where ``decide`` says.

    A letter that stays goes to the back of its list, so that after the round the order is as before. Redis moves each
    page in one step, so a round that is stopped loses no letter and doubles none. Letters that come meanwhile stay. A
    second round waits until this one is over.

    Args:
        store: The broker's store.
        queue: Name of the queue.
        decide: Decides where a letter goes; called again when a consumer took some letters meanwhile.
        newest: When the newest letter was buried, as ``count`` found; None if no letter has a time. A letter that was
            buried later came meanwhile.

    Yields:
        Each letter, and where it went.
    """

    def decide_unless_new(letter: DeadLetter) -> Letter:
        is_new = letter.at is not None and (newest is None or letter.at > newest)
        return back(letter) if is_new else decide(letter)

    with store.letters.replaying(queue) as hold:
        yield from _round(store, queue, decide_unless_new, hold)


def route_of(channel: Any, fanouts: Collection[str] = ()) -> Callable[[DeadLetter], str | None]:
    """Makes a function that returns the queue from which a dead letter came.

    The function returns None if the queue is unknown: the letter does not name its exchange, or the exchange is now
    bound to no queue for the letter's routing key, or to several.

    Args:
        channel: A channel of one of our transports, to read the bindings.
        fanouts: Exchanges whose messages wait in no queue.
    """

    @cache
    def queue_of(exchange: str, routing_key: str) -> str | None:
        if not exchange:
            return routing_key or None
        if exchange in fanouts:
            return None
        # Source: kombu.transport.virtual.exchange: a topic exchange has a pattern in its bindings, a direct one none.
        queues = {
            queue
            for key, pattern, queue in channel.get_table(exchange)
            if (re.match(pattern, routing_key) if pattern else key == routing_key)
        }
        return queues.pop() if len(queues) == 1 else None

    def route(letter: DeadLetter) -> str | None:
        if letter.exchange is None or letter.routing_key is None:
            return None
        return queue_of(letter.exchange, letter.routing_key)

    return route


def _round(
    store: OperatorStore, queue: str, decide: Decide, hold: Callable[[], None]
) -> Iterator[tuple[DeadLetter, Letter]]:
    for key, left in store.letters.lists(queue).items():
        count = PAGE
        while left > 0:
            hold()
            page = store.letters.page(key, 0, min(count, left))
            if not page:
                break
            letters = [DeadLetter(queue, message) for message in page]
            decided = [decide(letter) for letter in letters]
            # The delay chain of a task that was cancelled once has to begin anew when the task is replayed.
            ids = [letter.id for letter, decision in zip(letters, decided, strict=True) if decision.to == "queue"]
            store.chains.accept(ids)
            taken = store.letters.replay(
                queue, key, decided
            )  # fewer when a consumer took some: the next page begins there
            yield from zip(letters[:taken], decided[:taken], strict=True)
            left, count = left - taken, _next_count(page)


def _next_count(page: list[bytes]) -> int:
    """Returns how many dead letters to read next, by the size of those of the last page."""
    size = sum(map(len, page)) // len(page)
    return max(1, min(PAGE, PAGE_BYTES // max(size, 1)))
