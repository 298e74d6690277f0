"""Lists periodic entries, pauses and resumes them, and runs them now."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import uuid4

from celery_ext.periodic.store import ArmedNote, PeriodicStore
from kombu_delayq.audit import audited
from kombu_delayq.store import DelayStore

State: TypeAlias = Literal["on", "paused", "off", "wrong"]
Outcome: TypeAlias = Literal["paused", "resumed", "requested", "unchanged", "unknown"]


class Listed(NamedTuple):
    """An entry as it is listed.

    Attributes:
        name: Its name.
        state: ``paused`` by somebody; ``off`` by its own schedule; ``wrong`` if it cannot be sent.
        task: Name of its task; empty if it is not known.
        schedule: Its schedule in words.
        queues: The queues to which it goes.
        next_ms: When its next run is due, ms since the epoch, also one that is overdue; None if none is armed.
        last_ms: When its last run was due, ms since the epoch; None for none.
        outcome: What became of the latest run that has ended, as the state of Celery's results; None if nobody knows.
        missed: As the entry says.
        error: Why it cannot be sent; else empty.
    """

    name: str
    state: State
    task: str
    schedule: str
    queues: Sequence[str]
    next_ms: int | None
    last_ms: int | None
    outcome: str | None
    missed: str
    error: str


def list_entries(store: DelayStore) -> list[Listed]:
    """Returns the entries that were armed, by their names; five round trips, and one more while runs are overdue."""
    periodic = store.part(PeriodicStore)
    records: dict[str, Any] = {name: json.loads(record) for name, record in periodic.records().items()}
    notes = periodic.notes(sorted({queue for record in records.values() for queue in record["queues"]}))
    paused, outcomes, now_ms = periodic.paused(), periodic.outcomes(), store.now_ms()
    begun = {run: queue for queue, of in notes.items() for note in of.values() for run in note.runs if run[0] <= now_ms}
    ids = [identity for _, identity in begun]
    waiting = store.lookup.get(sorted({*begun.values()}), ids) if begun else {}
    # The message of a run that has begun waits on while its ``countdown`` does.
    late = {identity for identity, [first, *_] in waiting.items() if first.due_ms <= now_ms}
    for name, record in records.items():
        record["outcome"] = outcomes.get(name)
    return [
        _listed(name, record, [notes[queue].get(name, ArmedNote()) for queue in record["queues"]], paused, now_ms, late)
        for name, record in sorted(records.items())
    ]


def _listed(
    name: str,
    record: Mapping[str, Any],
    notes: Sequence[ArmedNote],
    paused: frozenset[str],
    now_ms: float,
    late: set[str],
) -> Listed:
    waiting = [at for note in notes for at, identity in note.runs if at > now_ms or identity in late]
    begun = [at for note in notes for at, identity in note.runs if at <= now_ms and identity not in late]
    last_ms = max([*begun, *(note.last_ms for note in notes)], default=0)
    error = str(record.get("error", ""))
    state: State = "paused" if name in paused else "wrong" if error else "on" if record.get("is_on", True) else "off"
    task, schedule, missed = (str(record.get(word, "")) for word in ("task", "schedule", "missed"))
    queues, next_ms = record["queues"], min(waiting, default=None)
    return Listed(name, state, task, schedule, queues, next_ms, last_ms or None, record["outcome"], missed, error)


def pause(store: DelayStore, names: Iterable[str], *, who: str | None = None) -> dict[str, Outcome]:
    """Lets entries rest until they are resumed, and cancels what waits of them.

    Args:
        store: The store.
        names: Names of the entries.
        who: Who does it; by default the user of this process.

    Returns:
        By name ``paused``, ``unchanged`` if it was, or ``unknown``.
    """
    periodic = store.part(PeriodicStore)
    with _noted("pause", names, who) as found:
        paused = periodic.paused()
        records = periodic.records()
        for name in found:
            if name in records:
                periodic.pause([name])
                for queue in json.loads(records[name])["queues"]:
                    periodic.disarm(queue, [name], None, "paused")
                found[name] = "unchanged" if name in paused else "paused"
    return found


def resume(store: DelayStore, names: Iterable[str], *, who: str | None = None) -> dict[str, Outcome]:
    """Lets paused entries run again, from the next run on.

    Returns:
        By name ``resumed``, ``unchanged`` if it was not paused, or ``unknown``.
    """
    periodic = store.part(PeriodicStore)
    with _noted("resume", names, who) as found:
        records = periodic.records()
        for name in found:
            if periodic.resume([name]):
                found[name] = "resumed"
            elif name in records:
                found[name] = "unchanged"
    return found


def run_now(store: DelayStore, names: Iterable[str], *, who: str | None = None) -> dict[str, Outcome]:
    """Lets entries run once more, within a second or two, also paused ones. The schedule goes on as it was.

    The process that arms sends the runs.

    Returns:
        By name ``requested`` or ``unknown``.
    """
    periodic = store.part(PeriodicStore)
    with _noted("run periodic", names, who) as found:
        records = periodic.records()
        for name in found:
            if name in records:
                periodic.request(str(uuid4()), name)
                found[name] = "requested"
    return found


@contextmanager
def _noted(action: str, names: Iterable[str], who: str | None) -> Iterator[dict[str, Outcome]]:
    """Yields the outcome ``unknown`` for each name, and leaves a line in the audit of what became of them."""
    found: dict[str, Outcome] = dict.fromkeys(names, "unknown")
    with audited(action, {"entries": list(found)}, who=who, unchanged=("unknown", "unchanged")) as counts:
        try:
            yield found
        finally:
            counts.update(found.values())
