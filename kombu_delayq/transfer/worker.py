"""The transfer worker: pushes each delayed message to its queue the moment it is due."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from time import monotonic
from typing import Any

from kombu.log import get_logger
from redis.exceptions import RedisError

from kombu_delayq import hooks
from kombu_delayq.background import BackgroundWorker
from kombu_delayq.store import Announcements, DelayStore, WakeRefused
from kombu_delayq.transfer.due_messages import DueMessages, OnTransfer
from kombu_delayq.transfer.leader import Leader, Tidying
from kombu_delayq.transfer.leadership import IdleConsumer, TransferLeadership
from kombu_delayq.transfer.reclaim import Reclaiming
from kombu_delayq.transfer.standby import Standby

logger = get_logger(__name__)


class TransferWorker(BackgroundWorker):
    """Moves due messages, in a thread of a consumer or as a process of its own.

    Any number of workers may run. The worker that holds the lease sleeps until the exact due time. Two others are its
    standbys: soon after each due time they look whether the message has left, so that a leader that dies delays
    messages hardly. All others look rarely. They take over when the leader and the standbys have died, or when a
    message is due that these cannot deliver.

    Args:
        connect: Makes a store with its own connections; called again after each outage.
        queues: Returns names of queues to look after besides the registered ones.
        consumer: The consumer of the same process, if there is one.
        on_transfer: Called after each transfer that moved messages, with the name of the queue and the result.
        down_since: ``down_since`` of the worker before this one, if that was stopped during an outage.
    """

    _logger = logger
    _thread_name = "delayq-transfer"
    _end_line = "Redis can be used again after %.1f s"
    _refused_line = "no transfer worker runs in this process: %s"
    _fault_line = "the transfer worker failed and starts again"

    def __init__(
        self,
        connect: Callable[[], DelayStore],
        *,
        queues: Callable[[], Iterable[str]] = tuple,
        consumer: IdleConsumer | None = None,
        on_transfer: OnTransfer | None = None,
        down_since: float | None = None,
    ) -> None:
        super().__init__(down_since)
        self._connect = connect
        self._leadership = TransferLeadership(self.name, queues, consumer)
        self._announcements = Announcements()
        self._messages = DueMessages(on_transfer)
        self._leader = Leader(self._messages, self._announcements, self._stopping)
        self._standby = Standby(self._messages, self._announcements, self._stopping)
        self._tidying = Tidying()
        self._chores: list[Any] | None = None  # of features, made when it leads
        self._reclaiming = Reclaiming()
        self._last_warning = ""

    @property
    def leading(self) -> bool:
        """Whether this worker holds the leader's lease."""
        return self._leadership.leads

    def _outage_line(self, error: Exception) -> str:
        return f"Redis cannot be used, delayed messages wait: {type(error).__name__}: {error}"

    def _connect_and_work(self) -> None:
        store = self._connect()
        with ExitStack() as cleanup:
            cleanup.callback(store.close)
            self._check(store)
            cleanup.callback(self._leadership.release, store)
            cleanup.callback(self._announcements.close)
            while not self._stopping.is_set():
                self._work(store)

    def _check(self, store: DelayStore) -> None:
        store.check_version()
        warning = store.eviction_warning()
        if warning and warning != self._last_warning:
            logger.warning("%s", warning)
        self._last_warning = warning

    def _work(self, store: DelayStore) -> None:
        """Does the work of one poll interval: looks at Redis, then delivers until the next look."""
        begun, led = monotonic(), self.leading
        queues = self._leadership.renew(store)
        self._messages.due_times.look_after(queues, goes_on=led and self.leading)
        look_s = self._leadership.look_s(store)
        self._announcements.open(store.delivery.listen, wanted=self._leadership.holds_lease)
        meanwhile = partial(self._messages.transfer, store) if self.leading else bool
        self._messages.look(store, self._leadership.registered, meanwhile, self._leadership.look)
        if self._leadership.waits and self._messages.due_times.next_s() > 0:
            self._outage.succeeded()
            self._stopping.wait(begun + look_s - monotonic())
            return
        self._announcements.follow(self._messages.with_channels(store))
        self._messages.get_ready(store)
        self._try(store, self._tidy)
        self._reclaiming.note(self._leadership.look)
        self._reclaim(store)
        self._outage.succeeded()
        try:
            # Where Redis is far away, or queues are many, the look may take all of its interval.
            self._deliver(store, max(begun + look_s, monotonic() + look_s / 2))
        except WakeRefused as error:
            self._announcements.narrow(error)

    def _tidy(self, store: DelayStore) -> None:
        """Does what the leader does beside the delivery."""
        if not self.leading:
            return
        self._messages.clear(store)
        look = self._leadership.look
        self._tidying.go_on(store, self._leadership.registered, (look and look.consumed) or ())
        if self._chores is None:
            self._chores = hooks.made("chore")
        for chore in self._chores:
            chore.go_on(store)

    def _reclaim(self, store: DelayStore) -> float:
        """Gives back what dead consumers held. Returns the time until the next look at them, in s."""
        self._try(store, partial(self._reclaiming.go_on, leads=self.leading, leader=self._leadership.stands_by_for))
        return self._reclaiming.wait_s()

    def _try(self, store: DelayStore, chore: Callable[[DelayStore], object]) -> None:
        """Does what can wait for a node of a cluster that is away."""
        try:
            chore(store)
        except (RedisError, OSError) as error:
            if not store.pool.is_partial(error):
                raise
            logger.debug("a node is away, and some work waits for it: %s", error)

    def _deliver(self, store: DelayStore, until: float) -> None:
        registered = self._leadership.registered
        if self.leading:
            self._leader.deliver(store, registered, until, self._reclaim)
        elif self._announcements.are_heard:
            self._standby.watch(store, registered, self._leadership.grace_s, until, self._reclaim)
        else:
            while self._messages.due_times.next_s() <= 0 and not self._stopping.is_set() and monotonic() < until:
                self._messages.transfer(store)
            self._stopping.wait(until - monotonic())
