"""Finds messages of consumers that are gone, and puts them back. Knows the store, and no app."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from redis.exceptions import ResponseError

from kombu_delayq.connection.text import as_bytes
from kombu_delayq.message.pages import pages
from kombu_delayq.message.unacked import read_note
from kombu_delayq.store import OperatorStore
from kombu_delayq.store.consuming.taking import PAGE
from kombu_delayq.store.consuming.types import Landing, Request, Requeued


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
        ended: By share, names of consumers whose lease has ended, where no transfer worker leads who would give back
            what they held.
    """

    strays: dict[str, Strays]
    unread: list[str] = field(default_factory=list)
    ended: dict[str, list[str]] = field(default_factory=dict)


def find(store: OperatorStore) -> Search:
    """Searches the whole database for what consumers have that nobody knows, or whose lease has ended for good."""
    found: defaultdict[str, Strays] = defaultdict(Strays)
    search = Search(found)
    # A consumer is known before it takes messages. So whoever is known now, or was when this began, is left out.
    landings = {landing: count for page in store.repair.landing_pages() for landing, count in page}
    is_led = store.leases.leader() is not None
    for share in sorted({*store.consumers.shares(), *(store.keys.share(landing.queue) for landing in landings)}):
        holders = set(store.consumers.counts(share)) - {""}
        leases = store.consumers.in_share(share)
        ended = [] if is_led else [lease.name for lease in leases if lease.left_ms <= 0]
        if ended:
            search.ended[share] = ended
        known = {lease.name for lease in leases}.difference(ended)
        for landing, count in landings.items():
            if store.keys.share(landing.queue) == share and landing.consumer not in known:
                found[landing.queue].landings[landing] = count
        for tags in store.consumers.tags_of(holders - known, share).values():
            for page in pages(tags, PAGE):
                for held in store.consumers.notes(page, share):
                    note = read_note(as_bytes(held.note))
                    if note is None or note.exchange:
                        search.unread.append(held.tag)
                    else:
                        found[note.routing_key].tags.append(held.tag)
    return search


def forget(store: OperatorStore, ended: Mapping[str, Iterable[str]]) -> None:
    """Forgets those consumers whose lease has ended, by share, and that hold nothing any more."""
    for share, names in ended.items():
        fenced = store.consumers.fence([*names], share)
        counts = store.consumers.counts(share)
        for name in fenced:
            if not counts[name]:
                store.consumers.leave(name, share)


def put_back(store: OperatorStore, queue: str, strays: Strays) -> Iterator[None]:
    """Puts the strays of a queue back to where they are consumed next. Yields once for each message."""
    for page in pages(reversed(strays.tags), PAGE):
        notes = ((held.tag, read_note(as_bytes(held.note))) for held in store.consumers.notes(page, queue))
        rows = [Requeued(tag, note.routing_key, note.priority, note.given_back()) for tag, note in notes if note]
        store.taking.requeue(rows, "next", redelivers=True)
        yield from (None for _ in page)
    for landing, count in strays.landings.items():
        if landing.step >= store.taking.steps(landing.queue):
            key = store.keys.landing(*landing)
            raise ResponseError(f"key {key} belongs to a list that the option priority_steps does not have here")
        store.taking.take(Request("", 0, 0, (), landings=[landing]))
        yield from (None for _ in range(count))
