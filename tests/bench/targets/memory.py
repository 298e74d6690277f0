"""What memory a worker gains while it runs very many tasks."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets.consume import QUEUE, TAKE, Worker, copies, template
from tests.bench.targets.report import Figure
from tests.support.conditions import until

#: Tasks that wait at a time. Memory is measured after the first of them, and at the end.
ROUND = 20_000
#: How long a round may take, in s.
PATIENCE_S = 300


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Runs tasks by one worker, round after round."""
    message, count = template(), 100_000 if quick else 1_000_000
    with TemporaryDirectory(prefix="delayq-bench-") as folder:
        worker = Worker(TAKE, server, Path(folder), "threads")
        try:
            sizes = [_rss_after(worker, message, ran) for ran in range(ROUND, count + 1, ROUND)]
        finally:
            worker.close()
    note = f"pool threads; {sizes[0]:.1f} MB after the first {ROUND:,}"
    yield Figure(f"memory a worker gains by {count:,} tasks", sizes[-1] - sizes[0], "MB", 2, note=note)


def _rss_after(worker: Worker, message: str, ran: int) -> float:
    """Runs a round of tasks. Returns the memory of the worker after so many tasks in all, in MB."""
    for page in copies(message, ROUND):
        worker.client.lpush(QUEUE, *page)
    until(lambda: worker.journal.count() == ran, PATIENCE_S, f"a worker has run {ran:,} tasks")
    return worker.rss_mb()
