"""What a journal achieves, whether millions of rows slow it down, and what it costs publishers."""

from collections.abc import Iterator

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets.journal import flat, promotion, publishing, tiers
from tests.bench.targets.report import Figure


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Measures all of it."""
    yield from promotion.measure(server, quick)
    yield from flat.measure(quick)
    yield from publishing.measure(server, quick)
    yield from tiers.measure(server, quick)
