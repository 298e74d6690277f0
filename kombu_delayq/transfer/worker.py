"""The transfer worker: pushes each delayed message to its queue the moment it is due."""

import os
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from threading import Event, Thread
from time import monotonic
from uuid import uuid4

from kombu.log import get_logger
from redis.exceptions import RedisError

from kombu_delayq.errors import DelayqError
from kombu_delayq.store import TransportStore
from kombu_delayq.store.wake import WakeRefused
from kombu_delayq.transfer.announcements import Announcements
from kombu_delayq.transfer.backoff import Backoff
from kombu_delayq.transfer.due_messages import DueMessages, OnTransfer
from kombu_delayq.transfer.leader import Leader, Tidying
from kombu_delayq.transfer.leadership import Leadership
from kombu_delayq.transfer.reclaim import Reclaiming
from kombu_delayq.transfer.standby import Standby

logger = get_logger(__name__)

#: Pause before the next attempt with a server that cannot be used at all, in s: another one may take its place.
REFUSED_S = 10.0


class TransferWorker:
    """Moves due messages, in a thread of a consumer or as a process of its own.

    Any number of workers may run. The worker that holds the lease sleeps until the exact due time. Two others are its
    standbys: soon after each due time they look whether the message has left, so that a leader that dies delays
    messages hardly. All others look rarely. They take over when the leader and the standbys have died, or when a
    message is due that these cannot deliver.

    Args:
        connect: Makes a store with its own connections; called again after each outage.
        queues: Returns names of queues to look after besides the registered ones.
        on_transfer: Called after each transfer that moved messages, with the name of the queue and the result.
        down_since: ``down_since`` of the worker before this one, if that was stopped during an outage.
    """

    def __init__(
        self,
        connect: Callable[[], TransportStore],
        *,
        queues: Callable[[], Iterable[str]] = tuple,
        on_transfer: OnTransfer | None = None,
        down_since: float | None = None,
    ) -> None:
        self._pid = os.getpid()
        self.name = f"{socket.gethostname()}:{self._pid}:{uuid4().hex[:8]}"
        self._connect = connect
        self._stopping = Event()
        self._thread: Thread | None = None
        self._backoff = Backoff(logger, down_since)
        self._leadership = Leadership(self.name, queues)
        self._announcements = Announcements()
        self._messages = DueMessages(on_transfer)
        self._leader = Leader(self._messages, self._announcements, self._stopping)
        self._standby = Standby(self._messages, self._announcements, self._stopping)
        self._tidying = Tidying()
        self._reclaiming = Reclaiming()
        self._last_warning = self._last_refusal = ""

    @property
    def is_own(self) -> bool:
        """Whether this worker was made in this process. A fork does not copy the thread of a worker."""
        return self._pid == os.getpid()

    @property
    def leading(self) -> bool:
        """Whether this worker holds the leader's lease."""
        return self._leadership.leads

    @property
    def down_since(self) -> float | None:
        """Start of an outage that is not over, in s of ``monotonic``; None if there is none."""
        return self._backoff.down_since

    def start(self) -> None:
        """Runs the worker in a daemon thread, which no error ends.

        Does nothing in a child of Celery's prefork pool, where a task may consume for a moment: the parent does the
        work. Any other process that consumes runs a worker, whatever it was forked from.
        """
        if is_pool_child():
            return
        self._thread = Thread(target=self._run_in_thread, name="delayq-transfer", daemon=True)
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
        """Runs until stopped. Errors of Redis are logged once an outage, and attempts go on.

        Raises:
            DelayqError: The server cannot be used at all.
        """
        while not self._stopping.is_set():
            try:
                self._serve(self._connect())
            except (RedisError, OSError) as error:
                self._stopping.wait(self._backoff.failed(error))

    def _run_in_thread(self) -> None:
        while not self._stopping.is_set():
            try:
                self.run()
            except DelayqError as error:
                if str(error) != self._last_refusal:
                    self._last_refusal = str(error)
                    logger.critical("no transfer worker runs in this process: %s", error)
                self._stopping.wait(REFUSED_S)
            except Exception as error:  # a fault of ours must not stop the delivery for good
                logger.exception("the transfer worker failed and starts again")
                self._stopping.wait(self._backoff.failed(error))

    def _serve(self, store: TransportStore) -> None:
        with ExitStack() as cleanup:
            cleanup.callback(store.close)
            self._check(store)
            cleanup.callback(self._leadership.release, store)
            cleanup.callback(self._announcements.close)
            while not self._stopping.is_set():
                begun = monotonic()
                if self._leadership.is_idle(store):
                    self._stopping.wait(begun + self._leadership.look_s(store) - monotonic())
                else:
                    self._work(store)

    def _check(self, store: TransportStore) -> None:
        store.check_version()
        warning = store.eviction_warning()
        if warning and warning != self._last_warning:
            logger.warning("%s", warning)
        self._last_warning = warning

    def _work(self, store: TransportStore) -> None:
        """Does the work of one poll interval: looks at Redis, then delivers until the next look."""
        begun, led = monotonic(), self.leading
        queues = self._leadership.renew(store)
        self._messages.due_times.look_after(queues, goes_on=led and self.leading)
        until = begun + self._leadership.look_s(store)
        self._announcements.open(store, wanted=self._leadership.holds_lease)
        meanwhile = partial(self._messages.transfer, store) if self.leading else bool
        self._messages.look(store, self._leadership.registered, meanwhile)
        self._announcements.follow(self._messages.in_list_form(store))
        for chore in (self._tidy, self._reclaim):
            try:
                chore(store)
            except (RedisError, OSError) as error:
                if not store.is_of_one_node(error):
                    raise
                logger.debug("a node is away, and some work waits for it: %s", error)
        self._backoff.succeeded()
        try:
            self._deliver(store, until)
        except WakeRefused as error:
            self._announcements.narrow(error)

    def _tidy(self, store: TransportStore) -> None:
        """Does what the leader does beside the delivery."""
        if not self.leading:
            return
        self._messages.clear(store)
        self._tidying.go_on(store, self._leadership.registered)

    def _reclaim(self, store: TransportStore) -> None:
        self._reclaiming.go_on(store, leads=self.leading)

    def _deliver(self, store: TransportStore, until: float) -> None:
        registered = self._leadership.registered
        if self.leading:
            self._leader.deliver(store, registered, until)
        elif self._announcements.are_heard:
            self._standby.watch(store, registered, self._leadership.grace_s, until)
        else:
            while self._messages.due_times.next_s() <= 0 and not self._stopping.is_set() and monotonic() < until:
                self._messages.transfer(store)
            self._stopping.wait(until - monotonic())


def is_pool_child() -> bool:
    """Whether this process belongs to Celery's prefork pool: billiard makes the processes of a pool daemons."""
    billiard = sys.modules.get("billiard.process")
    return billiard is not None and bool(billiard.current_process().daemon)
