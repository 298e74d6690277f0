"""Who is compared. Their programs are in ``tests.bench.contenders``, which may need an interpreter of their own."""

from tests.bench.contender import Contender
from tests.bench.everyone import bullmq, celery_, redisson

#: In the order of the tables.
EVERYONE: tuple[Contender, ...] = (celery_.HASH, celery_.LIST, celery_.STOCK, bullmq.BULLMQ, redisson.REDISSON)
