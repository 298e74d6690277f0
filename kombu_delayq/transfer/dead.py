"""Which consumers are dead: those whose lease has ended, and those to whose channels nobody subscribes any more.

A consumer that lives may lose its connection to Redis, and so may all of them at once. Each way of looking has a grace
for that, in which those come back that live.
"""

from collections.abc import Collection, Sequence
from math import inf
from time import monotonic
from typing import Any

from kombu_delayq.options import Options
from kombu_delayq.processes import has_ended
from kombu_delayq.redis import connected_at
from kombu_delayq.store import BEAT_FRACTION, ConsumerLease, DelayStore, Look

#: Fractions of ``consumer_ttl``. A worker looks at the leases so often. If it could not look for ``GAP_FRACTION``,
#: Redis or the machine was away, and living consumers could not renew their leases either: they get ``GRACE_FRACTION``
#: to do so, which is more than the fraction after which a consumer renews its lease.
LOOK_FRACTION, GAP_FRACTION = 1 / 8, 1 / 2
GRACE_FRACTION = BEAT_FRACTION + LOOK_FRACTION
#: A worker that does not lead steps in for consumers whose lease it has known to be ended for so long: then the leader
#: lacks the rights.
STEP_IN_FRACTION = 1 / 2

#: How often a worker looks at most, in s, and how often it reads what consumers there are. A cluster has a key for each
#: queue that is consumed, of which so many are read in a second at most.
LOOK_S, READ_S, READS = 0.5, 1.0, 100
#: For so long, in s, it holds that nobody has to find out who is gone. A look at Redis says so again, by default before
#: that.
HOLDS_S = 1.25
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


class EndedLeases:
    """Consumers of one slot group whose lease has ended, as a worker sees them."""

    def __init__(self) -> None:
        self._looked_ms = -inf  # by Redis's clock, which goes on while this process or Redis stands still
        self._patient_until_ms = inf
        self._ended_ms: dict[str, float] = {}  # when this worker first saw that a lease had ended, by Redis's clock

    def late(
        self, options: Options, now_ms: float, ended: Sequence[ConsumerLease], *, leads: bool
    ) -> list[ConsumerLease]:
        """Returns those of the consumers with an ended lease whose messages this worker has to give back now."""
        self._ended_ms = {lease.name: min(self._ended_ms.get(lease.name, now_ms), now_ms) for lease in ended}
        if not self._is_sure(options, now_ms):
            return []
        latest_ms = inf if leads else now_ms - 1000 * options.consumer_ttl * STEP_IN_FRACTION
        return [lease for lease in ended if self._ended_ms[lease.name] < latest_ms]

    def _is_sure(self, options: Options, now_ms: float) -> bool:
        """Whether living consumers had the time to renew their leases."""
        longest_ms = 1000 * max(options.consumer_ttl * GAP_FRACTION, 3 * options.poll_interval)
        gap_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        if not 0 <= gap_ms <= longest_ms:  # or the clock was set back
            self._patient_until_ms = now_ms + 1000 * options.consumer_ttl * GRACE_FRACTION
        return now_ms >= self._patient_until_ms


class GoneConsumers:
    """Consumers that have subscribed, and whose subscription is missing, as the leader or a standby sees it."""

    def __init__(self) -> None:
        self._next_look = self._next_read = self._settles_at = -inf
        self._node: tuple[Any, Any] | None = None  # host and port of the server that is asked
        #: By slot group: consumers that have subscribed, and their processes.
        self._subscribed: dict[str, dict[str, str]] = {}
        self._missing_since: dict[str, float] = {}
        self._seen: set[str] = set()  # consumers that had a subscriber since this worker's connection was made
        self._connected_at = inf
        self._rests_until = -inf  # it holds until then that nobody has to find out who is gone

    def note(self, look: Look | None) -> None:
        """Learns what Redis has just said; None where it says nothing of the kind."""
        self._rests_until = -inf if look is None or look.is_watched else monotonic() + HOLDS_S

    def wait_s(self) -> float:
        """Returns the time until the next look, in s."""
        rests_until = -inf if self._missing_since else self._rests_until
        return max(self._next_look - monotonic(), rests_until - monotonic(), 0.0)

    def forget(self) -> None:
        """Forgets what was seen, because this worker no longer looks, or Redis was away."""
        self._missing_since.clear()

    def rest(self) -> None:
        """Looks again only in a minute, because Redis has refused a look."""
        self._next_look = monotonic() + REST_S
        self.forget()

    def look(self, store: DelayStore) -> dict[str, list[str]]:
        """Looks, if it is time. Returns the consumers that are gone, by slot group.

        One command; with each other look one more, and in a cluster one more for each slot group. None as long as no
        message is in hand and nobody is missing.
        """
        if self.wait_s() > 0:
            return {}
        now = monotonic()
        if self._rests_until > -inf and not self._missing_since and not store.leases.watched():
            self._rests_until = now + HOLDS_S
            return {}
        self._rests_until = -inf
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
        node = store.pool.node_of(store.keys.lease)
        at = node.connection_kwargs
        before, self._node = self._node, (at.get("host"), at.get("port"))
        if before not in (None, self._node):
            self._settles_at = now + SETTLE_S
        # Asked last: a connection that was lost during this look is a new one now.
        latest = connected_at(node)
        if latest != self._connected_at:
            self._connected_at, self._seen = latest, set()
        else:
            self._seen.update(present)
        if now < self._settles_at:
            return self._missing_since
        return () if monotonic() - latest >= GRACE_S else self._missing_since.keys() - self._seen
