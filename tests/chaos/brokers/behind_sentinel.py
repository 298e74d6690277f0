"""A primary with replicas behind Sentinels, and its failovers.

Redis replicates after it has answered. So what it wrote just before a failover may be lost with the old primary,
however its clients behave: such losses are counted apart.
"""

import random
import signal
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar, Self

import redis

from celery_ext.demo.private_redis import PrivateRedis
from tests.chaos.brokers import single
from tests.chaos.fleet.setup import STOCK
from tests.support.conditions import until
from tests.support.servers.sentinels import MASTER_NAME, Sentinels, role_of

#: Number of replicas, and the least that must hear of a write. Without them an old primary takes writes for so long, s.
REPLICAS, LEAST, LAG_S = 2, 1, 2
#: How long a failover may take, in s.
FAILOVER_S = 60.0
#: Longest DEBUG SLEEP, in s. After 0.7 s the Sentinels take a server for dead.
PAUSE_S = 0.4


class SentinelRedis(single.SingleRedis):
    """A primary with replicas behind Sentinels."""

    #: Redis itself is killed as a primary whose replica takes its place.
    weights: ClassVar = {**single.WEIGHTS, "redis kill": 0, "failover": 2, "primary kill": 3}

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        least = ("--min-replicas-to-write", str(LEAST), "--min-replicas-max-lag", str(LAG_S))
        self._sentinels = Sentinels(*single.options(), *least, replicas=REPLICAS)
        self._known: PrivateRedis | None = None
        self._looked = 0.0

    def url(self, by: str) -> str:
        """Returns the broker URL for a process of ours or of stock."""
        return self._sentinels.urls("sentinel" if by == STOCK else "delayq+sentinel")

    def transport_options(self) -> dict[str, Any]:
        """Returns the transport options that the URL needs."""
        return {"master_name": MASTER_NAME}

    def acts(self, strength: float, chance: random.Random) -> single.Acts:
        """Returns what may befall it, failovers among it."""
        kill = {"primary kill": lambda: self.kill(single.AWAY_S * strength)}
        return {**super().acts(strength, chance), **kill, "failover": self.fail_over}

    def kill(self, away_s: float) -> None:
        """Kills the primary, waits for another, and starts the old one again as its replica."""
        begin, old = time.time(), self._primary()
        old.stop(signal.SIGKILL)
        until(lambda: self._has_other(old), FAILOVER_S, "a replica has become the primary")
        time.sleep(away_s)
        old.start()
        until(lambda: self._follows(old), FAILOVER_S, "the old primary is a replica")
        self._known = self._sentinels.current()
        self.faults.add("primary kill", begin=begin, end=time.time())

    def fail_over(self) -> None:
        """Asks for a failover, and waits until the old primary is a replica."""
        begin, old = time.time(), self._primary()
        until(self._ask, FAILOVER_S, "the Sentinels agree to fail over")
        until(lambda: self._has_other(old), FAILOVER_S, "a replica has become the primary")
        until(lambda: self._follows(old), FAILOVER_S, "the old primary is a replica")
        self._known = self._sentinels.current()
        self.faults.add("failover", begin=begin, end=time.time())

    def excuse(self, at: float) -> str:
        """Returns why a message that was written at a time (s since the epoch) may be gone; empty if it must not."""
        failovers = [fault for fault in self.faults.faults if fault.kind in ("failover", "primary kill")]
        near = any(fault.begin - LAG_S <= at <= fault.end for fault in failovers)
        return "written to a primary that failed over before its replica had it" if near else ""

    def pause(self, for_s: float) -> None:
        """Makes the primary answer nobody for a while that the Sentinels do not take for its end."""
        super().pause(min(for_s, PAUSE_S))

    def look(self) -> None:
        """Notes failovers that nobody asked for. Keeps no log: after a failover no server's log is whole."""
        now = time.time()
        if now - self._looked < 1:
            return
        current, seen, known = self._sentinels.current(), self._looked, self._known
        self._looked, self._known = now, current or known
        if known is not None and current not in (None, known):
            until(lambda: self._follows(known), FAILOVER_S, "the old primary is a replica")
            self.faults.add("failover", begin=seen, end=time.time(), note="not asked for")

    def steps(self, ids: Collection[str]) -> dict[str, list[str]]:
        """Knows nothing of single messages."""
        return {}

    def _ask(self) -> bool:
        try:
            self._sentinels.fail_over()
        except redis.ResponseError:  # the last failover is not over, or no replica is good enough yet
            return False
        return True

    def _primary(self) -> PrivateRedis:
        return until(self._sentinels.current, FAILOVER_S, "a primary")

    def _has_other(self, old: PrivateRedis) -> bool:
        current = self._sentinels.current()
        return current is not None and current is not old and role_of(current) == "master"

    def _follows(self, old: PrivateRedis) -> bool:
        if role_of(old) != "slave":
            return False
        return all(
            server.client().info("replication").get("master_link_status", "up") == "up"
            for server in (self._sentinels.master, *self._sentinels.replicas)
        )

    def __enter__(self) -> Self:
        self._sentinels.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._sentinels.__exit__()
        super().__exit__()
