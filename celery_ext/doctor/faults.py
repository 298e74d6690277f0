"""Faults of kombu that are known, and in which release each is mended."""

from collections.abc import Iterator
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version


@dataclass(frozen=True)
class Fault:
    """A fault of kombu's Redis transport.

    Attributes:
        issue: Where it is described.
        mended: The first release of kombu without it.
        effect: What happens.
        ours: Whether processes on our transport have it, too. Such a fault stops no task.
    """

    issue: str
    mended: str
    effect: str
    ours: bool


FAULTS = (
    Fault(
        "https://github.com/celery/celery/issues/10205",
        "5.7",
        "after a connection is lost, a worker may answer and consume nothing until it is restarted",
        ours=False,  # the poller stays in the event loop
    ),
    Fault(
        "https://github.com/celery/celery/issues/10502",
        "5.7",
        "after its idle subscription is cut without a word, a worker hears no remote control and no Broadcast queue",
        ours=True,
    ),
)


def faults_of(kombu: str, *, ours: bool) -> Iterator[Fault]:
    """Yields the faults of a process.

    Args:
        kombu: Its version of kombu; a text that is none has no faults.
        ours: Whether it uses our transport, and consumes by ``take``.
    """
    try:
        version = Version(kombu)
    except InvalidVersion:
        return
    for fault in FAULTS:
        if version < Version(fault.mended) and (fault.ours or not ours):
            yield fault
