"""What became of messages by Redis's own log, the AOF, which has every write in order.

A script's or a transaction's writes stand between MULTI and EXEC. So a RPOP that stands by itself is a BRPOP, which
takes a message and leaves nothing behind.
"""

import os
import re
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

from tests.chaos.fleet.setup import OURS, STOCK

#: The last step of a message that BRPOP took and nobody noted.
POPPED = "taken by BRPOP and never noted as unacknowledged"
_ID = re.compile(rb"publisher-[a-z0-9-]+\.\d+\.\d+")
#: Tags of our consumers are numbered; stock's are UUIDs.
_OUR_TAG = re.compile(r".+\.\d+")


def keep(server: Path, kept: Path) -> None:
    """Keeps the server's log files from being deleted when it writes a shorter log. Copies nothing: they are linked.

    Args:
        server: Directory of the server.
        kept: Directory for the links, on the same file system.
    """
    # Before Redis 7 there is one file.
    for path in (*(server / "appendonlydir").glob("*.incr.aof"), *server.glob("appendonly.aof")):
        link = kept / path.name
        if not link.exists():
            with suppress(FileNotFoundError):  # deleted meanwhile: it was linked before then
                os.link(path, link)


def kept_files(kept: Path) -> list[Path]:
    """Returns the log files in the order in which they were written."""
    return sorted(kept.glob("*.aof"), key=lambda path: [int(part) for part in path.name.split(".") if part.isdigit()])


def commands(files: Collection[Path]) -> Iterator[list[bytes]]:
    """Yields the commands of log files. A command at the end that was cut short is left out."""
    for path in files:
        with path.open("rb") as file:
            while (head := file.readline()).startswith(b"*"):
                items = []
                for _ in range(int(head[1:])):
                    size = int(file.readline()[1:] or 0)
                    items.append(file.read(size + 2)[:-2])
                yield items


class Trace:
    """Follows messages through the log.

    Args:
        ids: The tasks that are followed.

    Attributes:
        steps: The steps of each of these tasks, in order, in words.
    """

    def __init__(self, ids: Collection[str]) -> None:
        self.steps: dict[str, list[str]] = {task_id: [] for task_id in ids}
        self._lists: dict[bytes, deque[str]] = defaultdict(deque)
        self._tags: dict[bytes, str] = {}
        self._in_transaction = False
        self._follow: dict[bytes, Callable[[list[bytes]], None]] = {
            b"LPUSH": lambda args: self._push(args, left=True),
            b"RPUSH": lambda args: self._push(args, left=False),
            b"LPOP": lambda args: self._pop(args, left=True),
            b"RPOP": lambda args: self._pop(args, left=False),
            b"LMOVE": self._move,
            b"LREM": self._remove,
            b"LTRIM": self._trim,
            b"DEL": self._delete,
            b"UNLINK": self._delete,
            b"HSET": self._set,
            b"HMSET": self._set,
            b"HDEL": self._unset,
        }

    def read(self, files: Collection[Path]) -> "Trace":
        """Follows all commands of log files."""
        for name, *args in commands(files):
            upper = name.upper()
            if upper in (b"MULTI", b"EXEC"):
                self._in_transaction = upper == b"MULTI"
            elif upper in self._follow:
                self._follow[upper](args)
        return self

    def _note(self, task_id: str, step: str) -> None:
        if task_id in self.steps:
            self.steps[task_id].append(step)

    def _push(self, args: list[bytes], *, left: bool) -> None:
        key, *values = args
        for value in values:
            task_id = _id(value)
            self._add(key, task_id, left=left)
            self._note(task_id, f"pushed to {_name(key)}")

    def _add(self, key: bytes, task_id: str, *, left: bool) -> None:
        (self._lists[key].appendleft if left else self._lists[key].append)(task_id)

    def _pop(self, args: list[bytes], *, left: bool) -> None:
        key, *count = args
        step = f"taken from {_name(key)}" if self._in_transaction else POPPED
        for _ in range(int(count[0]) if count else 1):
            if self._lists[key]:
                self._note(self._lists[key].popleft() if left else self._lists[key].pop(), step)

    def _move(self, args: list[bytes]) -> None:
        source, sink, out, into = args
        if self._lists[source]:
            task_id = self._lists[source].popleft() if out.upper() == b"LEFT" else self._lists[source].pop()
            self._add(sink, task_id, left=into.upper() == b"LEFT")
            self._note(task_id, f"moved to {_name(sink)}")

    def _remove(self, args: list[bytes]) -> None:
        key, _, value = args
        task_id = _id(value)
        with suppress(ValueError):
            self._lists[key].remove(task_id)
            self._note(task_id, f"removed from {_name(key)}")

    def _trim(self, args: list[bytes]) -> None:
        key, first, last = args[0], int(args[1]), int(args[2])
        left = list(self._lists[key])
        end = len(left) if last == -1 else last + 1
        self._lists[key] = deque(left[first:end])

    def _delete(self, args: list[bytes]) -> None:
        for key in args:
            for task_id in self._lists.pop(key, ()):
                self._note(task_id, f"deleted with {_name(key)}")

    def _set(self, args: list[bytes]) -> None:
        key, *fields = args
        for field, value in zip(fields[::2], fields[1::2], strict=True):
            task_id = _id(value)
            if task_id in self.steps:
                if key == b"unacked":
                    self._tags[field] = task_id
                self._note(task_id, f"noted in {_name(key)} as {_name(field)}")

    def _unset(self, args: list[bytes]) -> None:
        key, *fields = args
        for field in fields:
            task_id = self._tags.pop(field, None) if key == b"unacked" else _id(field)
            if task_id is not None:
                self._note(task_id, f"out of {_name(key)}, {_name(field)}")


def blamed(steps: list[str], owner: str, *, takes: bool, early: bool) -> tuple[str, str]:
    """Returns whose fault a loss is, and why, from the last step of its message.

    Args:
        steps: The steps of the message.
        owner: Who consumes the queue: ``ours``, ``stock`` or ``mixed``.
        takes: Whether our workers take by script, so that a BRPOP is stock's.
        early: Whether the task is acknowledged before it starts.
    """
    last = steps[-1] if steps else "never written"
    if last == POPPED:
        return (STOCK if takes else owner), last
    if last.startswith("out of unacked, "):
        tag = last.removeprefix("out of unacked, ")
        by = OURS if _OUR_TAG.fullmatch(tag) else STOCK
        return ("promised", "acknowledged early, and its worker died before it began") if early else (by, last)
    return owner, last


def _id(value: bytes) -> str:
    found = _ID.search(value)
    return found[0].decode() if found else ""


def _name(key: bytes) -> str:
    return key.decode(errors="replace")
