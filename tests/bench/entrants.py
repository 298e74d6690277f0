"""Everybody who is compared."""

from tests.bench.contender import Contender
from tests.bench.everyone import bullmq, celery_, procrastinate_, python_, rabbitmq_, redisson

#: In the order of the tables.
EVERYONE: tuple[Contender, ...] = (
    celery_.HASH,
    celery_.LIST,
    celery_.LIGHT,
    celery_.STOCK,
    rabbitmq_.RABBITMQ,
    bullmq.BULLMQ,
    python_.DRAMATIQ,
    python_.RQ,
    python_.ARQ,
    python_.HUEY,
    procrastinate_.PROCRASTINATE,
    redisson.REDISSON,
)
