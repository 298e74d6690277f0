"""Bytes of Redis's memory: a waiting message, one in the hand of a worker, a connection."""

from collections.abc import Iterator
from statistics import mean
from time import sleep

import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from kombu_delayq.store.consuming.types import Request
from tests.bench.targets.capacity.constants import SIZES, Constant, model
from tests.bench.targets.load import QUEUE, fill, make_store, within_the_last_hour, within_the_next_hour
from tests.support.conditions import until

COUNT, HELD, CONNECTIONS = 6_000, 1_000, 200


def measure() -> Iterator[Constant]:
    """Measures each with servers of its own. The figures are the same in each run."""
    waiting = [(size, waiting_bytes(size, COUNT)) for size in SIZES]
    capacity = model()
    tables = capacity.TABLES * capacity.POINTER * capacity.power_of_two(COUNT) / COUNT
    adds = mean(found - capacity.allocated(size + 4) - tables for size, found in waiting)
    note = f"beside its body and {tables:.0f} bytes of hash tables; in all {waiting[0][1]:.0f} for 1,000 bytes"
    yield Constant("memory, a waiting message", adds, "bytes", note=note, path=("bytes", "waiting"), numbers=(adds,))
    noted, adds = _held()
    note = f"beside its note, which has {noted:.2f} bytes for each byte of the message"
    yield Constant("memory, a message in hand", adds, "bytes", note=note, path=("bytes", "held"), numbers=(adds,))
    yield Constant("memory, its note", noted, "of it", path=("bytes", "note"), numbers=(noted,))
    found = _connection()
    yield Constant("memory, a connection", found, "bytes", path=("bytes", "connection"), numbers=(found,))


def waiting_bytes(size: int, count: int) -> float:
    """Returns the bytes of ``used_memory`` that a waiting message takes, of a number of them in one queue."""
    with PrivateRedis() as server:
        store = make_store(redis.Redis(port=server.port), "hash")
        fill(store, 1, within_the_next_hour(), lambda: size, "other")
        before = _used(store)
        fill(store, count, within_the_next_hour(), lambda: size)
        return (_used(store) - before) / count


def _held() -> tuple[float, float]:
    """Returns the length of a note for each byte of its message, and what it takes more than this."""
    size, capacity = SIZES[0], model()
    with PrivateRedis() as server:
        store = make_store(redis.Redis(port=server.port, decode_responses=True), "hash")
        store.consumers.beat("bench:1:a", [QUEUE], is_new=True)
        fill(store, HELD, within_the_last_hour(), lambda: size)
        while store.delivery.transfer(QUEUE).moved:
            pass
        before = _used(store)
        taken = 0
        while found := store.taking.take(Request("bench:1:a", taken, 8, [QUEUE])):
            taken += len(found)
        # The list is gone by then.
        adds = (_used(store) - before) / HELD + capacity.listed(size)
        noted = mean(map(len, store.client.hvals(store.keys.unacked(store.keys.share(QUEUE))))) / size
        return noted, adds - capacity.allocated(noted * size)


def _connection() -> float:
    """Returns the bytes that an idle connection takes; Redis frees its buffers after a moment."""
    with PrivateRedis() as server:
        client = server.client()
        pool = redis.ConnectionPool(port=server.port, max_connections=CONNECTIONS)
        before = int(client.info("memory")["used_memory"])
        opened = [pool.get_connection() for _ in range(CONNECTIONS)]
        for one in opened:
            one.send_command("PING")
            one.read_response()
        sleep(8)  # Redis looks after clients for some seconds until they have been idle for long enough
        until(lambda: int(client.info("clients")["connected_clients"]) > CONNECTIONS, 5, "all are connected")
        found = (int(client.info("memory")["used_memory"]) - before) / CONNECTIONS
        pool.disconnect()
        return found


def _used(store: DelayStore) -> int:
    return int(store.client.info("memory")["used_memory"])
