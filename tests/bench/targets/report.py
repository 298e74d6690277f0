"""One measured figure, its target, and how a line of the table shows them."""

import os
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from celery_ext.demo.private_redis import PrivateRedis

WIDTHS = (62, 16, 12)


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    Attributes:
        measure: What was measured.
        value: The value, in ``unit``.
        target: Its bound; None for a figure that only explains another.
        at_least: Whether the target is a lower bound; else it is an upper bound.
        note: How it was measured, where the name does not say so.
    """

    measure: str
    value: float
    unit: str = ""
    target: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target

    def line(self) -> str:
        """Returns the line of the table."""
        bound = "" if self.target is None else f"{'≥' if self.at_least else '≤'} {_shown(self.target)}"
        met = {None: "", True: "yes", False: "NO"}[self.met]
        return _columns(self.measure, f"{_shown(self.value)} {self.unit}".strip(), bound, met)

    def as_dict(self) -> dict[str, Any]:
        """Returns all fields, for JSON."""
        return {**asdict(self), "met": self.met}


def heading() -> str:
    """Returns the head of the table."""
    return f"{_columns('measure', 'value', 'target', 'met')}\n{'-' * (sum(WIDTHS) + 7)}"


def machine() -> dict[str, Any]:
    """Returns facts about the machine and the software that figures are measured on."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with PrivateRedis() as started:
        server: Any = started.client().info()
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory": f"{pages / 2**30:.0f} GiB",
        "load": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "Python": platform.python_version(),
        **{package: version(package) for package in ("celery", "kombu", "redis")},
        "Redis": server["redis_version"],
        "allocator": server["mem_allocator"],
    }


def _columns(measure: str, value: str, target: str, met: str) -> str:
    return f"{measure:<{WIDTHS[0]}} {value:>{WIDTHS[1]}}  {target:<{WIDTHS[2]}} {met}".rstrip()


def _shown(number: float) -> str:
    digits = 0 if abs(number) >= 100 or number == int(number) else 2
    return f"{number:,.{digits}f}"
