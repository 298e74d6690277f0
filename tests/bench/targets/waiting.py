"""What it costs to find, cancel and move single messages among many, and to go through all of them."""

import random
from collections.abc import Callable, Iterator
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import BACKUPS
from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Waiting
from tests.bench.targets.load import HOUR_MS, QUEUE, fill, make_store, message, within_the_next_hour
from tests.bench.targets.report import Figure

SMALL = 10_000
#: Calls of each operation, each for another id.
CALLS = 1_000
#: Target for the longest of the calls that go through a whole queue, in ms.
TARGET_MS = 10
#: Commands that are sent to Redis; SLOWLOG and commandstats also have those that run inside scripts.
SENT = ("EVALSHA", "EVAL", "ZSCAN", "HSCAN", "SREM")
NOTE = "SLOWLOG: wall clock, so it includes what other processes take of the core"


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Measures all operations with few messages waiting, and with many, in either form."""
    for form in BACKUPS:
        for count in (SMALL, 100_000 if quick else 1_000_000):
            with PrivateRedis() as own:
                client: Any = redis.Redis(port=own.port)
                store = make_store(client, form)
                fill(store, count, within_the_next_hour())
                client.config_set("slowlog-max-len", 1_000_000)
                yield from _single(store, count)
                for name, act in (("browse", _browse), ("repair, dry run", _repair), ("purge", _purge)):
                    yield _whole(store, f"{name} of all, {form}, {count:,} waiting", act)
                yield _after_purge(client, f"{form}, {count:,}")


def _single(store: DelayStore, count: int) -> Iterator[Figure]:
    """Measures one call for each of many random ids."""
    ids_of = store.keys.backup if store.backup == "hash" else store.keys.ids
    ids = [identity.decode() for identity in store.client.hrandfield(ids_of(QUEUE), 3 * CALLS)]
    messages = [messages[0] for messages in store.lookup.get([QUEUE], ids).values()]
    due_ms = within_the_next_hour()

    def body(waiting: Waiting) -> bytes:
        return message(waiting.id).replace("15:04:05", "16:04:05").encode()

    parts: dict[str, tuple[Callable[[Waiting], Any], list[Waiting]]] = {
        "get": (lambda waiting: store.lookup.get([QUEUE], [waiting.id]), messages[:CALLS]),
        "reschedule": (
            lambda waiting: store.lookup.reschedule(
                QUEUE, [Change(waiting, due_ms() + random.random() * HOUR_MS, body(waiting))]
            ),
            messages[:CALLS],
        ),
        "run_now": (
            lambda waiting: store.lookup.run_now(QUEUE, [Change(waiting, 0.0, body(waiting))]),
            messages[CALLS : 2 * CALLS],
        ),
        "cancel": (lambda waiting: store.lookup.cancel([QUEUE], [waiting.id]), messages[2 * CALLS :]),
    }
    for name, (act, chosen) in parts.items():
        act(messages[0]._replace(id="unknown"))  # Redis compiles the script
        _listen(store.client, 0)
        took_ms = []
        for waiting in chosen:
            start = perf_counter()
            act(waiting)
            took_ms.append((perf_counter() - start) * 1000)
        in_redis_ms = _slowlog_ms(store.client)
        note = f"in Redis: {_spread(in_redis_ms)}; round trip: {_spread(took_ms)}; {NOTE}"
        named = f"{name} of a random id, {store.backup}, {count:,} waiting, longest"
        yield Figure(named, max(in_redis_ms), "ms", 1, note=note)
    if store.queues.size(QUEUE) != count - 2 * CALLS:
        raise RuntimeError(f"{store.queues.size(QUEUE)} messages wait, not {count - 2 * CALLS}")


def _whole(store: DelayStore, name: str, act: Callable[[DelayStore], int]) -> Figure:
    """Measures the longest of all the calls that go through a queue."""
    left = store.queues.size(QUEUE)
    _listen(store.client, 50)
    start = perf_counter()
    if act(store) < left:
        raise RuntimeError(f"{name}: some were left out")
    took_s = perf_counter() - start
    slow_ms = _slowlog_ms(store.client)
    stats: Any = store.client.info("commandstats")
    sent = [stats[key] for key in (f"cmdstat_{command.lower()}" for command in SENT) if key in stats]
    calls, redis_us = (sum(command[what] for command in sent) for what in ("calls", "usec"))
    note = f"{calls:,} calls in {took_s:.2f} s, {redis_us / calls:.0f} µs each in Redis (commandstats)"
    note += f", {sum(took_ms > TARGET_MS for took_ms in slow_ms)} over {TARGET_MS} ms; {NOTE}"
    return Figure(f"{name}, longest call", max(slow_ms, default=0.05), "ms", TARGET_MS, note=note)


def _browse(store: DelayStore) -> int:
    page, seen, more = None, 0, True
    while more:
        page = store.scan.browse(QUEUE, page)
        seen, more = seen + len(page.messages), page.more
    return seen


def _repair(store: DelayStore) -> int:
    states: list[str] = []
    for members in store.repair.index_pages(QUEUE):
        states += store.repair.repair_index(QUEUE, members, mend=False)
    if store.backup == "list":
        listed = sum(page.entries for page in store.repair.list_pages(QUEUE, mend=False))
        return min(listed, states.count("sound"))
    for bodies in store.repair.backup_pages(QUEUE):
        states += store.repair.repair_backup(QUEUE, [(body, None) for body in bodies], mend=False)
    return states.count("sound") // 2


def _purge(store: DelayStore) -> int:
    return store.queues.purge(QUEUE)


def _after_purge(client: Any, what: str) -> Figure:
    """Measures how long Redis takes to answer while it frees the memory."""
    took_ms, pending = [], 1
    while pending:
        for _ in range(50):
            start = perf_counter()
            client.ping()
            took_ms.append((perf_counter() - start) * 1000)
        pending = client.info("memory")["lazyfree_pending_objects"]
    note = f"PING, round trip: {_spread(took_ms)}"
    return Figure(f"after a purge, {what}, longest answer", max(took_ms), "ms", note=note)


def _listen(client: Any, from_us: int) -> None:
    client.config_set("slowlog-log-slower-than", from_us)
    client.slowlog_reset()
    client.config_resetstat()


def _slowlog_ms(client: Any) -> list[float]:
    """Returns how long each of the calls noted since ``_listen`` took in Redis."""
    client.config_set("slowlog-log-slower-than", -1)
    return [
        entry["duration"] / 1000
        for entry in client.slowlog_get(1_000_000)
        if entry["command"].split(b" ")[0].decode().upper() in SENT
    ]


def _spread(times_ms: list[float]) -> str:
    return f"median {median(times_ms):.3f}, p99 {quantiles(times_ms, n=100)[98]:.3f}, longest {max(times_ms):.3f} ms"
