"""What a cluster costs and gains: one node against three on the same cores, and what it takes to follow nodes."""

from collections.abc import Iterator

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets.cluster import following, latency, throughput
from tests.bench.targets.report import Figure


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Measures all of it. The nodes have no replicas, so that they do the same work as one node."""
    yield from following.measure(400 if quick else 2000)
    yield from throughput.measure(3 if quick else 8)
    yield from latency.measure(60 if quick else 200)
