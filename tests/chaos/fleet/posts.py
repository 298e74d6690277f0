"""The plan of a run, and the posts of the fleet that it asks for."""

from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.chaos.brokers.single import SingleRedis
from tests.chaos.fleet.members import Post
from tests.chaos.fleet.setup import LIMITS, OURS, OURS_ONLY, QUEUES, SPREAD, STOCK, Setup

#: Pools with their concurrency; those whose library is missing are left out.
POOLS = {"prefork": 2, "threads": 4, "solo": 1, "gevent": 20, "eventlet": 20}
#: By how much the clocks of publishers are off by which they tell what is due late, in s.
CLOCKS_OFF_S = (1.5, -1.5, 0.0)
#: How many of 24 tasks are of each kind. A task that fails costs Celery several times the work of one that succeeds.
SHARES = {"plain": 6, "delayed": 8, "early": 2, "keyed": 3, "once": 2, "retry": 1, "chain": 1, "letter": 1}
KINDS = tuple(kind for kind, share in SHARES.items() for _ in range(share))


@dataclass(frozen=True)
class Plan:
    """A run.

    Attributes:
        seed: Seed of the faults and of all that publishers choose.
        seconds: How long publishers publish.
        every_s: Mean pause between two faults, in s.
        consume: Transport option ``consume`` of our workers.
        lease_s: Transport option ``consumer_ttl``.
        pools: Pools of our workers.
        stock_pools: Pools of stock workers; none for a fleet without stock.
        transfers: Number of `delayq transfer` processes.
        publishers: Number of publishers of ours; there is one of stock beside them if there are stock workers.
        rate: Tasks per second of one publisher at most.
        backlog: Messages in a queue above which publishers wait.
        standstill_s: For how long nothing may change while Redis drains, in s, before what is left counts as stuck.
        sentinel: Whether a primary with replicas and Sentinels is used.
        cluster: Whether a Redis Cluster is used; there are no stock workers then, because stock knows none.
        journal: Whether a journal is used; there are no stock workers then, because stock knows none.
    """

    seed: int = 1
    seconds: float = 180.0
    every_s: float = 1.5
    consume: str = "reliable"
    lease_s: float = 5.0
    pools: tuple[str, ...] = ("prefork", "threads", "solo", "gevent", "eventlet")
    stock_pools: tuple[str, ...] = ("prefork", "threads")
    transfers: int = 2
    publishers: int = 2
    rate: float = 300.0
    backlog: int = 2000
    standstill_s: float = 90.0
    sentinel: bool = False
    cluster: bool = False
    journal: bool = False


def posts(plan: Plan, broker: SingleRedis, directory: Path) -> list[Post]:
    """Returns the posts of a plan's fleet."""
    made = [_worker(plan, broker, directory, OURS, pool) for pool in _installed(plan.pools)]
    made += [_worker(plan, broker, directory, STOCK, pool) for pool in _installed(plan.stock_pools)]
    for number in range(plan.transfers):
        setup = _setup(plan, broker, directory, f"transfer-{number}", OURS)
        args = ("-m", "celery", "-A", "tests.chaos.fleet.app", "delayq", "transfer", "-l", "WARNING")
        made.append(Post("transfer", "", args, setup))
    publishers = [OURS] * plan.publishers + [STOCK] * bool(plan.stock_pools)
    for number, by in enumerate(publishers):
        setup = _setup(plan, broker, directory, f"publisher-{by}-{number}", by)
        if plan.journal:
            setup = replace(setup, clock_off_s=CLOCKS_OFF_S[number % len(CLOCKS_OFF_S)])
        made.append(Post("publisher", "", ("-m", "tests.chaos.fleet.publisher"), setup))
    return made


def _installed(pools: tuple[str, ...]) -> list[str]:
    return [pool for pool in pools if pool not in ("gevent", "eventlet") or find_spec(pool)]


def _queues(plan: Plan, by: str) -> tuple[str, ...]:
    if plan.cluster:
        return SPREAD
    return (QUEUES[by], QUEUES["mixed"]) if plan.stock_pools else (QUEUES[by],)


def _worker(plan: Plan, broker: SingleRedis, directory: Path, by: str, pool: str) -> Post:
    options = [
        *("-m", "celery", "-A", "tests.chaos.fleet.app", "worker", "-n", f"{by}-{pool}@%h"),
        *("-l", "WARNING", "-P", pool),
        *("-Q", ",".join(_queues(plan, by))),
        *("--without-gossip", "--without-mingle"),
        *(() if pool == "solo" else ("-c", str(POOLS[pool]))),
    ]
    setup = _setup(plan, broker, directory, f"{by}-{pool}", by)
    # A Redis that loses its data forgets since when an entry counts.
    ticks_to = "" if by == STOCK or plan.journal else SPREAD[0] if plan.cluster else QUEUES[OURS]
    return Post("worker", pool, tuple(options), replace(setup, ticks_to=ticks_to))


def _setup(plan: Plan, broker: SingleRedis, directory: Path, name: str, by: str) -> Setup:
    options: dict[str, Any] = {
        "visibility_timeout": 20.0,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        # A killed worker may have held the lock of the sweep; by default nobody sweeps for 300 s then.
        "unacked_mutex_expire": 10,
        "consume": plan.consume,
        "limits": {name: {"running": running} for name, running in LIMITS.items()},
        "consumer_ttl": plan.lease_s,
        **broker.transport_options(),
    }
    kinds = KINDS if by == OURS else tuple(kind for kind in KINDS if kind not in OURS_ONLY)
    if plan.cluster or plan.sentinel:
        # A worker that is killed loses those, as Celery's users know; without a log of Redis nobody could tell.
        kinds = tuple(kind for kind in kinds if kind != "early")
    if plan.journal:
        # Redis forgets dead letters with its data, and a key that waited when it did is free.
        kinds = tuple(kind for kind in kinds if kind not in ("once", "letter"))
    audiences = tuple(QUEUES) if plan.stock_pools else (OURS,)
    return Setup(
        name=name,
        by=by,
        broker=broker.url(by),
        ledger=str(directory),
        transport_options=options,
        seed=plan.seed,
        rate=plan.rate,
        backlog=plan.backlog,
        kinds=kinds,
        audiences=audiences,
        queues=SPREAD if plan.cluster else (),
    )
