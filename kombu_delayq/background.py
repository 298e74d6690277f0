"""A worker in a thread of its own: outages, refusals and faults are logged, and none of them ends it."""

import os
import socket
import sys
from abc import ABC, abstractmethod
from logging import Logger
from threading import Event, Thread
from time import monotonic
from typing import ClassVar
from uuid import uuid4

from redis.exceptions import RedisError

from kombu_delayq.errors import DelayqError
from kombu_delayq.redis import Backoff

#: Pause before the next attempt with a server that cannot be used at all, in s: another one may take its place.
REFUSED_S = 10.0


class Outage:
    """Logs an outage once, however many attempts fail, and its end.

    Args:
        logger: The log for these lines.
        ends: The line at the end, with a ``%.1f`` for its length in s.
        down_since: ``monotonic()`` at the start of an outage that has been logged already and may go on.

    Attributes:
        down_since: ``monotonic()`` at the start of the outage, None if there is none.
    """

    def __init__(self, logger: Logger, ends: str, down_since: float | None = None) -> None:
        self.down_since = down_since
        self._logger = logger
        self._ends = ends
        self._backoff = Backoff()

    def failed(self, line: str) -> float:
        """Notes a failed attempt, and logs the line if it is the first. Returns the pause before the next one, in s."""
        if self.down_since is None:
            self.down_since = monotonic()
            self._logger.error("%s", line)
        return self._backoff.failed()

    def succeeded(self) -> None:
        """Notes an answer, which ends an outage."""
        if self.down_since is not None:
            self._logger.info(self._ends, monotonic() - self.down_since)
            self.down_since = None
            self._backoff.succeeded()


class BackgroundWorker(ABC):
    """Works in a daemon thread, or as a process of its own. Any number of them may run; one of them leads.

    Args:
        down_since: ``down_since`` of the worker before this one, if that was stopped during an outage.

    Attributes:
        name: Its name: host, process id and a random part. No other worker has the same.
    """

    _logger: ClassVar[Logger]
    _thread_name: ClassVar[str]
    #: Errors of what is away: the worker connects again.
    _away: ClassVar[tuple[type[Exception], ...]] = (RedisError, OSError)
    #: The line at the end of an outage, with a ``%.1f`` for its length in s; the one for a server that cannot be used
    #: at all; and the one for a fault of ours.
    _end_line: ClassVar[str]
    _refused_line: ClassVar[str]
    _fault_line: ClassVar[str]

    def __init__(self, down_since: float | None = None) -> None:
        self._pid = os.getpid()
        self.name = f"{socket.gethostname()}:{self._pid}:{uuid4().hex[:8]}"
        self._stopping = Event()
        self._thread: Thread | None = None
        self._outage = Outage(self._logger, self._end_line, down_since)
        self._last_refusal = ""

    @property
    def is_own(self) -> bool:
        """Whether this worker was made in this process. A fork does not copy the thread of a worker."""
        return self._pid == os.getpid()

    @property
    @abstractmethod
    def leading(self) -> bool:
        """Whether this worker leads."""

    @property
    def down_since(self) -> float | None:
        """Start of an outage that is not over, in s of ``monotonic``; None if there is none."""
        return self._outage.down_since

    def start(self) -> None:
        """Runs the worker in a daemon thread, which no error ends.

        Does nothing in a child of Celery's prefork pool, where a task may consume for a moment: the parent does the
        work. Any other process that consumes runs a worker, whatever it was forked from.
        """
        if is_pool_child():
            return
        self._thread = Thread(target=self._run_in_thread, name=self._thread_name, daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Stops, gives the lease back, and waits for the thread at most ``timeout_s``.

        A signal handler must not call this: it may interrupt code that holds the lock that this method takes.
        """
        if not self.is_own:
            return  # the thread is the parent's, and the fork may have copied its locks in any state
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def run(self) -> None:
        """Runs until stopped. What is away is logged once an outage, and attempts go on.

        Raises:
            DelayqError: The server cannot be used at all.
        """
        while not self._stopping.is_set():
            try:
                self._connect_and_work()
            except self._away as error:
                if not self._stopping.is_set():  # what is away at the end is no outage
                    self._stopping.wait(self._outage.failed(self._outage_line(error)))

    @abstractmethod
    def _connect_and_work(self) -> None:
        """Connects, and works until stopped or until an error."""

    @abstractmethod
    def _outage_line(self, error: Exception) -> str:
        """Returns the line for the log at the start of an outage."""

    def _run_in_thread(self) -> None:
        while not self._stopping.is_set():
            try:
                self.run()
            except DelayqError as error:
                if str(error) != self._last_refusal:
                    self._last_refusal = str(error)
                    self._logger.critical(self._refused_line, error)
                self._stopping.wait(REFUSED_S)
            except Exception as error:  # a fault of ours must not stop the work for good
                self._logger.exception("%s", self._fault_line)
                self._stopping.wait(self._outage.failed(self._outage_line(error)))


def is_pool_child() -> bool:
    """Whether this process belongs to Celery's prefork pool: billiard makes the processes of a pool daemons."""
    billiard = sys.modules.get("billiard.process")
    return billiard is not None and bool(billiard.current_process().daemon)
