"""How long a burst takes: many messages due in the same instant."""

import multiprocessing
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from time import sleep
from typing import Any

import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import BACKUPS
from kombu_delayq.store import DelayStore
from kombu_delayq.transfer.worker import TransferWorker
from tests.bench.targets.load import QUEUE, fill, make_store
from tests.bench.targets.report import Figure
from tests.bench.targets.worker import running
from tests.support.conditions import until

COUNT = 20_000
#: From the due time until all messages are moved. That of Redisson's form is that of its rate, 20,000 messages/s.
TARGETS_MS = {"hash": 500, "list": 1000}
#: From the start of loading to the due time: more than loading takes.
LEAD_S = 6.0


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Lets a transfer worker of each kind move the burst."""
    note = "the slowest run; due time to the last one moved, seen by polling ZCARD"
    for kind, worker in (("transfer worker alone", transfer_process), ("inside a celery worker", running)):
        times_ms: dict[str, list[float]] = {form: [] for form in BACKUPS}
        for _ in range(1 if quick else 2):
            for form, took_ms in times_ms.items():
                took_ms.append(_burst(server, form, worker(server.url, form)))
        for form, took_ms in times_ms.items():
            took_ms.sort()
            name = f"burst, {form}, {COUNT:,} due at once, {kind}"
            yield Figure(name, took_ms[-1], "ms", TARGETS_MS[form], note=f"{note}; {took_ms}")


@contextmanager
def transfer_process(broker_url: str, form: str) -> Iterator[int]:
    """Runs a transfer worker as a process of its own."""
    process = multiprocessing.get_context("spawn").Process(target=_transfer, args=(broker_url, form), daemon=True)
    process.start()
    try:
        until(DelayStore(redis.Redis.from_url(broker_url)).leases.leader, 20, "a transfer worker leads")
        yield process.pid or 0
    finally:
        process.kill()
        process.join(10)


def _transfer(broker_url: str, form: str) -> None:
    TransferWorker(lambda: make_store(redis.Redis.from_url(broker_url), form)).run()


def _burst(server: PrivateRedis, form: str, worker: AbstractContextManager[Any]) -> float:
    client: Any = redis.Redis(port=server.port)
    client.flushall()
    store = make_store(client, form)
    with worker:
        due_ms = _now_ms(client.time()) + LEAD_S * 1000
        fill(store, COUNT, lambda: due_ms)
        if _now_ms(client.time()) > due_ms or store.queues.size(QUEUE) != COUNT:
            raise RuntimeError(f"loading took longer than {LEAD_S} s")
        while True:
            sleep(0.001)
            pipe = client.pipeline()
            now, left = pipe.time().zcard(store.keys.stored(QUEUE, form)[0]).execute()
            if not left:
                return _now_ms(now) - due_ms


def _now_ms(time: tuple[int, int]) -> float:
    return time[0] * 1000 + time[1] / 1000
