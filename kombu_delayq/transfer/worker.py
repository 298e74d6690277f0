"""The transfer worker: pushes each delayed message to its queue the moment it is due."""

import os
import random
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from threading import Event, Thread
from time import monotonic
from uuid import uuid4

from kombu.log import get_logger
from redis.exceptions import RedisError, ResponseError

from kombu_delayq.connection.demotion import NotPrimary
from kombu_delayq.connection.text import readable
from kombu_delayq.errors import DelayqError
from kombu_delayq.store import TransportStore
from kombu_delayq.store.types import QueueForm, Transferred
from kombu_delayq.store.wake import WakeListener, WakeRefused
from kombu_delayq.transfer.backoff import Outage
from kombu_delayq.transfer.due_times import Agenda
from kombu_delayq.transfer.forgetting import Forgetting

logger = get_logger(__name__)

#: Poll intervals from one look at Redis to the next, of the leader and its deputies, and of those that stand by; at
#: random within these, so that workers that started together do not all ask together.
LOOKS, STANDBY_LOOKS = (1.0, 1.15), (8.0, 12.0)
#: Longest single wait in s for an announcement, which is how long a stop may go unnoticed.
LISTEN_S = 0.2
#: The last part of a wait, in s, in which announcements are not heard: sockets are waited for in whole ms, rounded up.
FINE_S = 0.002


class TransferWorker:
    """Moves due messages, in a thread of a consumer or as a process of its own.

    Any number may run. The one that holds the lease sleeps until the exact due time. Two others are its deputies, which
    look every poll interval, so that a leader that died costs no more than that. All others look more rarely, in case
    these have died, or cannot deliver something that they can.

    Args:
        connect: Makes a store with connections of its own; called again after each outage.
        queues: Names of queues to look after besides those that the store knows.
        on_transfer: Told the queue and the result of each transfer that moved messages.
        down_since: As of the worker before it, which was stopped in an outage.
    """

    def __init__(
        self,
        connect: Callable[[], TransportStore],
        *,
        queues: Callable[[], Iterable[str]] = tuple,
        on_transfer: Callable[[str, Transferred], None] | None = None,
        down_since: float | None = None,
    ) -> None:
        self._pid = os.getpid()
        self.name = f"{socket.gethostname()}:{self._pid}:{uuid4().hex[:8]}"
        self._rank: int | None = None  # see Lease; None while it does not know
        self._connect = connect
        self._queues = queues
        self._on_transfer = on_transfer
        self._stopping = Event()
        self._thread: Thread | None = None
        self._outage = Outage(logger, down_since)
        self._refused: set[QueueForm] = set()
        self._others: set[QueueForm] = set()  # in the other form of backup
        self._known: set[str] = set()
        self._agenda = Agenda()
        self._forgetting = Forgetting()
        self._warned = ""
        self._may_listen = True
        self._may_follow = True  # queues in Redisson's form

    @property
    def is_own(self) -> bool:
        """Whether it was made in this process, and not in one from which this was forked: no thread survives that."""
        return self._pid == os.getpid()

    @property
    def leading(self) -> bool:
        """Whether it holds the lease."""
        return self._rank == 1

    @property
    def down_since(self) -> float | None:
        """When the outage began that is not over, in s of ``monotonic``."""
        return self._outage.since

    def start(self) -> None:
        """Runs in a daemon thread, which no error ends.

        Does nothing in a child of Celery's prefork pool, where a task may consume for a moment: the parent does the
        work. Any other process that consumes runs one, whatever it was forked from.
        """
        if _is_pool_child():
            return
        self._thread = Thread(target=self._run_in_thread, name="delayq-transfer", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Stops, gives the lease back, and waits for the thread at most ``timeout_s``.

        Not for a signal handler, which may interrupt what holds a lock that this takes.
        """
        if not self.is_own:
            return  # the thread is the parent's, and the locks may be as they were in the middle of its work
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def run(self) -> None:
        """Runs until stopped. Errors of Redis are logged once an outage and waited out.

        Raises:
            DelayqError: The server cannot be used at all.
        """
        while not self._stopping.is_set():
            try:
                self._serve(self._connect())
            except (RedisError, OSError) as error:
                self._stopping.wait(self._outage.goes_on(error))

    def _run_in_thread(self) -> None:
        while not self._stopping.is_set():
            try:
                self.run()
            except DelayqError as error:
                logger.critical("no transfer worker runs in this process: %s", error)
                return
            except Exception as error:  # a fault of ours must not stop the delivery for good
                logger.exception("the transfer worker failed and starts again")
                self._stopping.wait(self._outage.goes_on(error))

    def _serve(self, store: TransportStore) -> None:
        with ExitStack() as cleanup:
            cleanup.callback(store.close)
            self._check(store)
            cleanup.callback(self._release, store)
            listening = cleanup.enter_context(ExitStack())
            listener = None
            while not self._stopping.is_set():
                if self._stood_by(store):
                    continue
                begun = monotonic()
                self._lead(store)
                until = begun + self._poll_s(store)
                if not self.leading:
                    listening.close()
                    listener = None
                elif listener is None and self._may_listen:
                    listener = listening.enter_context(store.delivery.listen())
                self._look(store)
                if listener is not None and self._may_follow:
                    listener.follow(self._listed(store))
                if self.leading:
                    self._forgetting.go_on(store, self._known, listener)
                self._outage.is_over()
                try:
                    self._deliver(store, listener, until, on_time=self.leading)
                except WakeRefused as error:
                    self._hear_less(error, follows=listener is not None and listener.follows)
                    listening.close()
                    listener = None

    def _stood_by(self, store: TransportStore) -> bool:
        """Waits for the next look if this worker stands by and has nothing to do. Returns whether it did."""
        begun = monotonic()
        if self._rank != 0 or not store.leases.all_quiet(self._known, self._queues()):
            return False
        self._stopping.wait(begun + self._poll_s(store) - monotonic())
        return True

    def _check(self, store: TransportStore) -> None:
        store.check_version()
        warning = store.eviction_warning()
        if warning and warning != self._warned:
            logger.warning("%s", warning)
        self._warned = warning

    def _lead(self, store: TransportStore) -> None:
        led = self.leading
        lease = store.leases.lead(self.name)
        self._rank = lease.rank
        if self.leading != led:
            what = f"stands by for {lease.leader}" if led else "leads"
            logger.info("transfer worker %s %s", self.name, what)
        self._known = set(lease.queues)
        self._agenda.look_after([*lease.queues, *self._queues()])

    def _poll_s(self, store: TransportStore) -> float:
        """Returns how long it is from one look at Redis to the next in s."""
        poll_s = store.options.poll_interval
        if self._rank:
            return poll_s * random.uniform(*LOOKS)
        return poll_s * random.uniform(*STANDBY_LOOKS)

    def _release(self, store: TransportStore) -> None:
        rank, self._rank = self._rank, None
        if rank:
            # Where Redis does not answer, the lease ends by itself.
            with suppress(RedisError, OSError):
                store.leases.release(self.name)

    def _look(self, store: TransportStore) -> None:
        """Learns from Redis when each queue's next message is due."""
        heads = store.delivery.heads(self._agenda.queues)
        self._agenda.learn(heads)
        for form in heads.due_ms:
            if form.backup != store.backup and form not in self._others:
                self._others.add(form)
                self._warn_of(store, form)
            if form.queue not in self._known:  # another client's messages are the first in it
                store.queues.know(form.queue)

    def _warn_of(self, store: TransportStore, form: QueueForm) -> None:
        logger.warning(
            "queue %r has delayed messages in the form %r, while the transport option backup is %r here: both are "
            "delivered. If it is not meant to be so, set the option alike everywhere, and move them with "
            "`delayq convert %s --to %s`",
            *(form.queue, form.backup, store.backup, readable(form.queue), store.backup),
        )

    def _listed(self, store: TransportStore) -> Iterable[str]:
        """Returns the queues that may have messages in Redisson's form."""
        others = {form.queue for form in self._others}
        return self._agenda.queues if store.backup == "list" else others.intersection(self._agenda.queues)

    def _deliver(self, store: TransportStore, listener: WakeListener | None, until: float, *, on_time: bool) -> None:
        """Transfers what is due, and with ``on_time`` what becomes due, until the next poll."""
        while not self._stopping.is_set() and (left_s := until - monotonic()) > 0:
            self._transfer_due(store)
            next_s = self._agenda.next_s()
            if not on_time and next_s > 0:
                next_s = left_s
            wait_s = max(min(next_s, left_s), 0)
            if listener is None or wait_s <= FINE_S:
                self._stopping.wait(wait_s)
            else:
                self._hear(store, listener, min(wait_s - FINE_S, LISTEN_S))

    def _hear_less(self, error: WakeRefused, *, follows: bool) -> None:
        """Does without the channels that are forbidden; Redis does not say which, so first without Redisson's."""
        if follows:
            self._may_follow = False
        else:
            self._may_listen = False
        what = "delayed messages in Redisson's form" if follows else "delayed messages"
        logger.warning("new %s are noticed only every poll interval: %s", what, error)

    def _hear(self, store: TransportStore, listener: WakeListener, timeout_s: float) -> None:
        wake = listener.wait(timeout_s)
        if wake is None:
            return
        if wake.form is None:
            self._look(store)
        else:
            self._agenda.expect(wake.form, wake.due_ms)
            if wake.form.backup == "hash":  # who announces such a head has made its queue known
                self._known.add(wake.form.queue)

    def _transfer_due(self, store: TransportStore) -> None:
        """Transfers one batch of each queue that has messages due."""
        for form in self._agenda.due():
            try:
                done = store.delivery.transfer(*form)
            except NotPrimary:
                raise
            except ResponseError as error:
                self._refuse(form, error)
                continue
            self._refused.discard(form)
            self._agenda.moved(form, done)
            self._tell(form.queue, done)

    def _refuse(self, form: QueueForm, error: ResponseError) -> None:
        self._agenda.leave(form)
        if form not in self._refused:
            self._refused.add(form)
            logger.error(
                "delayed messages of queue %r stay where they are, tried again every poll interval: %s",
                *(form.queue, readable(error)),
            )

    def _tell(self, queue: str, done: Transferred) -> None:
        if done.lost:
            logger.error("queue %r: %d delayed messages had no body and are lost", queue, done.lost)
        if done.moved and self._on_transfer is not None:
            self._on_transfer(queue, done)


def _is_pool_child() -> bool:
    """Whether this process is one of a pool of billiard, which Celery's prefork pool is; it marks them so."""
    billiard = sys.modules.get("billiard.process")
    return billiard is not None and bool(billiard.current_process().daemon)
