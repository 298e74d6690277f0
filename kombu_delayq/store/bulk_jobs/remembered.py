"""Reads what Redis remembers of bulk jobs from their fields."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

from kombu_delayq.connection.text import as_text
from kombu_delayq.store.bulk_jobs.types import Job, JobPart, JobState

#: Counts of a queue, by the beginning of the field; see ``lua/include/shared/job.lua``.
_COUNTS = {"sent": "sent", "staged": "sent", "repeated": "repeated", "cancelled": "cancelled"}


class Part(NamedTuple):
    """What is in the slot of one queue, where jobs have parts.

    Attributes:
        queue: Name of the queue.
        fields: Fields of the part; none if it has not begun.
        staged: Number of its staged messages.
    """

    queue: str
    fields: Mapping[str, str]
    staged: int


def fields_of(found: Mapping[bytes | str, bytes | str]) -> dict[str, str]:
    """Returns the reply of HGETALL as texts."""
    return {as_text(field): as_text(value) for field, value in found.items()}


def job_of(name: str, whole: Mapping[str, str], staged: int, parts: Sequence[Part] | None) -> Job:
    """Returns a job.

    Args:
        name: Its name.
        whole: Fields of the job as a whole.
        staged: Number of staged messages, where a job has no parts.
        parts: Its parts; None where jobs have none.
    """
    state = _state(whole)
    counted = [whole] if parts is None else [part.fields for part in parts]
    if parts is not None:
        staged = sum(part.staged for part in parts)
    if state == "publishing" and not staged:  # who sent the last message of a part did not note it yet
        state = "committed"
    queues = _parts_of(whole, state) if parts is None else _parts_in_slots(parts, int(whole["run"]), state)
    enqueued = sum(int(fields.get("enqueued", 0)) for fields in counted)
    sent_before, twice = _not_sent(whole, enqueued)
    wrote = [float(fields["wrote"]) for fields in counted if "wrote" in fields]
    return Job(
        name=name,
        state=state,
        run=int(whole["run"]),
        base_ms=float(whole["base"]),
        enqueued=enqueued,
        staged=staged,
        tier=whole.get("far"),
        repeated=sum(part.repeated for part in queues),
        cancelled=sum(part.cancelled for part in queues) + int(whole.get("far_cancelled", 0)),
        rows=_number(whole, "rows"),
        bad=_number(whole, "bad"),
        dead_lettered=_number(whole, "dead_lettered"),
        late=_number(whole, "late"),
        sent_before=sent_before,
        twice=twice,
        runs=int(whole.get("runs", 1)),
        superseded=int(whole.get("superseded", 0)),
        wrote_ms=max(wrote, default=None),
        ended_ms=float(whole["ended"]) if "ended" in whole else None,
        parts=queues,
    )


def _not_sent(whole: Mapping[str, str], enqueued: int) -> tuple[int | None, int | None]:
    """Returns how many messages of the committed run were sent before, and how many came twice in its data.

    By the commit all ids of its data are sent. So what it had more than there are ids, came twice in the data.
    """
    offered, fresh = _number(whole, "offered"), _number(whole, "fresh")
    if offered is None or fresh is None:
        return None, None
    twice = min(max(offered - enqueued, 0), offered - fresh)
    return offered - fresh - twice, twice


def _parts_of(fields: Mapping[str, str], state: JobState) -> tuple[JobPart, ...]:
    """Returns the queues that are counted in fields."""
    counts: dict[str, dict[str, int]] = {}
    for field, value in fields.items():
        kind, colon, queue = field.partition(":")
        if colon and kind in _COUNTS:
            of = counts.setdefault(queue, dict.fromkeys(_COUNTS.values(), 0))
            of[_COUNTS[kind]] += int(value)
    return _by_name(JobPart(queue, state, **found) for queue, found in counts.items())


def _parts_in_slots(parts: Iterable[Part], run: int, state: JobState) -> tuple[JobPart, ...]:
    found = []
    for part in parts:
        if part.fields:
            own = _state(part.fields)
            own = "superseded" if own == state == "running" and int(part.fields["run"]) < run else own
            own = "committed" if own == "publishing" and not part.staged else own
            [*counted] = _parts_of(part.fields, own)
            found += counted or [JobPart(part.queue, own)]
    return _by_name(found)


def _by_name(parts: Iterable[JobPart]) -> tuple[JobPart, ...]:
    return tuple(sorted(parts, key=lambda part: part.queue))


def _state(fields: Mapping[str, str]) -> JobState:
    return cast(JobState, "running" if fields["state"] == "open" else fields["state"])


def _number(fields: Mapping[str, str], name: str) -> int | None:
    return int(fields[name]) if name in fields else None
