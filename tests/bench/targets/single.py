"""What single calls cost with ``install(app, fast_publish=True)``, next to stock Celery in the same process."""

from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from celery import Celery

from celery_ext import install
from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets.app import OURS, make_app
from tests.bench.targets.publish import ARGS, COUNTDOWN_S, Round, cost_of, forget
from tests.bench.targets.report import Figure

TASK = "bench.arrive"


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Publishes with each way to call, in turns with stock."""
    client = server.client()
    stock, fast = make_app(server.url), make_app(server.url, OURS)
    install(fast, fast_publish=True)
    count, rounds = (500, 8) if quick else (2000, 20)
    for name, (publish, target) in WAYS.items():
        turns: list[tuple[Round, Round]] = []
        trips, redis_us = 0.0, list[float]()
        for turn in range(rounds + 1):
            costs = {}
            for app in (stock, fast) if turn % 2 else (fast, stock):
                client.config_resetstat()
                costs[app] = cost_of(app, publish, count)
                if app is fast:
                    trips = client.info("stats")["total_reads_processed"] / count
                    # A script has the time of its commands, too.
                    took = [command["usec"] for command in client.info("commandstats").values()]
                    redis_us.append(max(took) / count)
                forget(client)
            if turn:  # the first warms up
                turns.append((costs[fast], costs[stock]))
        rate = median(ours.rate / theirs.rate for ours, theirs in turns)
        note = f"median of {rounds} rounds of {count:,}, in turns"
        yield Figure(f"{name}, rate, fast_publish / stock", rate, "", target, True, note)
        yield Figure(f"{name}, CPU, stock / fast_publish", median(b.cpu_us / a.cpu_us for a, b in turns), "")
        for label, at in (("fast_publish", 0), ("stock", 1)):
            yield Figure(f"{name}, {label}", median(turn[at].rate for turn in turns), "msg/s")
            yield Figure(f"{name}, CPU, {label}", median(turn[at].cpu_us for turn in turns), "µs/msg")
        yield Figure(f"{name}, Redis, fast_publish", median(redis_us), "µs/msg", note="of its LPUSH or script")
        yield Figure(f"{name}, round trips, fast_publish", trips, "", 1.05)


def _delay(app: Celery, count: int) -> None:
    task = app.tasks[TASK]
    for _ in range(count):
        task.delay(*ARGS)


def _apply_async(app: Celery, count: int) -> None:
    task = app.tasks[TASK]
    for _ in range(count):
        task.apply_async(ARGS, countdown=COUNTDOWN_S)


def _retry(app: Celery, count: int) -> None:
    task: Any = app.tasks[TASK]
    # Once, as the worker does before a task begins: it is no part of ``retry``.
    task.push_request(
        args=ARGS,
        kwargs={},
        retries=1,
        origin="gen1@there",
        reply_to="there",
        timelimit=[None, None],
        delivery_info={"exchange": "", "routing_key": "celery", "priority": 0},
        called_directly=False,
    )
    request = task.request
    try:
        for at in range(count):
            request.id = request.root_id = f"retried-{at}"
            task.retry(countdown=COUNTDOWN_S, throw=False)
    finally:
        task.pop_request()


#: Ways to call by name: what publishes, and the target of our rate divided by the rate of stock.
WAYS: dict[str, tuple[Callable[[Celery, int], None], float]] = {
    "delay()": (_delay, 2.8),
    "apply_async(countdown=60)": (_apply_async, 2.4),
    "retry(countdown=60)": (_retry, 2.4),
}
