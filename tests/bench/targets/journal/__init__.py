"""What a journal in PostgreSQL achieves, and whether millions of rows slow it down."""

from collections.abc import Iterator

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets.journal import promotion
from tests.bench.targets.report import Figure


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Measures all of it."""
    yield from promotion.measure(server, quick)
