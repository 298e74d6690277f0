"""The delayed messages of one Redis database: ``DelayStore``."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from kombu.utils.imports import symbol_by_name
from redis import Redis
from redis.exceptions import RedisError, ResponseError

from kombu_delayq.errors import UnsupportedRedis
from kombu_delayq.options import Options
from kombu_delayq.redis import Pool, close_pool, pool_of, time_ms
from kombu_delayq.store.chains import CancelledChains, DelayChains
from kombu_delayq.store.client import HeldKeys, Into, Lists, StoreClient
from kombu_delayq.store.consumers import BEAT_FRACTION, Consumers, Ended, consumer_of, http_consumer
from kombu_delayq.store.counts import (
    LATENESS_BOUNDS_S,
    HeldBack,
    Histogram,
    QueueCounts,
    QueueStats,
    QueueWaits,
    counts_of,
)
from kombu_delayq.store.delivery import Delivery
from kombu_delayq.store.fetching import Fetching, ack
from kombu_delayq.store.figures import Figures
from kombu_delayq.store.hash_layout import body_of, id_of, may_be_duplicate, shared_id, without_suffix
from kombu_delayq.store.keys import PARKED, KeyNames, Keys, glob_escaped
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.leases import Leases, Look, lead, release
from kombu_delayq.store.lookup import MAX_BYTES, MAX_DUPLICATES, Change, Lookup, NotSearched, is_step
from kombu_delayq.store.nodes import NO_PLACE, Cluster, Node, Place, State
from kombu_delayq.store.part import StorePart
from kombu_delayq.store.queues import LOOK_S, Queues
from kombu_delayq.store.redisson_layout import RedissonKeys, whole_ms
from kombu_delayq.store.registry import QueueRegistry
from kombu_delayq.store.scan import Scan
from kombu_delayq.store.types import (
    BESIDE,
    MANY,
    PAGE,
    Beside,
    ConsumerLease,
    Cursor,
    DelayedQueue,
    Fetched,
    Head,
    InFlight,
    LeaseEnded,
    LeaseHeartbeat,
    Memory,
    Offer,
    Offered,
    Outcome,
    Page,
    PageId,
    Part,
    QueueHeads,
    Request,
    Requeued,
    Scanned,
    TooLate,
    Transferred,
    Waiting,
    WatchedHeads,
    hidden,
    without_bodies,
)
from kombu_delayq.store.wake import LISTEN_S, Announcements, WakeRefused

__all__ = [
    "BEAT_FRACTION",
    "BESIDE",
    "LATENESS_BOUNDS_S",
    "LAYOUT_OF",
    "LISTEN_S",
    "LOOK_S",
    "MANY",
    "MAX_BYTES",
    "MAX_DUPLICATES",
    "NO_PLACE",
    "PAGE",
    "PARKED",
    "Announcements",
    "Beside",
    "CancelledChains",
    "Change",
    "Cluster",
    "ConsumerLease",
    "Cursor",
    "DelayChains",
    "DelayStore",
    "DelayedQueue",
    "Delivery",
    "Ended",
    "Fetched",
    "Figures",
    "Head",
    "HeldBack",
    "HeldKeys",
    "Histogram",
    "InFlight",
    "Into",
    "KeyNames",
    "Keys",
    "LeaseEnded",
    "LeaseHeartbeat",
    "Lists",
    "Look",
    "Lookup",
    "Memory",
    "Node",
    "NotSearched",
    "Offer",
    "Offered",
    "Outcome",
    "Page",
    "PageId",
    "Part",
    "Place",
    "QueueCounts",
    "QueueHeads",
    "QueueRegistry",
    "QueueStats",
    "QueueWaits",
    "Queues",
    "RedissonKeys",
    "Request",
    "Requeued",
    "Scan",
    "Scanned",
    "State",
    "Store",
    "StoreClient",
    "StorePart",
    "TooLate",
    "Transferred",
    "Waiting",
    "WakeRefused",
    "WatchedHeads",
    "ack",
    "body_of",
    "consumer_of",
    "counts_of",
    "glob_escaped",
    "hidden",
    "http_consumer",
    "id_of",
    "is_step",
    "lead",
    "may_be_duplicate",
    "release",
    "shared_id",
    "whole_ms",
    "without_bodies",
    "without_suffix",
]


OLDEST_REDIS = (6, 2)
P = TypeVar("P", bound=StorePart)
T = TypeVar("T")


class Store(Protocol):
    """The common part of all stores: the connection, the key names, the options, and the server behind them."""

    client: Redis
    keys: Keys
    options: Options
    #: How that is which keeps messages beside Redis, as ``reading`` has found it; None without it.
    beside: Beside | None = None

    @property
    def keeps_all(self) -> bool:
        """Whether that has each message of Redis, too."""
        return False

    @property
    def layout(self) -> str:
        """The layout in which this store keeps messages."""
        return self.options.layout

    def now_ms(self) -> float:
        """Returns Redis's clock, ms since the epoch."""
        return time_ms(self.client.time())

    def check_version(self) -> None:
        """Raises UnsupportedRedis if the server is older than 6.2. A server that hides its version passes."""
        version = str(self._info("server").get("redis_version", ""))
        found = re.match(r"(\d+)\.(\d+)", version)
        if found and (int(found[1]), int(found[2])) < OLDEST_REDIS:
            raise UnsupportedRedis(f"Redis {version} is too old for kombu-delayq, which needs 6.2 or later")

    def eviction_warning(self) -> str:
        """Returns a warning about a server that may evict messages, else an empty text."""
        policy = str(self._info("memory").get("maxmemory_policy", "noeviction"))
        if policy == "noeviction":
            return ""
        return (
            f"Redis has maxmemory-policy {policy}: when its memory is full it may drop delayed messages and whole "
            "queues without a word. Set it to noeviction"
        )

    def memory(self) -> Memory:
        """Returns how much memory the server uses, and its version."""
        found = self._info("memory")
        version = str(self._info("server").get("redis_version", ""))
        return Memory(int(found.get("used_memory", 0)), int(found.get("maxmemory", 0)), version)

    def nodes(self) -> Cluster | None:
        """Asks each node of a cluster how it is, two round trips to each. A node that does not answer is no error.

        While slots have no living node, other calls of this store do not wait for one.

        Returns:
            The nodes; None on a server without hash slots, of which nothing is asked.

        Raises:
            redis.exceptions.ConnectionError: No node answers.
        """
        path = self.keys.nodes_part
        return self.part(symbol_by_name(path)).overview() if path else None

    @property
    def pool(self) -> Pool:
        """The connections of the client."""
        return pool_of(self.client.connection_pool)

    def unless_away(self, look: Callable[[], T]) -> T | None:
        """Returns what a function finds; None while the node of a cluster that knows it is away."""
        try:
            return look()
        except (RedisError, OSError) as error:
            if not self.pool.is_partial(error):
                raise
            return None

    def if_allowed(self, look: Callable[[], T]) -> T | None:
        """Returns what a function finds; None if its node is away, or Redis refuses it, such as for a missing right."""
        try:
            return look()
        except self.pool.partial_errors:
            return None

    def reading(self, *, counted: bool = True) -> "DelayStore":
        """Returns the store to read from. It has ``beside``, and Redis alone while what is beside that does not answer.

        Args:
            counted: Whether to count what is to be restored, which takes the longer the more it is.
        """
        return cast("DelayStore", self)

    def part(self, kind: type[P]) -> P:
        """Returns the part of a feature, which is made once a store.

        Args:
            kind: The class of the part. The object is of another class with the same operations where a store keeps
                messages elsewhere, too.
        """
        ...

    def close(self) -> None:
        """Closes the connections of the client; behind Sentinel also those to the Sentinels."""
        close_pool(self.client.connection_pool)

    def _info(self, section: str) -> dict[str, Any]:
        try:
            return dict(self.client.info(section))
        except ResponseError:  # forbidden by an ACL, or renamed by the server
            return {}


class DelayStore(Store):
    """Keeps messages until they are due. Each part has the operations of one subject.

    Errors of the Redis client pass through as they are.

    Args:
        client: A plain Redis client; key names carry the prefix themselves.
        keys: Names of the keys.
        priority_steps: kombu's option ``priority_steps``, which says which priorities share a list.
        options: Transport options.
    """

    def __init__(
        self,
        client: Redis,
        keys: Keys | None = None,
        priority_steps: Sequence[int] = (0, 3, 6, 9),
        options: Options | None = None,
    ) -> None:
        shared = StoreClient(client, keys, priority_steps, options)
        registry = QueueRegistry(shared)
        self.client, self.keys, self.options = client, shared.keys, shared.options
        self._shared, self._registry = shared, registry
        self._parts: dict[type[StorePart], StorePart] = {}
        self.delivery = Delivery(shared, registry)
        self.fetching = Fetching(shared, registry)
        self.consumers = Consumers(shared, registry)
        self.chains = DelayChains(shared, registry)
        self.leases = Leases(shared, registry)
        self.lookup = Lookup(shared, registry)
        self.scan = Scan(shared, registry)
        self.queues = Queues(shared, registry)
        self.figures = Figures(shared, registry)

    def aside(self) -> "DelayStore":
        """Returns a store of Redis alone that waits for no node of a cluster for long."""
        return DelayStore(pool_of(self.pool.aside()).client(), self.keys, options=self.options)

    def part(self, kind: type[P]) -> P:
        """Returns the part of a feature; see ``Store.part``."""
        found = self._parts.get(kind) or self._parts.setdefault(kind, kind(self._shared, self._registry))
        return cast(P, found)
