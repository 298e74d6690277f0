"""The one judge of health: from where on something is not well, and how bad it is.

The checks of the doctor, the banner of the page, ``delayq status`` and the alerts say so, each in its own form.
"""

from celery_ext.doctor.finding import Level

#: From how many s on an overdue message is a warning, transfers being faster than that; and an error.
OVERDUE_S, LONG_OVERDUE_S = 5.0, 60.0
#: From how many s on ready messages wait for long.
WAITS_S = 600.0
#: From which part of its memory on a server is nearly full, and full.
NEARLY_FULL, FULL = 0.8, 0.95


def of_leader(*, leads: bool, delayed: int) -> Level:
    """Judges whether somebody transfers: where nobody does, and messages wait, these will not be delivered."""
    if leads:
        return Level.OK
    return Level.ERROR if delayed else Level.WARNING


def of_overdue(overdue_s: float, *, is_held: bool) -> Level:
    """Judges the oldest overdue message of a queue, 0 s for none; what a rate holds back is meant to be late."""
    if is_held or overdue_s < OVERDUE_S:
        return Level.OK
    return Level.ERROR if overdue_s >= LONG_OVERDUE_S else Level.WARNING


def of_waits(oldest_s: float | None, *, is_paused: bool) -> Level:
    """Judges for how long the oldest ready message of a queue has waited, None if nobody knows."""
    return Level.WARNING if not is_paused and (oldest_s or 0.0) >= WAITS_S else Level.OK


def of_consumers(work: int, consumers: int | None, unacked: int | None, *, is_of_letters: bool) -> Level:
    """Judges whether somebody consumes a queue.

    Args:
        work: How many of its messages are ready or overdue.
        consumers: How many consumers are known; None if nobody may know.
        unacked: How many messages consumers have, known or not.
        is_of_letters: Whether it is a queue of dead letters, which nobody should consume.
    """
    return Level.WARNING if work and consumers == 0 and not unacked and not is_of_letters else Level.OK


def of_memory(filled: float) -> Level:
    """Judges which part of its memory a server uses."""
    if filled < NEARLY_FULL:
        return Level.OK
    return Level.ERROR if filled >= FULL else Level.WARNING
