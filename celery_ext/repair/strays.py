"""What consumers that are gone have: how it is found, and put back."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from redis.exceptions import ResponseError

from celery_ext.repair.store import RepairStore
from kombu_delayq.message import pages, read_note
from kombu_delayq.store import PAGE, DelayStore, InFlight, Request, Requeued
from kombu_delayq.text import as_bytes


@dataclass
class Strays:
    """What consumers that are gone have of one queue.

    Attributes:
        in_flight: In-flight lists, with the number of messages that each has.
        tags: Delivery tags of messages in hand, those first that a consumer took first.
    """

    in_flight: dict[InFlight, int] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)


@dataclass
class StraySearch:
    """What a search has found.

    Attributes:
        strays: By queue.
        unread: Delivery tags whose notes do not tell the queue.
        ended: By slot group, names of consumers whose lease has ended, where no transfer worker leads, which would give
            back what they held.
    """

    strays: dict[str, Strays]
    unread: list[str] = field(default_factory=list)
    ended: dict[str, list[str]] = field(default_factory=dict)


def find_strays(store: DelayStore) -> StraySearch:
    """Searches the whole database for what consumers have that nobody knows, or whose lease has ended for good."""
    found: defaultdict[str, Strays] = defaultdict(Strays)
    search = StraySearch(found)
    # A consumer is known before it takes messages: left out are those known now, and those known at first.
    in_flight = {at: count for page in store.part(RepairStore).in_flight_pages() for at, count in page}
    is_led = store.leases.leader() is not None
    group_of = store.keys.slot_group
    for group in sorted({*store.consumers.slot_groups(), *(group_of(at.queue) for at in in_flight)}):
        holders = set(store.consumers.counts(group)) - {""}
        leases = store.consumers.in_group(group)
        ended = [] if is_led else [lease.name for lease in leases if lease.left_ms <= 0]
        if ended:
            search.ended[group] = ended
        known = {lease.name for lease in leases}.difference(ended)
        for at, count in in_flight.items():
            if group_of(at.queue) == group and at.consumer not in known:
                found[at.queue].in_flight[at] = count
        for tags in store.consumers.tags_of(holders - known, group).values():
            for page in pages(tags, PAGE):
                for held in store.consumers.notes(page, group):
                    note = read_note(as_bytes(held.note))
                    if note is None or note.exchange:
                        search.unread.append(held.tag)
                    else:
                        found[note.routing_key].tags.append(held.tag)
    return search


def forget_strays(store: DelayStore, ended: Mapping[str, Iterable[str]]) -> None:
    """Forgets those consumers whose lease has ended, by slot group, and that hold nothing any more."""
    for group, names in ended.items():
        fenced = store.consumers.fence([*names], group)
        counts = store.consumers.counts(group)
        store.consumers.leave([name for name in fenced if not counts[name]], group)


def put_back(store: DelayStore, queue: str, strays: Strays) -> Iterator[int]:
    """Puts the strays of a queue back to where they are consumed next. Yields the number of messages of each call."""
    for page in pages(reversed(strays.tags), PAGE):
        notes = ((held.tag, read_note(as_bytes(held.note))) for held in store.consumers.notes(page, queue))
        rows = [Requeued(tag, note.routing_key, note.priority, note.given_back()) for tag, note in notes if note]
        store.fetching.requeue(rows, "next", redelivers=True)
        yield len(page)
    for at, count in strays.in_flight.items():
        if at.step >= store.fetching.steps(at.queue):
            key = store.keys.in_flight(*at)
            raise ResponseError(f"key {key} belongs to a list that the option priority_steps does not have here")
        store.fetching.fetch(Request(in_flight=[at]))
        yield count
