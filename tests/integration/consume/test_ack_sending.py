"""Acknowledgements of many threads at once."""

from concurrent.futures import ThreadPoolExecutor

import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.consume.acks import Acks
from kombu_delayq.store import DelayStore
from tests.support.conditions import until

THREADS = 20


def test_many_threads_need_one_connection(redis_server: PrivateRedis, client: redis.Redis) -> None:
    """Threads that acknowledge while Redis is slow wait for each other, where a connection each would be too many."""
    tags = [f"host:1:abc.{number}" for number in range(THREADS)]
    client.hset("unacked", mapping=dict.fromkeys(tags, "[]"))
    client.zadd("unacked_index", dict.fromkeys(tags, 1))
    pool = redis.ConnectionPool(port=redis_server.port, max_connections=1)
    store, acks = DelayStore(redis.Redis(connection_pool=pool)), Acks(dict.fromkeys(tags, "orders"))

    def acknowledge(tag: str) -> None:
        acks.add(tag)
        acks.send(store)

    client.client_pause(300)
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(acknowledge, tags))
    until(lambda: not client.exists("unacked", "unacked_index"), what="all are acknowledged")
    pool.disconnect()
