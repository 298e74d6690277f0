"""For contrast, what Redisson's own transfer task asks of Redis, on the same messages as ours."""

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import redis

from celery_ext.private_redis import PrivateRedis
from tests.bench.load import QUEUE, fill, make_store, one_after_the_other, within_the_last_hour
from tests.bench.report import Figure

#: The commands of one of its calls, in the order in which Redis sees them.
CALL = """
local entries = redis.call('ZRANGEBYSCORE', KEYS[1], 0, ARGV[1], 'LIMIT', 0, ARGV[2])
for _, entry in ipairs(entries) do
  local _, message = struct.unpack('Bc0Lc0', entry)
  redis.call('RPUSH', KEYS[3], message)
  redis.call('LREM', KEYS[2], 1, entry)
end
if #entries > 0 then
  redis.call('ZREM', KEYS[1], unpack(entries))
end
return redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
"""
#: How many messages one of its calls moves.
COUNT = 100
#: For how long it is watched.
FOR_S = 5.0


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Moves messages for a while, out of a backlog that is all due."""
    count = 20_000 if quick else 200_000
    name = f"Redisson's own transfer, {count:,} waiting"
    for delays, due_ms in (("random due times", within_the_last_hour), ("one constant delay", one_after_the_other)):
        rate, longest_ms, calls = _run(count, due_ms())
        note = f"{calls:,} calls of {COUNT} messages, with LREM for each"
        yield Figure(f"{name}, {delays}", rate, "msg/s", note=note)
        yield Figure(f"{name}, {delays}, longest call", longest_ms, "ms")


def _run(count: int, due_ms: Callable[[], float]) -> tuple[float, float, int]:
    with PrivateRedis() as server:
        client: Any = redis.Redis(port=server.port)
        store = make_store(client, "list")
        fill(store, count, due_ms)
        keys = [*store.keys.stored(QUEUE, "list")[:2], QUEUE]
        took_s: list[float] = []
        while sum(took_s) < FOR_S and len(took_s) * COUNT < count:
            start = perf_counter()
            client.eval(CALL, len(keys), *keys, round(store.now_ms()), COUNT)
            took_s.append(perf_counter() - start)
        if client.llen(QUEUE) != len(took_s) * COUNT:
            raise RuntimeError(f"{client.llen(QUEUE)} messages were moved by {len(took_s)} calls of {COUNT}")
    return len(took_s) * COUNT / sum(took_s), max(took_s) * 1000, len(took_s)
