"""What ``apply_async(countdown=60)`` costs a publisher, next to stock Celery in the same process."""

from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

from celery import Celery

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import BACKUPS
from tests.bench.targets.app import OURS, make_app
from tests.bench.targets.report import Figure

COUNTDOWN_S = 60
#: Arguments of every task sent.
ARGS = (1_790_000_000.123456,)
STOCK_QUEUE = "celery"


class Round(NamedTuple):
    """Cost of a round: CPU time of this process in µs a message, and messages a second."""

    cpu_us: float
    rate: float


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Publishes task by task."""
    yield from compare(server, "apply_async(countdown=60)", None, _publish, *((1000, 6) if quick else (3000, 12)))


def compare(
    server: PrivateRedis,
    name: str,
    rate_target: float | None,
    publish: Callable[[Celery, int], None],
    count: int,
    rounds: int,
) -> Iterator[Figure]:
    """Publishes with our transport, in both forms, and with stock in turns, from an app that is otherwise the same.

    Args:
        server: The broker of both.
        name: Name of the measure.
        rate_target: Target of our rate divided by the rate of stock, in the form ``hash``. The target for the CPU time
            of the publisher is no more than stock.
        publish: Publishes a number of tasks from an app.
        count: Tasks in a round.
        rounds: Rounds of each app.
    """
    client = server.client()
    apps = {"stock": make_app(server.url), **{form: make_app(server.url, OURS, {"backup": form}) for form in BACKUPS}}
    found: dict[str, list[Round]] = {name: [] for name in apps}
    size = 0
    for turn in range(rounds + 1):
        for app_name in list(apps) if turn % 2 else reversed(list(apps)):
            cost = cost_of(apps[app_name], publish, count)
            size = size or len(client.lindex(STOCK_QUEUE, 0) or "")
            forget(client)
            if turn:  # the first warms up
                found[app_name].append(cost)
    note = f"median of {rounds} rounds of {count:,}, task messages of {size:,} bytes"
    for form in BACKUPS:
        turns = list(zip(found[form], found["stock"], strict=True))
        cpu = median(ours.cpu_us / stock.cpu_us for ours, stock in turns)
        rate = median(ours.rate / stock.rate for ours, stock in turns)
        cpu_target, target = (1.0, rate_target) if form == "hash" else (None, None)
        yield Figure(f"{name}, CPU, {form} / stock", cpu, "", cpu_target, note=f"of the publisher; {note}")
        yield Figure(f"{name}, rate, {form} / stock", rate, "", target, True, note)
    for app_name, of in found.items():
        yield Figure(f"{name}, CPU, {app_name}", median(cost.cpu_us for cost in of), "µs/msg")
        yield Figure(f"{name}, {app_name}", median(cost.rate for cost in of), "msg/s")


def _publish(app: Celery, count: int) -> None:
    task = app.tasks["bench.arrive"]
    for _ in range(count):
        task.apply_async(ARGS, countdown=COUNTDOWN_S)


def cost_of(app: Celery, publish: Callable[[Celery, int], None], count: int) -> Round:
    """Publishes a number of tasks from an app, and returns what that cost."""
    begun, cpu_s = perf_counter(), process_time()
    publish(app, count)
    return Round((process_time() - cpu_s) / count * 1e6, count / (perf_counter() - begun))


def forget(client: Any) -> None:
    """Empties the queue and keeps its bindings, which kombu declares only once."""
    client.delete(STOCK_QUEUE, *client.scan_iter("delayq:*"), *client.scan_iter("redisson_*"))
