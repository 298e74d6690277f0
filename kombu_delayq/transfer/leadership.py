"""A transfer worker's place among all: one leads, two are its standbys, all others wait."""

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Protocol

from kombu.log import get_logger
from redis.exceptions import RedisError

from kombu_delayq.store import DelayStore, Look

logger = get_logger(__name__)

#: Number of poll intervals from one look at Redis to the next, for the leader and its standbys, and for workers that
#: wait. A random number within these bounds keeps workers that started together from asking together.
LOOKS, WAITING_LOOKS = (1.0, 1.15), (8.0, 12.0)
#: How long after its due time the first standby and the second look whether a head has left, in s. The leader needs a
#: few ms; the second standby gives the first one time.
FIRST_GRACE_S, SECOND_GRACE_S = 0.04, 0.08
#: The lease of an idle consumer is renewed after this fraction of ``consumer_ttl``: before it does so itself.
RENEW_FRACTION = 1 / 8
#: Rank of the second standby, as in ``Lease``.
LAST_RANK = 3
#: The most queues whose heads are read in the command that renews the lease, and the most consumed queues of which the
#: leader tells consumers whether there are messages. All of these hear of all.
MOST_QUEUES, MOST_TOLD = 2000, 25


class IdleConsumer(Protocol):
    """The consumer of the same process. While it holds nothing, its lease is renewed with that of the worker."""

    def idle_names(self, since_s: float) -> Sequence[str]:
        """Returns the names whose leases were not renewed for so many s, while it holds nothing."""

    def note_renewed(self, names: Collection[str], sent_at: float) -> None:
        """Learns that leases were renewed. sent_at: In s of ``monotonic``."""


class TransferLeadership:
    """The lease that one transfer worker holds or waits for.

    Args:
        name: Name of the worker; no other worker has the same.
        queues: Returns the names of queues to look after besides the registered ones.
        consumer: The consumer of the same process, if there is one.

    Attributes:
        registered: Names of the queues that Redis knows to hold or to have held delayed messages.
        stands_by_for: Name of the leader, if this worker is a standby; else empty.
        look: What Redis has said beside the lease when that was last renewed, if it was asked.
    """

    def __init__(self, name: str, queues: Callable[[], Iterable[str]], consumer: IdleConsumer | None = None) -> None:
        self.registered: set[str] = set()
        self.stands_by_for = ""
        self.look: Look | None = None
        self._consumed: Collection[str] = ()
        self._name = name
        self._consumer = consumer
        self._queues = queues
        self._rank: int | None = None  # as in ``Lease``; None before the first answer
        self._is_silent = False  # whether the node of the leases did not answer

    @property
    def leads(self) -> bool:
        """Whether this worker holds the leader's lease."""
        return self._rank == 1

    @property
    def holds_lease(self) -> bool:
        """Whether this worker leads or is a standby."""
        return bool(self._rank)

    @property
    def waits(self) -> bool:
        """Whether others hold all leases."""
        return self._rank == 0

    @property
    def grace_s(self) -> float:
        """How long this worker, if it is a standby, gives the leader to transfer a head, in s."""
        return FIRST_GRACE_S if self._rank == 2 else SECOND_GRACE_S

    def renew(self, store: DelayStore) -> list[str]:
        """Takes or renews a lease, if one is free. Returns the names of all queues to look after.

        Redis also says what there is to do, as far as one server knows it, for the queues that were known before.

        In a cluster, the node of the leases may be away while others have queues. Then a worker stays what it is: if
        another one leads as well, that costs load alone. One that does not know yet who leads is a standby.
        """
        led, known, self.look = self.leads, self.registered, None
        own = [*self._queues()]
        looked_at = {*known, *own}
        idle: Sequence[str] = ()
        if self._consumer is not None and self.holds_lease:
            idle = self._consumer.idle_names(store.options.consumer_ttl * RENEW_FRACTION)
        sent_at = monotonic()
        try:
            if len(looked_at) <= MOST_QUEUES:
                consumed = sorted(filter(store.keys.is_usable, {*self._consumed, *own}))
                told = consumed if len(consumed) <= MOST_TOLD else []
                lease = store.leases.look(self._name, store.delivery.dues(looked_at), told, idle)
            else:
                lease = store.leases.lead(self._name)
        except (RedisError, OSError) as error:
            if not store.pool.is_partial(error):
                raise
            self._note_silence(error)
            return [*known, *own]
        if lease.look is not None:
            self._consumed = self._consumed if lease.look.consumed is None else lease.look.consumed
            if self._consumer is not None:
                self._consumer.note_renewed(lease.look.renewed, sent_at)
        self._rank, self.look = lease.rank, lease.look
        self.stands_by_for = lease.leader if lease.rank > 1 else ""
        if self.leads != led:
            what = f"stands by for {lease.leader}" if led else "leads"
            logger.info("transfer worker %s %s", self._name, what)
        self.registered = set(lease.queues)
        self._is_silent = False
        # It may have heard of a queue that its publisher could not register. A worker that finds messages there
        # registers it.
        return [*lease.queues, *(known - self.registered), *own]

    def _note_silence(self, error: Exception) -> None:
        """Notes that nobody can ask for a lease now."""
        if not self._is_silent:
            self._is_silent = True
            logger.warning(
                "transfer worker %s cannot ask who leads, and goes on with the %d queues that it knows: %s",
                self._name,
                len(self.registered),
                error,
            )
        if self._rank is None:
            self._rank = LAST_RANK

    def release(self, store: DelayStore) -> None:
        """Gives the lease back, if this worker holds one. If Redis does not answer, the lease ends by itself."""
        rank, self._rank, self.stands_by_for = self._rank, None, ""
        if rank:
            with suppress(RedisError, OSError):
                store.leases.release(self._name)

    def look_s(self, store: DelayStore) -> float:
        """Returns the time from one look at Redis to the next, in s."""
        return store.options.poll_interval * random.uniform(*(LOOKS if self._rank else WAITING_LOOKS))
