"""What limits by key cost Redis: fetching with many keys beside one, and the longest calls."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf
from statistics import quantiles
from typing import Any

import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.limits import LIMIT_HEADER, Limit, LimitStore
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Request
from tests.bench.servers import main_thread_s
from tests.bench.targets.report import Figure
from tests.bench.targets.transfer import PER_CALL, make_store, message

#: Queues of many keys and of one, and a consumer.
MANY, ONE, CONSUMER = "many", "one", "bench"
#: Messages of each key of many, how many a fetch takes, and how many fetches are measured.
EACH, TAKEN, FETCHES = 10, (1, 32), 2_000
#: The most that a call may keep Redis busy, in ms, and what a fetch of many keys may cost, of one of one key.
LONGEST_MS, SHARE = 5, 1.3
#: A large message, in bytes, and how many of them there are.
LARGE, LARGE_COUNT = 100_000, 500
#: How many places there are when all keys are looked at, and when their consumer leaves.
PLACES = 1_000, 10_000


class Cost:
    """Measures the CPU time that Redis takes for a call."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._empty_s = 0.0
        self._empty_s = sorted(self(lambda: None)[1] for _ in range(101))[50] / 1000

    def __call__(self, call: Callable[[], Any]) -> tuple[Any, float]:
        """Returns what a call returns, and its CPU time in ms."""
        before_s = main_thread_s(self._client)
        found = call()
        return found, (main_thread_s(self._client) - before_s - self._empty_s) * 1000


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Measures fetches, and then the calls that look at many keys or places."""
    keys = 10_000 if quick else 100_000
    yield from _fetches(keys)
    yield from _calls(keys)


def _fetches(keys: int) -> Iterator[Figure]:
    """Fetches from a queue of many keys, and from one of one key with as many messages, in turns."""
    with PrivateRedis() as server:
        store, cost = _store(server), Cost(server.client())
        for queue, names in ((MANY, keys), (ONE, 1)):
            _push(store, queue, [f"tenant:{number % names}" for number in range(keys * EACH)])
        sorting = [took_ms for queue in (MANY, ONE) for took_ms in _sorted_ms(store, cost, queue)]
        yield Figure(f"sorting {keys * EACH:,} messages of {keys:,} keys, longest call", max(sorting), "ms", LONGEST_MS)
        note = f"a call sorts up to 150 messages of 1,000 bytes; median {sorted(sorting)[len(sorting) // 2]:.2f} ms"
        for taken in TAKEN:
            found: dict[str, list[float]] = {MANY: [], ONE: []}
            first = 0
            for _ in range(FETCHES // taken + 200):
                for queue in found:
                    fetched, took_ms = cost(partial(_fetch, store, queue, taken, first))
                    found[queue].append(took_ms)
                    store.fetching.ack([each.tag for each in fetched], queue)
                    first += taken
            name = f"fetch of {taken}, {keys:,} keys"
            for what, at in (("median", 49), ("99 %", 98)):
                many, one = (quantiles(found[queue], n=100)[at] for queue in (MANY, ONE))
                yield Figure(f"{name} / one key, {what}", many / one, "", SHARE, note=note)
                yield Figure(f"{name}, {what}", many, "ms")
            yield Figure(f"{name}, longest call", max(found[MANY]), "ms", LONGEST_MS)


def _calls(keys: int) -> Iterator[Figure]:
    """Measures single calls."""
    with PrivateRedis() as server:
        store, cost = _store(server), Cost(server.client())
        limits = store.part(LimitStore)
        _push(store, ONE, ["tenant:1"] * LARGE_COUNT, LARGE)
        large = _sorted_ms(store, cost, ONE)
        yield Figure(f"sorting {LARGE_COUNT} messages of {LARGE:,} bytes, longest call", max(large), "ms", LONGEST_MS)
        limits.drop_parked(ONE)
        _push(store, MANY, [f"tenant:{number % keys}" for number in range(keys * EACH)])
        _sorted_ms(store, cost, MANY)
        for first in range(0, PLACES[0], 100):
            _fetch(store, MANY, 100, first)
        pages, cursor = [], ""
        while cursor != "0":
            (cursor, _), took_ms = cost(partial(limits.refresh_keys, MANY, cursor or "0"))
            pages.append(took_ms)
        note = f"{len(pages)} calls for {keys:,} keys, with {PLACES[0]:,} places"
        yield Figure("refresh_keys, longest call", max(pages), "ms", LONGEST_MS, note=note)
        for first in range(PLACES[0], PLACES[1], 100):
            _fetch(store, MANY, 100, first)
        before = _scripts_of(server)
        _, took_ms = cost(partial(store.consumers.leave, CONSUMER, MANY))
        calls = _scripts_of(server) - before
        yield Figure(
            f"leave with {PLACES[1]:,} places, a call", took_ms / calls, "ms", LONGEST_MS, note=f"mean of {calls}"
        )
        count, took_ms = cost(lambda: limits.drop_parked(MANY))
        yield Figure(f"drop_parked of {count:,}", took_ms, "ms", LONGEST_MS)


def _store(server: PrivateRedis) -> DelayStore:
    """Returns a store with a consumer, and a limit that only takes turns."""
    store = make_store(redis.Redis(port=server.port), "hash")
    store.client.zadd(store.keys.consumers(""), {CONSUMER: inf})
    store.part(LimitStore).declare({"tenant": Limit()}, [MANY, ONE])
    return store


def _scripts_of(server: PrivateRedis) -> int:
    """Returns how many scripts have run."""
    stats: Any = server.client().info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))


def _push(store: DelayStore, queue: str, names: Sequence[str], size: int = 0) -> None:
    client: Any = store.client
    for start in range(0, len(names), PER_CALL):
        page = names[start : start + PER_CALL]
        client.lpush(queue, *[_keyed(name, f"{start + at:036}", size) for at, name in enumerate(page)])


def _keyed(name: str, task_id: str, size: int) -> str:
    """Returns a message of a key."""
    found = message(task_id).replace('"headers": {', f'"headers": {{"{LIMIT_HEADER}": "{name}", ', 1)
    return found.replace('"body": "', '"body": "' + "x" * (size - len(found)), 1)


def _sorted_ms(store: DelayStore, cost: Cost, queue: str) -> list[float]:
    """Lets fetches sort all messages of a queue. Returns what each took, in ms."""
    client: Any = store.client
    found = []
    while client.llen(queue):
        fetched, took_ms = cost(lambda: _fetch(store, queue, 1))
        store.fetching.ack([each.tag for each in fetched], queue)
        found.append(took_ms)
    return found


def _fetch(store: DelayStore, queue: str, most: int, first: int = 0) -> Any:
    return store.fetching.fetch(Request(CONSUMER, first, most, [queue]))
