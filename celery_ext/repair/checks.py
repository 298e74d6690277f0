"""The check of what processes that are gone have left."""

from time import monotonic

from redis.exceptions import NoPermissionError

from celery_ext.doctor import REDIS, Check, Finding, Findings, Level, Subject, counted
from celery_ext.repair.leftovers import Leftovers, find_leftovers
from celery_ext.waiting import LONG_LOOK_S

#: From how many bytes on it is worth somebody's time.
MANY_BYTES = 10_000_000


def leftovers(subject: Subject) -> Findings:
    """Have processes that are gone left no replies to remote control?"""
    found, until = Leftovers(), monotonic() + LONG_LOOK_S
    try:
        for _ in find_leftovers(subject.the_store, found, mend=False):
            if monotonic() >= until:
                break
    except NoPermissionError:
        yield Finding(
            Level.NOTICE,
            "not checked: the user may not see for how long a key was not used",
            "give it the rights of the page, or run it as a user who has them",
            "reference/acl.md",
        )
        return
    if found:
        queues = counted(found.replies, "queue of replies", "queues of replies")
        names = counted(found.bindings, "set of names", "sets of names")
        yield Finding(
            Level.WARNING if found.bytes >= MANY_BYTES else Level.NOTICE,
            f"processes that are gone have left {queues} to remote control and {names} of such queues, "
            f"{found.bytes / 1e6:,.1f} MB",
            "`delayq repair` removes them",
            "how-to/doctor.md#replies-that-nobody-reads",
        )


CHECKS = (Check("leftovers", leftovers, REDIS),)
