"""Dead letters: as a user sees them, and how they are read, replayed and dropped. Knows the store, and no app."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate, islice
from math import inf
from time import monotonic, sleep
from typing import Any, NamedTuple, Self

from celery_ext.waiting import DelayedTask, buried_task
from kombu_delayq.audit import audited
from kombu_delayq.errors import quoted
from kombu_delayq.message.dead_letters import DEAD_LETTER
from kombu_delayq.message.due import in_utc
from kombu_delayq.message.fields import priority_of
from kombu_delayq.message.ready import stamp
from kombu_delayq.message.rewrite import with_properties
from kombu_delayq.store import OperatorStore, WaitingStore
from kombu_delayq.store.dead_letters import PAGE, Letter, next_count


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
        return buried_task(self.buried_in, self.message)

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
        return with_properties(self.message, {DEAD_LETTER: None, **stamp()}, delivery_info=address)

    @property
    def _record(self) -> Mapping[str, Any]:
        found = self.task.properties.get(DEAD_LETTER)
        return found if isinstance(found, dict) else {}

    def _text(self, what: str) -> str | None:
        found = self._record.get(what)
        return found if isinstance(found, str) else None


_CURSOR = re.compile(r"([0-9]{1,2})-([0-9]{1,12})-([0-9a-f]{16})")


class Cursor(NamedTuple):
    """Where a page of dead letters begins.

    Attributes:
        step: Number of the list, from 0: one for each priority step, the most urgent first.
        position: How many older letters the list had.
        digest: Of the first letter of the page, hexadecimal. Its id would not do: a task may fail for good again.
    """

    step: int
    position: int
    digest: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads what ``str`` has written. Raises a ValueError for any other text."""
        match = _CURSOR.fullmatch(text)
        if not match:
            raise ValueError("this is no cursor of a list of dead letters")
        return cls(int(match[1]), int(match[2]), match[3])

    def __str__(self) -> str:
        return "-".join(map(str, self))


#: Most letters at which a page looks, and among which the letter of a cursor is searched.
MOST_LOOKED = 10_000

#: Least number of letters a second: a replay that is paced renews its hold on the queue in time.
LEAST_RATE = 0.1


def rate_of(given: float | str) -> float:
    """Returns most letters a second.

    Raises:
        ValueError: It is no number, or less than ``LEAST_RATE``, or has no end.
    """
    try:
        rate = float(given)
    except ValueError:
        rate = 0.0
    if not LEAST_RATE <= rate < inf:
        raise ValueError(f"{quoted(given)} letters a second: give a number from {LEAST_RATE} on")
    return rate


#: Decides where a dead letter goes.
Decide = Callable[[DeadLetter], Letter]
#: Decides what is done with a chosen dead letter; None if nothing can be.
LetterAction = Callable[[DeadLetter], Letter | None]


def queues(store: OperatorStore) -> set[str]:
    """Returns the queues of dead letters that Redis and the options know. All other queues hold tasks."""
    return {*store.letters.queues(), store.options.dead_letter_queue}


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
    return (letter for _, _, letter in _walk(store, queue, None, PAGE))


def page_from(
    store: OperatorStore, queue: str, cursor: Cursor | None, limit: int, chosen: Callable[[DeadLetter], bool]
) -> tuple[list[DeadLetter], Cursor | None]:
    """Returns dead letters of a queue in the order of ``browse``.

    Letters may leave the queue from page to page, and no other is passed over. If the letter of the cursor has left,
    its list begins anew. New letters come last in their lists.

    Args:
        store: The broker's store.
        queue: Name of the queue.
        cursor: Where the page begins; None for the first.
        limit: Most letters to return.
        chosen: Whether a letter is wanted.

    Returns:
        The letters, and where the next page begins; None after the last. At most ``MOST_LOOKED`` are looked at, so
        there may be fewer than ``limit``.
    """
    found: list[DeadLetter] = []
    for looked, (step, position, letter) in enumerate(_walk(store, queue, cursor, limit)):
        if len(found) >= limit or looked >= MOST_LOOKED:
            return found, Cursor(step, position, _digest(letter.message))
        if chosen(letter):
            found.append(letter)
    return found, None


def _walk(store: OperatorStore, queue: str, cursor: Cursor | None, most: int) -> Iterator[tuple[int, int, DeadLetter]]:
    """Yields dead letters from a cursor on, each after the number of its list and its position there."""
    first, count = cursor.step if cursor else 0, min(PAGE, most)
    for step, (key, length) in islice(enumerate(store.letters.lists(queue).items()), first, None):
        at = _position(store, key, length, cursor) if cursor and step == first else 0
        while at < length and (page := store.letters.page(key, at, min(count, length - at))):
            yield from ((step, position, DeadLetter(queue, message)) for position, message in enumerate(page, at))
            at, count = at + len(page), min(most, next_count(page))


def _position(store: OperatorStore, key: str, length: int, cursor: Cursor) -> int:
    """Returns where the letter of a cursor is now; 0 if it is not among the ``MOST_LOOKED`` before its old position.

    When older letters leave, it moves towards 0. If it moved the other way, others came before it, such as those that
    a replay under way puts back: they may not have been listed yet.
    """
    at, count = min(cursor.position + 1, length), 1  # mostly it is where it was
    end = max(at - MOST_LOOKED, 0)
    while at > end:
        count = min(count, at)
        at -= count
        if not (page := store.letters.page(key, at, count)):
            break
        for position, message in reversed(list(enumerate(page, at))):
            if _digest(message) == cursor.digest:
                return position
        count = next_count(page)
    return 0


def _digest(message: bytes) -> str:
    return blake2b(message, digest_size=8).hexdigest()


def latest(store: WaitingStore, more: Iterable[str] = ()) -> Iterator[DeadLetter]:
    """Yields the latest dead letters of each queue and priority, 2,000 at most; nothing has an index of their ids.

    Args:
        store: The broker's store.
        more: Names of queues of dead letters, beside those that Redis knows. One that cannot be read is left out.
    """
    return (DeadLetter(queue, message) for queue, message in store.letters.latest(more))


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
    store: OperatorStore,
    queue: str,
    decide: Decide,
    newest: datetime | None,
    rate: float | None = None,
    lasts_s: float = inf,
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
        rate: Most letters a second that leave, ``LEAST_RATE`` or more; None for no limit.
        lasts_s: After how many s it begins no further page, so that some letters may be left.

    Yields:
        Each letter, and where it went.
    """

    def decide_unless_new(letter: DeadLetter) -> Letter:
        is_new = letter.at is not None and (newest is None or letter.at > newest)
        return back(letter) if is_new else decide(letter)

    with store.letters.replaying(queue) as hold:
        yield from _round(store, queue, decide_unless_new, hold, rate, lasts_s)


def change(
    store: OperatorStore,
    queue: str,
    chosen: Callable[[DeadLetter], bool],
    action: LetterAction,
    name: str,
    what: Mapping[str, Any],
    *,
    who: str | None = None,
    rate: float | None = None,
    lasts_s: float = inf,
) -> Counter[str]:
    """Looks which dead letters of a queue are chosen, then goes once more through it, as ``replay``, and acts on these.

    It waits until the round of another caller is over, which moves letters from the front of a list to its back.

    Args:
        store: The broker's store.
        queue: Name of the queue.
        chosen: Whether a letter is chosen; asked more than once.
        action: What is done to a letter.
        name: What the audit calls it.
        what: Which letters, in the audit.
        who: As of ``audited``.
        rate: Most letters a second; None for no limit.
        lasts_s: As of ``replay``.

    Returns:
        How many were ``replayed`` or ``dropped``, and how many stay as ``unroutable``: the action could do nothing.
    """
    newest, some = None, False
    for letter in count(store, queue):
        some = chosen(letter) or some
        if letter.at is not None:
            newest = max(letter.at, newest or letter.at)
    left: set[bytes] = set()

    def decide(letter: DeadLetter) -> Letter:
        decided = action(letter) if chosen(letter) else back(letter)
        if decided is None:
            left.add(letter.message)
        return decided or back(letter)

    words = {"queue": "replayed", "away": "dropped", "back": "unroutable"}
    with audited(name, {"queue": queue, **what}, who=who) as counts:
        for letter, decided in replay(store, queue, decide, newest, rate, lasts_s) if some else ():
            if decided.to != "back" or letter.message in left:
                counts[words[decided.to]] += 1
    return counts


def _round(
    store: OperatorStore, queue: str, decide: Decide, hold: Callable[[], None], rate: float | None, lasts_s: float
) -> Iterator[tuple[DeadLetter, Letter]]:
    most, ends_at = PAGE if rate is None else max(1, min(PAGE, int(rate))), monotonic() + lasts_s
    for key, left in store.letters.lists(queue).items():
        count = most
        while left > 0 and monotonic() < ends_at:
            hold()
            page = store.letters.page(key, 0, min(count, left))
            if not page:
                break
            letters = [DeadLetter(queue, message) for message in page]
            decided = [decide(letter) for letter in letters]
            leaving = list(accumulate(decision.to != "back" for decision in decided))
            if rate is not None:
                decided = decided[: bisect_right(leaving, most)]
                letters = letters[: len(decided)]
            # The delay chain of a task that was cancelled once has to begin anew when the task is replayed.
            ids = [letter.id for letter, decision in zip(letters, decided, strict=True) if decision.to == "queue"]
            store.chains.accept(ids)
            taken = store.letters.replay(
                queue, key, decided
            )  # fewer when a consumer took some: the next page begins there
            yield from zip(letters[:taken], decided[:taken], strict=True)
            left, count = left - taken, next_count(page)
            if leaving[-1]:  # pages are small only where a pace holds letters back
                count = min(most, count)
            if rate is not None:
                sleep(sum(decision.to != "back" for decision in decided[:taken]) / rate)
