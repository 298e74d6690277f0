"""What publishing costs, one by one, in a batch and with templates, beside stock Celery and beside redis-py alone."""

from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple
from uuid import uuid4

import redis
from celery import Celery
from kombu import Producer

from celery_ext import Call, cancel, install, send_many
from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets.app import OURS, TASK, make_app
from tests.bench.targets.report import Figure

COUNTDOWN_S = 60
#: The least rate of ``send_many``, in messages a second.
SENT_MANY = 50_000
#: Arguments of every task sent.
ARGS = (1_790_000_000.123456,)
STOCK_QUEUE = "celery"
#: The list to which redis-py pushes.
BESIDE = "beside"
_FAILED = ConnectionError("the mail server is away")


class Round(NamedTuple):
    """Cost of a round: CPU time of this process in µs a message, and messages a second."""

    cpu_us: float
    rate: float


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Publishes with each way, ours in turns with what stock Celery has for it."""
    count, rounds = (500, 6) if quick else (2_000, 15)
    stock, ours, fast = make_app(server.url), make_app(server.url, OURS), make_app(server.url, OURS)
    install(fast, fast_publish=True)
    for name, app, publish, theirs, target in (
        ("delay()", ours, _delay, _delay, 0.95),
        ("apply_async(countdown=60)", ours, _countdown, _countdown, 0.95),
        ("delay(), fast_publish", fast, _delay, _delay, 3.5),
        ("apply_async(countdown=60), fast_publish", fast, _countdown, _countdown, 3.0),
        ("retry(countdown=60), fast_publish", fast, _retry, _retry, 2.5),
        ("send_many, countdown=60", ours, _send_many, _batch, 3.0),
    ):
        found = _in_turns(server.client(), (app, publish), (stock, theirs), count, rounds)
        rate = median(mine.rate / other.rate for mine, other in found)
        cpu = median(mine.cpu_us / other.cpu_us for mine, other in found)
        yield Figure(f"{name}, rate / stock", rate, "", target, True, f"median of {rounds} rounds of {count:,}")
        yield Figure(f"{name}, CPU time of the publisher / stock", cpu)
        least = SENT_MANY if publish is _send_many else None
        yield Figure(f"{name}, kombu-delayq", median(mine.rate for mine, _ in found), "msg/s", least, True)
        yield Figure(f"{name}, stock", median(other.rate for _, other in found), "msg/s")
    yield from _beside_redis_py(server, fast, count, rounds)
    yield from _cancelled(fast, 500 if quick else 3_000)


def _beside_redis_py(server: PrivateRedis, fast: Celery, count: int, rounds: int) -> Iterator[Figure]:
    """Publishes in turns with an ``LPUSH`` by redis-py of the same bytes, which is what nobody can do without."""
    client: Any = redis.Redis.from_url(server.url)
    fast.tasks[TASK].delay(*ARGS)
    body = client.lindex(STOCK_QUEUE, 0)

    def push(_: Any, count: int) -> None:
        for _ in range(count):
            client.lpush(BESIDE, body)

    for name, publish, target in (("delay()", _delay, 1.7), ("apply_async(countdown=60)", _countdown, 2.0)):
        found = _in_turns(server.client(), (fast, publish), (client, push), count, rounds)
        wall = median(other.rate / mine.rate for mine, other in found)
        cpu = median(mine.cpu_us / other.cpu_us for mine, other in found)
        mine_us, other_us = (1e6 / median(one[at].rate for one in found) for at in range(2))
        note = f"{mine_us:.0f} and {other_us:.0f} µs a call, {len(body)} bytes"
        yield Figure(f"{name}, fast_publish, time / redis-py's LPUSH", wall, "", target, note=note)
        yield Figure(f"{name}, fast_publish, CPU time / redis-py's LPUSH", cpu, "", target)


def _cancelled(app: Celery, count: int) -> Iterator[Figure]:
    """Cancels waiting tasks by id, one by one."""
    ids = [app.tasks[TASK].apply_async(ARGS, countdown=COUNTDOWN_S * 60).id for _ in range(count)]
    took_s, cpu_s = [], process_time()
    for identity in ids:
        begun = perf_counter()
        if cancel(app, identity) != "cancelled":
            raise RuntimeError(f"{identity} did not wait")
        took_s.append(perf_counter() - begun)
    cpu_us = (process_time() - cpu_s) / count * 1e6
    yield Figure("cancel by id, whole call, median", median(took_s) * 1000, "ms", 0.3, note=f"{count:,} calls")
    yield Figure("cancel by id, CPU time of the caller", cpu_us, "µs")


def _in_turns(client: Any, ours: Any, stock: Any, count: int, rounds: int) -> list[tuple[Round, Round]]:
    """Returns what each round cost, ours and stock's."""
    found = []
    for turn in range(rounds + 1):
        cost = {}
        for app, publish in (ours, stock) if turn % 2 else (stock, ours):
            cost[app] = _cost_of(app, publish, count)
            # Kombu declares its bindings only once, so they stay.
            client.delete(STOCK_QUEUE, BESIDE, *client.scan_iter("delayq:*"), *client.scan_iter("redisson_*"))
        if turn:  # the first warms up
            found.append((cost[ours[0]], cost[stock[0]]))
    return found


def _cost_of(app: Any, publish: Callable[[Any, int], None], count: int) -> Round:
    begun, cpu_s = perf_counter(), process_time()
    publish(app, count)
    return Round((process_time() - cpu_s) / count * 1e6, count / (perf_counter() - begun))


def _delay(app: Celery, count: int) -> None:
    task = app.tasks[TASK]
    for _ in range(count):
        task.delay(*ARGS)


def _countdown(app: Celery, count: int) -> None:
    task = app.tasks[TASK]
    for _ in range(count):
        task.apply_async(ARGS, countdown=COUNTDOWN_S)


def _retry(app: Celery, count: int) -> None:
    """Retries tasks as a worker that runs them, one after the other."""
    task: Any = app.tasks[TASK]
    delivery_info = {"exchange": "", "routing_key": STOCK_QUEUE, "priority": 0}
    task.push_request(args=ARGS, kwargs={}, retries=0, called_directly=False, delivery_info=delivery_info)
    request = task.request
    try:
        for _ in range(count):
            request.id = request.root_id = request.correlation_id = str(uuid4())
            task.retry(countdown=COUNTDOWN_S, exc=_FAILED, throw=False)
    finally:
        task.pop_request()


def _send_many(app: Celery, count: int) -> None:
    send_many(app, app.tasks[TASK], (Call(ARGS, countdown=COUNTDOWN_S) for _ in range(count)))


def _batch(app: Celery, count: int) -> None:
    """Publishes in a ``Producer.batch`` (kombu 5.7), where there is one."""
    if not hasattr(Producer, "batch"):
        _countdown(app, count)
        return
    task = app.tasks[TASK]
    with app.producer_pool.acquire(block=True) as producer, producer.batch():
        for _ in range(count):
            task.apply_async(ARGS, countdown=COUNTDOWN_S, producer=producer)
