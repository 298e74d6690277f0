"""Notices consumers whose processes have ended: nobody subscribes to their channels any more."""

from math import inf
from time import monotonic
from typing import Any

from kombu_delayq.redis import pools
from kombu_delayq.store import TransportStore

#: How often a worker looks at most, in s, and how often it reads what consumers there are. A cluster has a key for each
#: queue that is consumed, of which so many are read in a second at most.
LOOK_S, READ_S, READS = 0.5, 1.0, 100
#: A consumer is gone that had no subscriber in every look for so long, in s. One that lives and has lost its connection
#: subscribes again within half a second.
GONE_S = 3.0
#: For so long after its own connection was made, in s, a worker takes nobody for gone: when Redis or the network was
#: away, all consumers have to come back.
GRACE_S = 6.0
#: The same after another node of a cluster has come to say who leads: some consumers may know that only after a while.
SETTLE_S = 25.0
#: After a refusal a worker looks again after so long, in s.
REST_S = 60.0


class GoneConsumers:
    """Consumers that have subscribed, and whose subscription is missing, as the leader or its first standby sees it."""

    def __init__(self) -> None:
        self._next_look = self._next_read = self._settles_at = -inf
        self._node: tuple[Any, Any] | None = None  # host and port of the server that is asked
        self._subscribed: dict[str, list[str]] = {}  # the consumers of each share that have subscribed
        self._missing_since: dict[str, float] = {}

    def wait_s(self) -> float:
        """Returns the time until the next look, in s."""
        return max(self._next_look - monotonic(), 0.0)

    def forget(self) -> None:
        """Forgets what was seen, because this worker no longer looks, or Redis was away."""
        self._missing_since.clear()

    def rest(self) -> None:
        """Looks again only in a minute, because Redis has refused a look."""
        self._next_look = monotonic() + REST_S
        self.forget()

    def look(self, store: TransportStore) -> dict[str, list[str]]:
        """Looks, if it is time. Returns the consumers that are gone, by share.

        One command; with each other look one more, and in a cluster one more for each share.
        """
        now = monotonic()
        if now < self._next_look:
            return {}
        if now - self._next_look > GONE_S:  # this process stood still, or did not lead
            self.forget()
        self._next_look = now + LOOK_S
        if now >= self._next_read:
            self._subscribed = store.consumers.subscribed()
            self._next_read = now + max(READ_S, len(self._subscribed) / READS)
        names = sorted({name for of_share in self._subscribed.values() for name in of_share})
        missing = store.consumers.without_subscriber(names) if names else set()
        self._missing_since = {name: self._missing_since.get(name, now) for name in missing}
        # Asked last: a connection that was lost during this look is a new one now.
        if self._is_settling(store, now):
            return {}
        gone = {name for name, since in self._missing_since.items() if now - since >= GONE_S}
        return {
            share: found for share, names in self._subscribed.items() if (found := sorted(gone.intersection(names)))
        }

    def _is_settling(self, store: TransportStore, now: float) -> bool:
        """Whether some consumers that live may not have come back yet to where this worker asks."""
        pool, key = store.client.connection_pool, store.keys.lease
        at = pools.node_of(pool, key).connection_kwargs
        before, self._node = self._node, (at.get("host"), at.get("port"))
        if before not in (None, self._node):
            self._settles_at = now + SETTLE_S
        return now < self._settles_at or monotonic() - pools.connected_at(pool, key) < GRACE_S
