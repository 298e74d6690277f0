"""What a cancel by id costs, beside a cancel whose steps each take a round trip."""

import random
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter
from typing import Any
from uuid import uuid4

import redis
from redis.connection import Connection

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.waiting import by_id
from kombu_delayq.connection.commands import RedisCommands
from kombu_delayq.options import BACKUPS
from kombu_delayq.store import DelayStore
from tests.bench.targets.load import QUEUE, fill, make_store, within_the_next_hour
from tests.bench.targets.report import Figure

WAITING = 10_000
#: Further queues, which a cancel also searches.
QUEUES = 3


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Cancels waiting and unknown ids in both ways in turn, in either form."""
    client: Any = redis.Redis(port=server.port)
    calls = 300 if quick else 2_000
    for form in BACKUPS:
        client.flushall()
        store = make_store(client, form)
        fill(store, WAITING, within_the_next_hour())
        client.sadd(store.keys.queues, *(f"empty {n}" for n in range(QUEUES)))
        kept = client.hkeys(store.keys.backup(QUEUE) if form == "hash" else store.keys.ids(QUEUE))
        waiting = [identity.decode() for identity in random.sample(kept, 2 * calls)]
        yield from _both(store, f"a waiting id, {form}", waiting, is_found=True)
        yield from _both(store, f"an unknown id, {form}", [str(uuid4()) for _ in waiting], is_found=False)


def _both(store: DelayStore, what: str, ids: list[str], *, is_found: bool) -> Iterator[Figure]:
    ways: dict[str, Callable[[str], bool]] = {
        "": lambda identity: any(done.messages for done in by_id.cancel(store, [identity])),
        ", a step at a time": lambda identity: _step_by_step(store, identity),
    }
    took_ms: dict[str, list[float]] = {name: [] for name in ways}
    trips: dict[str, int] = {}
    for name, act in ways.items():
        act("known from here on")  # Redis compiles the scripts
        one = ids.pop()
        trips[name] = _round_trips(lambda act=act, one=one: act(one))  # type: ignore[misc]
    for at, identity in enumerate(ids):
        name = list(ways)[at % len(ways)]
        start = perf_counter()
        found = ways[name](identity)
        took_ms[name].append((perf_counter() - start) * 1000)
        if found is not is_found:
            raise RuntimeError(f"{identity} was {'' if found else 'not '}found")
    for name in ways:
        target = 2 if not name and (is_found or store.backup == "hash") else None
        yield Figure(f"cancel of {what}{name}, round trips", trips[name], "", target)
        yield Figure(f"cancel of {what}{name}, median", median(took_ms[name]), "ms")


def _step_by_step(store: DelayStore, identity: str) -> bool:
    """Cancels an id with a round trip for each step, and takes its note back at the end."""
    # In place of the note, which also reads the queues.
    RedisCommands(store.client).ask("ZSCORE", store.keys.cancelled, identity)
    found = store.lookup.cancel(store.chains.refuse([identity]).queues, [identity])
    store.chains.accept([identity])
    return bool(found)


def _round_trips(act: Callable[[], object]) -> int:
    """Counts how often the client sends something."""
    send, sent = Connection.send_packed_command, []

    def noted(connection: Connection, command: Any, *args: Any, **kwargs: Any) -> Any:
        sent.append(command)
        return send(connection, command, *args, **kwargs)

    Connection.send_packed_command = noted  # type: ignore[method-assign]
    try:
        act()
    finally:
        Connection.send_packed_command = send  # type: ignore[method-assign]
    return len(sent)
