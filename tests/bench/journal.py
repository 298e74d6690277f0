"""The notes that every contender's task makes of how late it begins."""

import os
import struct
from functools import cache
from pathlib import Path
from time import sleep, time

#: How late a task began, in s; less than 0 if it began before its due time.
RECORD = struct.Struct("<d")


def arrive(due: float) -> None:
    """Notes that a task that was due then, in s since the epoch, begins now. With BENCH_HOLDS it does not end."""
    now = time()
    os.write(_journal(), RECORD.pack(now - due))
    if "BENCH_HOLDS" in os.environ:
        sleep(600)


class Journal:
    """The notes of all the tasks of one measure, in a file to which every worker appends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def count(self) -> int:
        """Returns how many tasks have begun."""
        return self.path.stat().st_size // RECORD.size

    def late_s(self) -> list[float]:
        """Returns how late each task began, in s."""
        return [late for (late,) in RECORD.iter_unpack(self.path.read_bytes())]

    def clear(self) -> None:
        """Removes all notes."""
        os.truncate(self.path, 0)


@cache
def _journal() -> int:
    return os.open(os.environ["BENCH_JOURNAL"], os.O_WRONLY | os.O_APPEND)
