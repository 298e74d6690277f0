"""The ledger: what publishers meant to publish, what tasks ran, and which faults befell whom.

Each process appends to a file of its own, one line an event. One ``write`` to a file opened with O_APPEND puts the line
into the kernel's hands before anything relies on it, so a SIGKILL loses none. The first line of a file says who writes.
Times are s since the epoch, by this machine's clock, which is Redis's clock too.

=========  ===================================  ======================================================
line       fields                               written
=========  ===================================  ======================================================
intent     I id kind queue tries due at         before a task is published; tries: how often it fails
confirm    C id outcome at                      when publishing has returned; outcome: as `if_waiting` says
error      E id at                              when publishing raised; it is then repeated
next       N id try due at                      before a retry; due: before that the try must not start
start      S id try at eta redelivered          first of all in a task
done       D id try at                          last of all in a task
refused    X id try at                          when the retry of a task was refused; it is requeued
=========  ===================================  ======================================================
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from time import time


@dataclass(frozen=True)
class Writer:
    """Who wrote a file of the ledger.

    Attributes:
        name: Name of the member of the fleet.
        by: ``ours`` or ``stock``.
        main: Process id of the member's first process.
        pid: Process id of the writer, which for a prefork worker is a child.
    """

    name: str
    by: str
    main: int
    pid: int


class Ledger:
    """Appends to the file of this process. After a fork the child opens a file of its own.

    Args:
        directory: Where the files are.
        name: Name of the member.
        by: ``ours`` or ``stock``.
    """

    def __init__(self, directory: str, name: str, by: str) -> None:
        self._directory = Path(directory)
        self._name = name
        self._by = by
        self._pid = 0
        self._file = -1
        self._opening = Lock()

    def write(self, event: str, *fields: object) -> None:
        """Appends an event with its fields and the time."""
        self.write_many([" ".join((event, *map(str, fields), repr(time())))])

    def write_many(self, lines: list[str]) -> None:
        """Appends whole lines at once."""
        if os.getpid() != self._pid:
            with self._opening:  # of several threads one opens, and no other writes before the first line
                if os.getpid() != self._pid:
                    self._open()
        os.write(self._file, ("\n".join(lines) + "\n").encode())

    def _open(self) -> None:
        pid = os.getpid()
        # The fleet starts each member in a session of its own, so the session's id is that of the first process.
        writer = Writer(self._name, self._by, os.getsid(0), pid)
        path = self._directory / f"{self._name}.{pid}.{time():.3f}.ledger"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(self._file, (json.dumps(asdict(writer)) + "\n").encode())
        self._pid = pid


def read(directory: Path) -> Iterator[tuple[Writer, list[str]]]:
    """Yields each event of each file with its writer, as a list of fields; the last is the time."""
    for path in sorted(directory.glob("*.ledger")):
        with path.open(encoding="utf-8") as lines:
            first = lines.readline()
            if not first.endswith("\n"):
                continue  # its process was killed while it began the file
            writer = Writer(**json.loads(first))
            for line in lines:
                if line.endswith("\n"):
                    yield writer, line.split()


@dataclass(frozen=True)
class Fault:
    """Something that the harness did, or that it saw.

    Attributes:
        kind: Such as ``kill`` or ``redis restart``.
        name: Member that it befell; empty for all that are connected.
        main: Process id of that member's first process; 0 for all.
        begin: When it began, s since the epoch.
        end: When it was over.
        note: Details for the reader.
    """

    kind: str
    name: str
    main: int
    begin: float
    end: float
    note: str = ""


class FaultLog:
    """Keeps the faults in a file beside the ledger."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "faults.jsonl"
        self.faults: list[Fault] = []

    def add(self, kind: str, name: str = "", main: int = 0, *, begin: float, end: float = 0.0, note: str = "") -> None:
        """Notes a fault; without ``end`` it was over at once."""
        fault = Fault(kind, name, main, begin, end or begin, note)
        self.faults.append(fault)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(fault)) + "\n")
