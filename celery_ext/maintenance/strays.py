"""Finds messages on their way to consumers that nobody knows, and puts them back. Knows the store, and no app."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from redis.exceptions import ResponseError

from kombu_delayq.connection.text import as_bytes
from kombu_delayq.message.pages import pages
from kombu_delayq.message.unacked import read_note
from kombu_delayq.store import OperatorStore
from kombu_delayq.store.consuming.taking import PAGE, Landing, Request, Requeued


@dataclass
class Strays:
    """What consumers that nobody knows have of one queue.

    Attributes:
        landings: Landing lists, with the number of messages that each has.
        tags: Delivery tags of messages in hand, those first that a consumer took first.
    """

    landings: dict[Landing, int] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)


def find(store: OperatorStore) -> tuple[dict[str, Strays], list[str]]:
    """Searches the whole database for what consumers have that are not in ``delayq:consumers``.

    Returns:
        The strays of each queue, and the delivery tags whose notes do not tell the queue.
    """
    found: defaultdict[str, Strays] = defaultdict(Strays)
    unread: list[str] = []
    # A consumer is known before it takes messages. So whoever is known now, or was when this began, is left out.
    landings = {landing: count for page in store.repair.landing_pages() for landing, count in page}
    holders = set(store.consumers.counts()) - {""}
    known = {lease.name for lease in store.consumers.all()}
    for landing, count in landings.items():
        if landing.consumer not in known:
            found[landing.queue].landings[landing] = count
    for tags in store.consumers.tags_of(holders - known).values():
        for page in pages(tags, PAGE):
            for held in store.consumers.notes(page):
                note = read_note(as_bytes(held.note))
                if note is None or note.exchange:
                    unread.append(held.tag)
                else:
                    found[note.routing_key].tags.append(held.tag)
    return dict(found), unread


def put_back(store: OperatorStore, strays: Strays) -> Iterator[None]:
    """Puts the strays of a queue back to where they are consumed next. Yields once for each message."""
    for page in pages(reversed(strays.tags), PAGE):
        notes = ((held.tag, read_note(as_bytes(held.note))) for held in store.consumers.notes(page))
        rows = [Requeued(tag, note.routing_key, note.priority, note.given_back()) for tag, note in notes if note]
        store.taking.requeue(rows, "next")
        yield from (None for _ in page)
    for landing, count in strays.landings.items():
        if landing.step >= store.taking.steps(landing.queue):
            key = store.keys.landing(*landing)
            raise ResponseError(f"key {key} belongs to a list that the option priority_steps does not have here")
        store.taking.take(Request("", 0, 0, (), landings=[landing]))
        yield from (None for _ in range(count))
