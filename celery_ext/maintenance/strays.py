"""Finds messages of consumers that are gone, and puts them back. Knows the store, and no app."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from redis.exceptions import ResponseError

from kombu_delayq.connection.text import as_bytes
from kombu_delayq.message.pages import pages
from kombu_delayq.message.unacked import read_note
from kombu_delayq.store import OperatorStore
from kombu_delayq.store.consuming.taking import PAGE, Landing, Request, Requeued


@dataclass
class Strays:
    """What consumers that are gone have of one queue.

    Attributes:
        landings: Landing lists, with the number of messages that each has.
        tags: Delivery tags of messages in hand, those first that a consumer took first.
    """

    landings: dict[Landing, int] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)


@dataclass
class Search:
    """What a search has found.

    Attributes:
        strays: By queue.
        unread: Delivery tags whose notes do not tell the queue.
        ended: Names of consumers whose lease has ended, where no transfer worker leads who would give back what they
            held.
    """

    strays: dict[str, Strays]
    unread: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)


def find(store: OperatorStore) -> Search:
    """Searches the whole database for what consumers have that nobody knows, or whose lease has ended for good."""
    found: defaultdict[str, Strays] = defaultdict(Strays)
    search = Search(found)
    # A consumer is known before it takes messages. So whoever is known now, or was when this began, is left out.
    landings = {landing: count for page in store.repair.landing_pages() for landing, count in page}
    holders = set(store.consumers.counts()) - {""}
    leases = store.consumers.all()
    if store.leases.leader() is None:
        search.ended = [lease.name for lease in leases if lease.left_ms <= 0]
    known = {lease.name for lease in leases}.difference(search.ended)
    for landing, count in landings.items():
        if landing.consumer not in known:
            found[landing.queue].landings[landing] = count
    for tags in store.consumers.tags_of(holders - known).values():
        for page in pages(tags, PAGE):
            for held in store.consumers.notes(page):
                note = read_note(as_bytes(held.note))
                if note is None or note.exchange:
                    search.unread.append(held.tag)
                else:
                    found[note.routing_key].tags.append(held.tag)
    return search


def forget(store: OperatorStore, ended: Iterable[str]) -> None:
    """Forgets those consumers whose lease has ended, and that hold nothing any more."""
    fenced = store.consumers.fence([*ended])
    counts = store.consumers.counts()
    for name in fenced:
        if not counts[name]:
            store.consumers.leave(name)


def put_back(store: OperatorStore, strays: Strays) -> Iterator[None]:
    """Puts the strays of a queue back to where they are consumed next. Yields once for each message."""
    for page in pages(reversed(strays.tags), PAGE):
        notes = ((held.tag, read_note(as_bytes(held.note))) for held in store.consumers.notes(page))
        rows = [Requeued(tag, note.routing_key, note.priority, note.given_back()) for tag, note in notes if note]
        store.taking.requeue(rows, "next", redelivers=True)
        yield from (None for _ in page)
    for landing, count in strays.landings.items():
        if landing.step >= store.taking.steps(landing.queue):
            key = store.keys.landing(*landing)
            raise ResponseError(f"key {key} belongs to a list that the option priority_steps does not have here")
        store.taking.take(Request("", 0, 0, (), landings=[landing]))
        yield from (None for _ in range(count))
