"""Queues are paused and resumed, for the shell and for ``delayq serve``, with a line in the audit."""

from typing import TYPE_CHECKING, Literal

from kombu_delayq.audit import audited

if TYPE_CHECKING:
    from kombu_delayq.store import DelayStore


def pause_queue(store: "DelayStore", queue: str, who: str | None = None) -> Literal["paused", "unchanged"]:
    """Lets our consumers take nothing more from a queue. Returns what became of it.

    Args:
        store: The broker's store.
        queue: Name of the queue.
        who: Who does it; by default the user of this process.
    """
    with audited("pause", {"queue": queue}, who=who, unchanged=("unchanged",)) as counts:
        outcome: Literal["paused", "unchanged"] = "paused" if store.fetching.pause(queue) else "unchanged"
        counts[outcome] += 1
    return outcome


def resume_queue(store: "DelayStore", queue: str, who: str | None = None) -> Literal["resumed", "unchanged"]:
    """Lets consumers take from a paused queue again. The arguments are those of ``pause_queue``."""
    with audited("resume", {"queue": queue}, who=who, unchanged=("unchanged",)) as counts:
        outcome: Literal["resumed", "unchanged"] = "resumed" if store.fetching.resume(queue) else "unchanged"
        counts[outcome] += 1
    return outcome
