"""Results of the prefork pool: all that a child has written is read at once, and its next task goes to it at once."""

import os
import pickle
from collections.abc import Generator, Iterator
from struct import Struct
from typing import Any

from celery.concurrency import asynpool, prefork
from celery.worker import state

#: Most bytes of a read: what a pipe holds on Linux.
READ_BYTES = 65_536
#: What comes before each message of a child: its size in bytes. Source: billiard's ``Connection.send_bytes``.
_HEADER = Struct(">i")


class ChildResults:
    """Handles in one turn of the event loop all that a child of the prefork pool has written.

    Celery reads one message a turn, and a task has two: that it was accepted, and its result. After the result, two
    further turns pass until the child has its next task. Here the child gets it in the same turn, if one waits and each
    child has one task at a time (``-O fair``, the default).

    Args:
        pool: Celery's ``AsynPool``.
        results: Its ``ResultHandler``.
        hub: The event loop.

    Source: celery.concurrency.asynpool.ResultHandler.
    """

    def __init__(self, pool: Any, results: Any, hub: Any) -> None:
        self._pool = pool
        self._processes, self._change = results.fileno_to_outq, results.on_state_change
        self._is_fair = pool.sched_strategy == asynpool.SCHED_STRATEGY_FAIR
        self._hub = hub

    @classmethod
    def read_of(cls, pool: Any) -> None:
        """Lets a pool that has started read so with its next event loop; nothing changes for one of another kind."""
        processes: Any = pool._pool if type(pool) is prefork.TaskPool else None
        if type(processes) is asynpool.AsynPool and type(processes._result_handler) is asynpool.ResultHandler:
            results = processes._result_handler
            results._make_process_result = lambda hub: cls(processes, results, hub).on_readable

    def on_readable(self, fd: int) -> None:
        """Reads what a child has written; the loop calls this with the file descriptor of the child's pipe."""
        process = self._processes.get(fd)
        if process is None:
            self._hub.remove_reader(fd)
            return
        try:
            self._read(fd)
        except BlockingIOError:
            return
        except (OSError, EOFError):
            self._hub.remove_reader(fd)
            return
        self._employ(process.inqW_fd)

    def _read(self, fd: int) -> None:
        content = os.read(fd, READ_BYTES)
        if not content:
            raise EOFError
        messages, rest = _split(content)
        if rest:
            self._hub.add_reader(fd, self._finish(fd, bytearray(rest)))
        self._handle(iter(messages))

    def _employ(self, child: int) -> None:
        """Sends a child that has nothing to do the next task, unless the worker is to stop, as the loop asks first."""
        pool = self._pool
        if not self._is_fair or _is_set(state.should_stop) or _is_set(state.should_terminate):
            return
        if pool.outbound_buffer and child in pool._all_inqueues and child not in pool._busy_workers:
            self._hub.consolidate_callback([child])

    def _finish(self, fd: int, content: bytearray) -> Generator[None]:
        """Reads the rest of a message, and no more; Celery ends such a generator when the worker stops."""
        while missing := _missing(content):
            try:
                more = os.read(fd, missing)
            except BlockingIOError:
                yield
                continue
            if not more:
                raise OSError("a child has ended within a message")
            content += more
        self._hub.add_reader(fd, self.on_readable, fd)
        self._handle(iter([memoryview(content)[_HEADER.size :]]))

    def _handle(self, messages: Iterator[bytes | memoryview]) -> None:
        try:
            for content in messages:
                if message := pickle.loads(content):  # noqa: S301 (from a child, as Celery does)
                    self._change(message)
        except BaseException:
            self._handle(messages)  # they have left the pipe
            raise


def _is_set(request: Any) -> bool:
    """Whether a signal has asked the worker to stop, perhaps with exit code 0. Source: ``state.maybe_shutdown``."""
    return request is not None and request is not False


def _split(content: bytes) -> tuple[list[bytes], bytes]:
    """Returns the whole messages, and the beginning of one more."""
    messages, at = [], 0
    while (start := at + _HEADER.size) <= len(content):
        end = start + _HEADER.unpack_from(content, at)[0]
        if end > len(content):
            break
        messages.append(content[start:end])
        at = end
    return messages, content[at:]


def _missing(content: bytearray) -> int:
    """Returns how many bytes a message wants before it is whole, or before its size is known."""
    if len(content) < _HEADER.size:
        return _HEADER.size - len(content)
    return _HEADER.size + int(_HEADER.unpack_from(content)[0]) - len(content)
