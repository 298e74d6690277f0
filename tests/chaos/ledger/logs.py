"""What workers themselves say in their logs."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from tests.chaos.ledger.events import Fault

#: A consumer that lives, and could not renew its lease in time, because it was stopped or its machine was busy.
_SILENT = re.compile(r"^\[(.{23}): WARNING/\w+\] consumer \S+?:(\d+):\w+ was silent for longer than consumer_ttl")


def silences(directory: Path, lease_s: float) -> Iterator[Fault]:
    """Yields the times for which consumers were silent for longer than their lease, by the logs of workers.

    Args:
        directory: Where the logs are, a file ``*.log`` each.
        lease_s: The length of a lease. The silence may have begun so long before the consumer noticed, or earlier.
    """
    for path in sorted(directory.glob("*.log")):
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if found := _SILENT.match(line):
                    noticed = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp()
                    yield Fault("silent", path.stem, int(found[2]), noticed - lease_s, noticed)
