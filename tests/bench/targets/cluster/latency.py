"""How soon a task begins that is due, on one node and on a cluster."""

import random
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median, quantiles
from time import sleep, time

from celery import Celery

from tests.bench.targets.cluster.places import Worker, one_node, three_nodes, working
from tests.bench.targets.report import Figure
from tests.support.conditions import until

QUEUES = 6
#: When a delayed task is due from now, in s, and how much later it may begin on a cluster, in ms.
DUE_S, MORE_MS = 0.15, 1.0
BETWEEN_S = (0.01, 0.05)


def measure(count: int) -> Iterator[Figure]:
    """Sends single messages to workers of both in turn, to random queues."""
    queues = [f"bench{number}" for number in range(QUEUES)]
    with ExitStack() as opened:
        workers = [
            opened.enter_context(working(opened.enter_context(start()), queues)) for start in (one_node, three_nodes)
        ]
        apps = [worker.place.app() for worker in workers]
        for name, due_s in (("due", DUE_S), ("not delayed", 0.0)):
            for _ in range(2):
                for queue in queues:
                    for worker, app in zip(workers, apps, strict=True):
                        _send(worker, app, queue, due_s)
            for worker in workers:
                worker.journal.clear()
            for _ in range(count):
                queue = random.choice(queues)
                for worker, app in zip(workers, apps, strict=True):
                    sleep(random.uniform(*BETWEEN_S))
                    _send(worker, app, queue, due_s)
            one, three = (worker.journal.late_s() for worker in workers)
            note = f"{count} messages in turns, {QUEUES} queues; one node: {_spread(one)}; three: {_spread(three)}"
            more = (median(three) - median(one)) * 1000
            yield Figure(f"latency, {name}, median, three nodes less one", more, "ms", MORE_MS, note=note)
            yield Figure(f"latency, {name}, median, one node", median(one) * 1000, "ms")


def _send(worker: Worker, app: Celery, queue: str, due_s: float) -> None:
    """Publishes a task, and waits until it has begun, which notes how late that was."""
    before, due = worker.journal.count(), time() + due_s
    delay = {"countdown": due_s} if due_s else {}
    app.tasks["bench.begin"].apply_async((due,), queue=queue, **delay)
    until(lambda: worker.journal.count() > before, 15, f"a task of {queue} begins on {worker.place.name}")


def _spread(late_s: list[float]) -> str:
    p95 = quantiles(late_s, n=20)[18]
    return f"median {median(late_s) * 1000:.2f}, p95 {p95 * 1000:.2f}, longest {max(late_s) * 1000:.1f} ms"
