"""What workers themselves say in their logs."""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from tests.chaos.ledger.events import Fault

#: A consumer that lives, and could not renew its lease in time, because it was stopped or its machine was busy.
_SILENT = re.compile(r"^\[(.{23}): WARNING/\w+\] consumer \S+?:(\d+):\w+ was silent for longer than consumer_ttl")
#: A consumer whose lease is gone before its time: Redis has lost it, or a leader has taken a living consumer for dead.
_GONE = re.compile(r"^\[(.{23}): WARNING/\w+\] Redis does not know the lease of consumer \S+?:(\d+):\w+,")
#: Faults by which Redis may lose leases, and for so long after them a consumer may notice it, in s.
_LOSSES, NOTICED_S = {"redis kill", "redis flush", "failover", "primary kill"}, 30.0


def false_returns(directory: Path, faults: Iterable[Fault]) -> list[Fault]:
    """Returns the times at which living consumers found that they had been taken for dead, by the logs of workers.

    Args:
        directory: Where the logs are, a file ``*.log`` each.
        faults: What happened to Redis.
    """
    losses = [fault for fault in faults if fault.kind in _LOSSES]
    return [
        fault
        for fault in _noticed(directory, _GONE, "taken for dead", 0.0)
        if not any(loss.begin <= fault.end <= loss.end + NOTICED_S for loss in losses)
    ]


def silences(directory: Path, lease_s: float) -> Iterator[Fault]:
    """Returns the times for which consumers were silent for longer than their lease, by the logs of workers.

    Args:
        directory: Where the logs are, a file ``*.log`` each.
        lease_s: The length of a lease. The silence may have begun so long before the consumer noticed, or earlier.
    """
    return _noticed(directory, _SILENT, "silent", lease_s)


def _noticed(directory: Path, line_of: re.Pattern[str], kind: str, lease_s: float) -> Iterator[Fault]:
    for path in sorted(directory.glob("*.log")):
        with path.open(encoding="utf-8", errors="replace") as lines:
            for found in filter(None, map(line_of.match, lines)):
                noticed = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp()
                yield Fault(kind, path.stem, int(found[2]), noticed - lease_s, noticed)
