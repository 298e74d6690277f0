"""Processes of this machine, by a name that no other process ever has."""

import os
from contextlib import suppress
from functools import cache
from pathlib import Path

#: Where among the fields of ``/proc/PID/stat``, behind the name in parentheses, the state is, the number of threads,
#: and the beginning. Numbers of processes have seven digits at most.
_STATE, _THREADS, _BEGAN, _DIGITS = 0, 17, 19, 7


def this_process() -> str:
    """Returns the name of this process; an empty text on a machine that does not tell what it takes, as without Linux.

    It says which machine runs since when, which numbers of processes and which time count there (a container may have
    its own), the number, and when the process began: Linux gives a number again.
    """
    return _name(os.getpid())


def has_ended(process: str) -> bool:
    """Whether a process of this machine has ended for sure, by its name; False where that cannot be seen."""
    place, _, rest = process.rpartition("/")
    pid, _, began = rest.partition("@")
    if not place or place != _place() or not pid.isdecimal() or len(pid) > _DIGITS:
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # it runs, as another user
    fields = _stat(int(pid))
    if not fields:
        return False
    # A zombie has no connections any more, unless only its main thread has ended.
    return fields[_BEGAN] != began or (fields[_STATE] in "ZX" and int(fields[_THREADS]) <= 1)


@cache
def _name(pid: int) -> str:
    fields = _stat(pid)
    return f"{_place()}/{pid}@{fields[_BEGAN]}" if fields and _place() else ""


@cache
def _place() -> str:
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{_namespace('pid')}/{_namespace('time') if Path('/proc/self/ns/time').exists() else 0}"
    return ""


def _namespace(kind: str) -> int:
    return Path(f"/proc/self/ns/{kind}").stat().st_ino


def _stat(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return []
