"""Dead letters: as a user sees them, and how they are read, replayed and dropped. Knows the store, and no app."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from math import inf
from operator import attrgetter
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from celery_ext.dead_letters.letter_list import LETTERS_PAGE, MOST_LOOKED, LetterList, digest_of, next_count
from celery_ext.dead_letters.store import Letter, LetterStore
from celery_ext.waiting import DelayedTask
from kombu_delayq.audit import audited
from kombu_delayq.errors import quoted
from kombu_delayq.message import DEAD_LETTER, FIELDS, LetterRecord, new_id, priority_of, stamp, with_properties
from kombu_delayq.store import DelayStore, Waiting

if TYPE_CHECKING:
    _Told = LetterRecord  # a type checker sees the fields of the record
else:
    _Told = object


@dataclass(frozen=True, repr=False)
class DeadLetter(_Told):
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
        """The task and its arguments; a message that is no task has its delivery tag as its id."""
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

    @cached_property
    def record(self) -> LetterRecord:
        """What the message says of itself; the letter has each of its fields as an attribute, too."""
        return LetterRecord.of(self.task.properties)

    @property
    def priority(self) -> int:
        """0 to 9."""
        return priority_of({"properties": self.task.properties})

    def released(self, exchange: str, routing_key: str) -> bytes:
        """Returns the message to push to a queue: without the record, with this exchange and routing key as address.

        It is a new publication: a worker may know that the id was revoked. The old id finds it, as a waiting key does.
        What is in a group or a chain keeps its id, by which the others know it.
        """
        address, changes = {"exchange": exchange, "routing_key": routing_key}, {DEAD_LETTER: None, **stamp()}
        headers = self.task.headers
        is_known = headers.get("group") or self.task.embed.get("chain") or not isinstance(headers.get("id"), str)
        own = None if is_known else new_id(self.id)
        return with_properties(self.message, changes, delivery_info=address, task_id=own)


for _field in FIELDS:
    _told = property(attrgetter(f"record.{_field.name}"), doc=_field.metadata["about"])
    setattr(DeadLetter, _field.name, _told)


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


#: Decides what is done with a dead letter; None if nothing can be.
LetterAction = Callable[[DeadLetter], Letter | None]


def queues(store: DelayStore) -> set[str]:
    """Returns the queues of dead letters that Redis and the options know. All other queues hold tasks."""
    return {*store.queues.of_letters(), store.options.dead_letter_queue}


def count(store: DelayStore, queue: str) -> int:
    """Returns how many dead letters a queue holds."""
    return sum(store.part(LetterStore).lists(queue).values())


def browse(store: DelayStore, queue: str) -> Iterator[DeadLetter]:
    """Yields the dead letters of a queue, priority by priority, the oldest first. Reads them a page at a time.

    It is no snapshot, but passes over none when others leave meanwhile.
    """
    return (letter for _, _, letter in _walk(store, queue, None, LETTERS_PAGE))


def page_from(
    store: DelayStore, queue: str, cursor: Cursor | None, limit: int, chosen: Callable[[DeadLetter], bool]
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
            return found, Cursor(step, position, digest_of(letter.message))
        if chosen(letter):
            found.append(letter)
    return found, None


def _walk(store: DelayStore, queue: str, cursor: Cursor | None, most: int) -> Iterator[tuple[int, int, DeadLetter]]:
    """Yields dead letters from a cursor on, each after the number of its list and its position there."""
    first = cursor.step if cursor else 0
    for step, (key, length) in islice(enumerate(store.part(LetterStore).lists(queue).items()), first, None):
        letters = LetterList(partial(store.part(LetterStore).page, key))
        if cursor and step == first:
            letters.begin(min(cursor.position, length), cursor.digest)
        for page in letters.rest(most) if length else ():
            for position, message in enumerate(page, letters.at):
                yield step, position, DeadLetter(queue, message)


def latest(store: DelayStore, more: Iterable[str] = ()) -> Iterator[DeadLetter]:
    """Yields the latest dead letters of each queue and priority, 2,000 at most; nothing has an index of their ids.

    Args:
        store: The broker's store.
        more: Names of queues of dead letters, beside those that Redis knows. One that cannot be read is left out.
    """
    queues = sorted({*store.queues.of_letters(), *more})
    return (DeadLetter(queue, message) for queue, message in store.part(LetterStore).latest(queues))


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


def choose(
    letters: Iterable[DeadLetter], chosen: Callable[[DeadLetter], bool], action: LetterAction
) -> tuple[Counter[str], int]:
    """Looks which dead letters are to leave.

    Args:
        letters: All letters of a queue.
        chosen: Whether a letter is chosen.
        action: What is to be done to it.

    Returns:
        The digests of those that can leave, and how many others are chosen: the action can do nothing.
    """
    wanted, unroutable = Counter[str](), 0
    for letter in filter(chosen, letters):
        if action(letter) is None:
            unroutable += 1
        else:
            wanted[digest_of(letter.message)] += 1
    return wanted, unroutable


def replay(
    store: DelayStore,
    queue: str,
    wanted: Counter[str],
    action: LetterAction,
    rate: float | None = None,
    lasts_s: float = inf,
) -> Iterator[tuple[DeadLetter, Letter]]:
    """Goes once through the dead letters of a queue, the oldest first, and acts on some. The others stay as they are.

    So a round that is stopped changes no order. It loses no letter, and doubles at most those of its last page. Another
    round of the queue waits until this one is over.

    Args:
        store: The broker's store.
        queue: Name of the queue.
        wanted: Digests of the letters, as ``choose`` returns them. What came later is none of them.
        action: What is done to each.
        rate: Most letters a second, ``LEAST_RATE`` or more; None for no limit.
        lasts_s: How many s after its first page of letters it begins no further one, so that some may be left.

    Yields:
        Each letter that has left, and where it went.
    """
    left, ends_at = wanted.total(), inf
    most = LETTERS_PAGE if rate is None else max(1, min(LETTERS_PAGE, int(rate)))
    with store.part(LetterStore).replaying(queue) as hold:
        for key in store.part(LetterStore).lists(queue):
            letters, count = LetterList(partial(store.part(LetterStore).page, key)), LETTERS_PAGE
            while left and monotonic() < ends_at:
                hold()
                if not (page := letters.read(count)):
                    break
                staying, leaving = _divided(queue, page, wanted, action, most)
                taken = _take(store, queue, key, {letters.at + number: one for number, one in leaving.items()})
                yield from taken
                left -= len(taken)
                ends_at = min(ends_at, monotonic() + lasts_s) if taken else ends_at
                letters.pass_by(staying)
                count = min(most, next_count(page)) if leaving else next_count(page)  # small only where a pace is kept
                if rate is not None:
                    sleep(len(taken) / rate)


def _divided(
    queue: str, page: Sequence[bytes], wanted: Counter[str], action: LetterAction, most: int
) -> tuple[list[bytes], dict[int, tuple[DeadLetter, Letter]]]:
    """Divides the begin of a page into letters that stay, and at most so many that leave, by their numbers."""
    staying, leaving = list[bytes](), dict[int, tuple[DeadLetter, Letter]]()
    for number, message in enumerate(page):
        letter = DeadLetter(queue, message)
        decided = action(letter) if digest_of(message) in wanted else None
        if decided is None:
            staying.append(message)
        elif len(leaving) < most:
            leaving[number] = letter, decided
        else:
            break
    return staying, leaving


def _take(
    store: DelayStore, queue: str, key: str, leaving: Mapping[int, tuple[DeadLetter, Letter]]
) -> list[tuple[DeadLetter, Letter]]:
    """Sends letters, by the number of letters that are older, to their goals. Returns those that were still there."""
    # The delay chain of a task that was cancelled once has to begin anew when the task is replayed.
    store.chains.accept([letter.id for letter, decided in leaving.values() if decided.to == "queue"])
    taken = store.part(LetterStore).replay(queue, key, {older: decided for older, (_, decided) in leaving.items()})
    return [leaving[older] for older in taken]


def change(
    store: DelayStore,
    queue: str,
    chosen: Callable[[DeadLetter], bool],
    action: LetterAction,
    name: str,
    what: Mapping[str, Any],
    *,
    who: str | None = None,
    rate: float | None = None,
    lasts_s: float = inf,
) -> tuple[Counter[str], bool]:
    """Looks which dead letters of a queue are chosen, and acts on these, as ``replay``.

    Args:
        store: The broker's store.
        queue: Name of the queue.
        chosen: Whether a letter is chosen.
        action: What is done to a letter.
        name: What the audit calls it.
        what: Which letters, in the audit.
        who: As of ``audited``.
        rate: Most letters a second; None for no limit.
        lasts_s: As of ``replay``.

    Returns:
        How many were ``replayed`` or ``dropped``, and how many stay as ``unroutable``: the action could do nothing; and
        whether others are left, because ``lasts_s`` was too short for all.
    """
    wanted, unroutable = choose(browse(store, queue), chosen, action)
    words = {"queue": "replayed", "away": "dropped"}
    with audited(name, {"queue": queue, **what}, who=who, of=wanted.total()) as counts:
        for _, done in replay(store, queue, wanted, action, rate, lasts_s) if wanted else ():
            counts[words[done.to]] += 1
        more = lasts_s < inf and counts.total() < wanted.total()
        if unroutable:
            counts["unroutable"] = unroutable
    return counts, more
