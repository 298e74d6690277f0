"""Places of keys that nobody holds, and wrong counts: how they are found, and how a repair mends them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from celery_ext.limits.store import LimitStore
from kombu_delayq.store import DelayStore

#: The words for one, those for many, and what a repair does about it, by what is wrong.
WORDS = {
    "places": (
        "place of a key that a consumer has which is gone",
        "places of keys that consumers have which are gone",
        "given back",
    ),
    "keys": (
        "key of a limit whose running tasks are counted wrongly",
        "keys of limits whose running tasks are counted wrongly",
        "counted again",
    ),
}


def stray_places(store: DelayStore, groups: Iterable[str] | None = None) -> dict[str, int]:
    """Counts the places that consumers have which are gone, by their names.

    Args:
        store: The broker's store.
        groups: Slot groups; None for all.
    """
    found = Counter[str]()
    for group in store.consumers.slot_groups() if groups is None else groups:
        held = store.part(LimitStore).holders(group)
        # A consumer has its lease before it takes messages.
        known = {lease.name for lease in store.consumers.in_group(group)} if held else ()
        found.update({name: count for name, count in held.items() if name not in known})
    return found


def miscounted_keys(store: DelayStore, queue: str, most: int | None = None) -> list[str]:
    """Returns some keys whose number of running tasks differs from that of their places, twice in the same way.

    Args:
        store: The broker's store.
        queue: Name of the queue.
        most: How many keys to look at; None for all.
    """
    part = store.part(LimitStore)

    def off_by(names: Sequence[str] | None = None) -> dict[str, int]:
        states = islice(part.keys(queue), most) if names is None else part.states(queue, names)
        noted, taken = {state.key: state.running for state in states}, part.places_by_key(queue)
        return {key: noted[key] - taken[key] for key in noted if noted[key] != taken[key]}

    first = off_by()
    again = off_by(list(first)) if first else {}  # others may take and give back places meanwhile
    return sorted(key for key, by in first.items() if again.get(key) == by)


def look(store: DelayStore, queues: Sequence[str]) -> dict[str, int]:
    """Counts what ``mend`` would mend, but for wrong numbers of waiting messages; the arguments are as there."""
    part = store.part(LimitStore)
    groups = {*map(store.keys.slot_group, queues)} if queues else None
    keys = sum(len(miscounted_keys(store, queue)) for queue in queues or sorted(part.queues()))
    return {"places": sum(stray_places(store, groups).values()), "keys": keys}


def mend(store: DelayStore, queues: Sequence[str]) -> dict[str, int]:
    """Gives back the places of consumers that are gone, and corrects the counts of keys.

    Args:
        store: The broker's store.
        queues: Names of the queues; none for all that have limits.

    Returns:
        How much was mended, by what was wrong, as in ``WORDS``.
    """
    part = store.part(LimitStore)
    groups = sorted({*map(store.keys.slot_group, queues)} if queues else {*store.consumers.slot_groups()})
    places = 0
    for group in groups:
        strays = stray_places(store, [group])
        store.consumers.leave([*strays], group)
        places += sum(strays.values())
    keys = sum(part.refresh(queue) for queue in queues or sorted(part.queues()))
    return {"places": places, "keys": keys}
