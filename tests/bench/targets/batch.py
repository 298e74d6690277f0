"""What ``Producer.batch`` (kombu 5.7) costs with delayed tasks in it, next to stock."""

from collections.abc import Iterator

from celery import Celery
from kombu import Producer

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets.publish import ARGS, COUNTDOWN_S, compare
from tests.bench.targets.report import Figure


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Publishes the tasks of a round in one batch."""
    if hasattr(Producer, "batch"):
        yield from compare(server, "batch, countdown=60", 1.0, _publish, *((1000, 6) if quick else (5000, 12)))


def _publish(app: Celery, count: int) -> None:
    task = app.tasks["bench.arrive"]
    with app.producer_pool.acquire(block=True) as producer, producer.batch():
        for _ in range(count):
            task.apply_async(ARGS, countdown=COUNTDOWN_S, producer=producer)
