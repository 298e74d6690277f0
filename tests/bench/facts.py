"""Facts about a run that the page has besides the figures."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from celery_ext.demo.private_redis import find_server

if TYPE_CHECKING:
    from tests.bench.contender import Contender
    from tests.bench.schedule import Scale


@dataclass(frozen=True)
class Entrant:
    """A contender, as the page introduces it.

    Attributes:
        name: Name in the samples.
        versions: The versions of its parts, by name; empty where it cannot run.
        settings: Its usual configuration, in Markdown.
        why_not: What it lacked on this machine; empty if it ran.
    """

    name: str
    versions: Mapping[str, str]
    settings: str
    why_not: str = ""

    @classmethod
    def of(cls, contender: Contender) -> Entrant:
        """Introduces a contender. Its versions are asked for only if it can run here."""
        why_not = contender.why_not() or ""
        settings = f"{contender.settings}. One process: {contender.alone_settings}"
        return cls(contender.name, {} if why_not else contender.versions(), settings, why_not)


@dataclass(frozen=True)
class Facts:
    """Where, when and of what a run was.

    Attributes:
        machine: What it ran on: what to call it, and what it is.
        contenders: All of them, in the order of the tables, those that could not run too.
        date: When it began, in UTC.
        command: The command that repeats it.
        took_s: How long it took, in s.
        numbers: What ``numbers`` returns for its scale.
        quick: Whether sizes were small.
        notes: Further facts that a reader of this run should know, in Markdown. A note has one sentence or more.
    """

    machine: Mapping[str, str]
    contenders: Sequence[Entrant]
    date: datetime
    command: str
    took_s: float
    numbers: Mapping[str, str]
    quick: bool = False
    notes: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        """Returns all of it, for JSON."""
        return {**asdict(self), "date": self.date.isoformat(timespec="seconds")}


def numbers(scale: Scale) -> dict[str, str]:
    """Returns the numbers that the texts of ``tests.bench.measures`` leave open, as they are shown."""
    from tests.bench import jobs

    found = {
        "cancelled": jobs.CANCELLED,
        "cancel_s": jobs.CANCEL_S,
        "transfer_s": jobs.TRANSFER_S,
        "grace_s": jobs.GRACE_S,
        "idle_s": jobs.IDLE_S,
        "alone_s": jobs.ALONE_S,
        "alone": scale.alone,
        "per_s": scale.per_s,
        "seconds": scale.seconds,
        "burst": scale.burst,
    }
    return {name: f"{value:,.10g}" for name, value in found.items()}


def machine() -> dict[str, str]:
    """Returns facts about this machine and its Redis."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": _processor() or platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{pages / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "Python": platform.python_version(),
        "Redis": _redis(),
    }


def _redis() -> str:
    """Returns the version of the server that is started."""
    done = subprocess.run([find_server(), "--version"], capture_output=True, text=True, check=True)
    return done.stdout.partition("v=")[2].partition(" ")[0]


def _processor() -> str:
    """Returns what Linux calls the processor; empty where it has no name for it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
