"""Notices consumers whose processes have ended: nobody subscribes to their channels any more."""

from collections.abc import Collection
from math import inf
from time import monotonic
from typing import Any

from kombu_delayq.processes import has_ended
from kombu_delayq.redis import pools
from kombu_delayq.store import DelayStore

#: How often a worker looks at most, in s, and how often it reads what consumers there are. A cluster has a key for each
#: queue that is consumed, of which so many are read in a second at most.
LOOK_S, READ_S, READS = 0.5, 1.0, 100
#: A consumer is gone that had no subscriber in every look for so long, in s. One that lives and has lost its connection
#: subscribes again within half a second.
GONE_S = 3.0
#: For so long after its own connection was made, in s, a worker takes nobody for gone whom it has not seen since: when
#: Redis or the network was away, all consumers have to come back, which may take one ``presence.ANSWER_S`` and a look.
GRACE_S = 4.0
#: The same after another node of a cluster has come to say who leads: some consumers may know that only after a while.
SETTLE_S = 25.0
#: After a refusal a worker looks again after so long, in s.
REST_S = 60.0


class GoneConsumers:
    """Consumers that have subscribed, and whose subscription is missing, as the leader or a standby sees it."""

    def __init__(self) -> None:
        self._next_look = self._next_read = self._settles_at = -inf
        self._node: tuple[Any, Any] | None = None  # host and port of the server that is asked
        self._subscribed: dict[
            str, dict[str, str]
        ] = {}  # by slot group: consumers that have subscribed, and their processes
        self._missing_since: dict[str, float] = {}
        self._seen: set[str] = set()  # consumers that had a subscriber since this worker's connection was made
        self._connected_at = inf

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

    def look(self, store: DelayStore) -> dict[str, list[str]]:
        """Looks, if it is time. Returns the consumers that are gone, by slot group.

        One command; with each other look one more, and in a cluster one more for each slot group.
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
        processes = {name: process for found in self._subscribed.values() for name, process in found.items()}
        missing = store.consumers.without_subscriber(sorted(processes)) if processes else set()
        self._missing_since = {name: self._missing_since.get(name, now) for name in missing}
        may_be_away = self._may_be_away(store, now, processes.keys() - missing)
        gone = {
            name
            for name, since in self._missing_since.items()
            if has_ended(processes[name]) or (now - since >= GONE_S and name not in may_be_away)
        }
        return {
            group: found for group, names in self._subscribed.items() if (found := sorted(gone.intersection(names)))
        }

    def _may_be_away(self, store: DelayStore, now: float, present: Collection[str]) -> Collection[str]:
        """Returns which of the missing consumers may live, and not have come back yet. now: In s of ``monotonic``."""
        pool, key = store.client.connection_pool, store.keys.lease
        at = pools.node_of(pool, key).connection_kwargs
        before, self._node = self._node, (at.get("host"), at.get("port"))
        if before not in (None, self._node):
            self._settles_at = now + SETTLE_S
        # Asked last: a connection that was lost during this look is a new one now.
        connected_at = pools.connected_at(pool, key)
        if connected_at != self._connected_at:
            self._connected_at, self._seen = connected_at, set()
        else:
            self._seen.update(present)
        if now < self._settles_at:
            return self._missing_since
        return () if monotonic() - connected_at >= GRACE_S else self._missing_since.keys() - self._seen
