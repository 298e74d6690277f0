"""What the async forms cost beside the functions that they call in threads, and beside ``redis.asyncio``.

``redis.asyncio`` has the message ready-made, so its figures are a bound for forms that would use it: those would make
the message as well, which is most of the work.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from statistics import median, quantiles
from time import perf_counter, time

from redis.asyncio import Redis

from celery_ext import aclose, asend, install
from celery_ext.connection import open_store
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.waiting import control
from kombu_delayq.store.types import Offer
from tests.bench.targets.app import OURS, make_app
from tests.bench.targets.publish import ARGS, COUNTDOWN_S
from tests.bench.targets.report import Figure

QUEUE = "celery"
TASK = "bench.arrive"
#: Calls at the same time, where throughput is measured.
AT_ONCE = 100
BODY = "x" * 1000

Make = Callable[[], Awaitable[object]]


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Sends delayed tasks and counts them, one after the other and many at once."""
    app = make_app(server.url, OURS)
    install(app)
    calls, rounds = (300, 3) if quick else (2000, 7)
    bare = Redis(port=server.port)
    with app.pool.acquire(block=True) as connection:
        store = open_store(connection)
        store.delivery.offer(QUEUE, Offer("first", str(int(time() + COUNTDOWN_S) * 1000), 0, BODY))  # loads the script
        numbers = count()

        async def in_loop_send() -> object:
            number = next(numbers)
            offer = Offer(f"bare-{number}", str(int(time() + COUNTDOWN_S) * 1000), 0, f"{BODY}{number}")
            for command in store.delivery.offer_commands(QUEUE, [offer]):
                await bare.execute_command(*command)
            return None

        async def as_function(call: Callable[[], object]) -> object:
            return call()

        ways: dict[str, dict[str, Make]] = {
            "send": {
                "function, in the loop's thread": lambda: as_function(
                    lambda: app.tasks[TASK].apply_async(ARGS, countdown=COUNTDOWN_S)
                ),
                "async form": lambda: asend(app, app.tasks[TASK], ARGS, countdown=COUNTDOWN_S),
                "redis.asyncio, message ready-made": in_loop_send,
            },
            "count": {
                "function, in the loop's thread": lambda: as_function(lambda: control.count(app, QUEUE)),
                "asyncio.to_thread": lambda: asyncio.to_thread(control.count, app, QUEUE),
                "redis.asyncio": lambda: bare.zcount(f"delayq:{{{QUEUE}}}:due", "-inf", "inf"),
            },
        }
        yield from asyncio.run(_all(ways, calls, rounds, app, bare))


async def _all(ways: "dict[str, dict[str, Make]]", calls: int, rounds: int, app: object, bare: Redis) -> list[Figure]:
    figures = []
    for what, by_way in ways.items():
        latency: dict[str, list[float]] = {way: [] for way in by_way}
        rate: dict[str, list[float]] = {way: [] for way in by_way}
        for turn in range(rounds + 1):
            for way, make in by_way.items():
                took = await _one_by_one(make, calls)
                per_s = await _at_once(make, calls)
                if turn:  # the first warms up
                    latency[way] += took
                    rate[way].append(per_s)
        for way in by_way:
            figures += [
                Figure(f"{what}, {way}, median", median(latency[way]) * 1e3, "ms"),
                Figure(f"{what}, {way}, 99 %", quantiles(latency[way], n=100)[98] * 1e3, "ms"),
                Figure(f"{what}, {way}, {AT_ONCE} at once", median(rate[way]), "/s"),
            ]
    await aclose(app)  # type: ignore[arg-type]
    await bare.aclose()
    return figures


async def _one_by_one(make: Make, calls: int) -> list[float]:
    took = []
    for _ in range(calls):
        begun = perf_counter()
        await make()
        took.append(perf_counter() - begun)
    return took


async def _at_once(make: Make, calls: int) -> float:
    left = iter(range(calls))

    async def caller() -> None:
        for _ in left:
            await make()

    begun = perf_counter()
    await asyncio.gather(*(caller() for _ in range(AT_ONCE)))
    return calls / (perf_counter() - begun)
