"""Acknowledgements of many threads at once."""

from concurrent.futures import ThreadPoolExecutor

import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.consume.acks import Acks
from kombu_delayq.store import DelayStore
from tests.support.conditions import until
from tests.support.workers.held import KEYS

THREADS = 20


def test_many_threads_need_one_connection(redis_server: PrivateRedis, client: redis.Redis) -> None:
    """Threads that acknowledge while Redis is slow wait for each other, where a connection each would be too many."""
    tags = [f"host:1:abc.{number}" for number in range(THREADS)]
    unacked, index = KEYS.unacked(KEYS.share("orders")), KEYS.unacked_index(KEYS.share("orders"))
    client.hset(unacked, mapping=dict.fromkeys(tags, "[]"))
    client.zadd(index, dict.fromkeys(tags, 1))
    pool = redis.ConnectionPool(port=redis_server.port, max_connections=1)
    share = KEYS.share("orders")
    store, acks = DelayStore(redis.Redis(connection_pool=pool), KEYS), Acks(dict.fromkeys(tags, "orders"), share)

    def acknowledge(tag: str) -> None:
        acks.add(tag)
        acks.send(store)

    client.client_pause(300)
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(acknowledge, tags))
    until(lambda: not client.exists(unacked, index), what="all are acknowledged")
    pool.disconnect()
