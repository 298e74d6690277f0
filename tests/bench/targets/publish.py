"""What ``apply_async(countdown=60)`` costs a publisher, next to stock Celery in the same process."""

from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter
from typing import Any

from celery import Celery

from celery_ext.private_redis import PrivateRedis
from kombu_delayq.options import BACKUPS
from tests.bench.targets.app import OURS, make_app
from tests.bench.targets.report import Figure

COUNTDOWN_S = 60
#: Arguments of every task sent.
ARGS = (1_790_000_000.123456,)
STOCK_QUEUE = "celery"


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Publishes task by task."""
    yield from compare(server, "apply_async(countdown=60)", 0.95, _publish, *((1000, 6) if quick else (3000, 12)))


def compare(
    server: PrivateRedis, name: str, target: float, publish: Callable[[Celery, int], None], count: int, rounds: int
) -> Iterator[Figure]:
    """Publishes with our transport, in both forms, and with stock in turns, from an app that is otherwise the same.

    Args:
        server: The broker of both.
        name: Of the measure.
        target: For our rate over that of stock, in the form ``hash``.
        publish: Publishes a number of tasks from an app.
        count: Tasks a round.
        rounds: Of each app.
    """
    client = server.client()
    apps = {"stock": make_app(server.url), **{form: make_app(server.url, OURS, form) for form in BACKUPS}}
    rates: dict[str, list[float]] = {name: [] for name in apps}
    size = 0
    for turn in range(rounds + 1):
        for each in list(apps) if turn % 2 else reversed(list(apps)):
            rate = _rate(apps[each], publish, count)
            size = size or len(client.lindex(STOCK_QUEUE, 0) or "")
            _forget(client)
            if turn:  # the first warms up
                rates[each].append(rate)
    note = f"median of {rounds} rounds of {count:,}, task messages of {size:,} bytes"
    for form in BACKUPS:
        over = median(ours / stock for ours, stock in zip(rates[form], rates["stock"], strict=True))
        yield Figure(f"{name}, {form} / stock", over, "", target if form == "hash" else None, True, note)
    for each, of in rates.items():
        yield Figure(f"{name}, {each}", median(of), "msg/s")


def _publish(app: Celery, count: int) -> None:
    task = app.tasks["bench.arrive"]
    for _ in range(count):
        task.apply_async(ARGS, countdown=COUNTDOWN_S)


def _rate(app: Celery, publish: Callable[[Celery, int], None], count: int) -> float:
    start = perf_counter()
    publish(app, count)
    return count / (perf_counter() - start)


def _forget(client: Any) -> None:
    """Empties the queue and keeps its bindings, which kombu declares only once."""
    client.delete(STOCK_QUEUE, *client.scan_iter("delayq:*"), *client.scan_iter("redisson_*"))
