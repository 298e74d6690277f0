"""What the options that make messages lighter save: memory of waiting messages, and time to transfer them."""

import json
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any
from uuid import uuid4

import redis
from celery import Celery

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.bench.targets.load import PER_CALL, QUEUE, make_store, within_the_last_hour, within_the_next_hour
from tests.bench.targets.report import Figure
from tests.bench.targets.transfer import Run, transfer_all

#: Stands for the id of a task, and is as long.
ID = "00000000-0000-0000-0000-000000000000"
#: Bytes of the arguments of a task, as JSON.
ARGUMENTS = 1000
LIGHT = {"text_bodies": True, "repr_maxsize": 50, "omit_defaults": True}
SETTINGS: dict[str, dict[str, Any]] = {
    "no option": {},
    **{name: {name: value} for name, value in LIGHT.items()},
    "two options": {name: LIGHT[name] for name in ("text_bodies", "repr_maxsize")},
    "all three": LIGHT,
}
#: Most bytes of Redis for a message with all options, and how much faster it has to be transferred.
MEMORY_BYTES, FASTER = 2000, 1.4


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Measures messages as Celery makes them, with each of the options and with all."""
    count = 20_000 if quick else 100_000
    for name, options in SETTINGS.items():
        text = _message(server, options)
        target = MEMORY_BYTES if name == "all three" else None
        yield Figure(f"lighter messages, {name}: length", len(text), "bytes")
        note = f"used_memory, {count:,} waiting"
        yield Figure(f"lighter messages, {name}: memory", _memory(text, count), "bytes", target, note=note)
    yield from _transfer(100_000 if quick else 1_000_000, 3)


def _message(server: PrivateRedis, options: dict[str, Any]) -> str:
    """Returns the message of a delayed task as it waits, as JSON, with ``ID`` for its id."""
    client: Any = server.client()
    client.flushall()
    kwargs = {"user": 123456789, "payload": ""}
    kwargs["payload"] = "x" * (ARGUMENTS - len(json.dumps(kwargs)))
    with Celery("bench", broker=server.url, set_as_current=False) as app:
        app.conf.broker_transport = "kombu_delayq.transport:Transport"
        app.conf.broker_transport_options = options
        task_id = str(app.send_task("bench.arrive", kwargs=kwargs, countdown=3600, queue=QUEUE))
        with app.connection_for_write() as connection:
            backup = connection.default_channel.store.keys.backup(QUEUE)
    (text,) = client.hvals(backup)
    return str(text).replace(task_id, ID)


def _memory(text: str, count: int) -> float:
    """Returns the bytes of ``used_memory`` that a waiting message takes, of a number of them in one queue."""
    with PrivateRedis() as own:
        store = make_store(redis.Redis(port=own.port), "hash")
        _fill(store, text, 1, within_the_next_hour())  # Redis compiles the script
        before = _used(store)
        _fill(store, text, count, within_the_next_hour())
        return (_used(store) - before) / count


def _transfer(count: int, times: int) -> Iterator[Figure]:
    """Transfers messages with no option and with all, in turn."""
    with PrivateRedis() as own:
        texts = {name: _message(own, SETTINGS[name]) for name in ("no option", "two options", "all three")}
    runs: dict[str, list[Run]] = {name: [] for name in texts}
    for _ in range(times):
        for name, text in texts.items():
            with PrivateRedis() as own:
                store = make_store(redis.Redis(port=own.port), "hash")
                _fill(store, text, count, within_the_last_hour())
                runs[name].append(transfer_all(store, count))
    rates = {name: median(run.per_s for run in found) for name, found in runs.items()}
    for name, found in runs.items():
        note = f"of each run: {', '.join(f'{run.per_s:,.0f}' for run in found)}"
        yield Figure(f"lighter messages, {name}: transfer, {count:,} waiting", rates[name], "msg/s", note=note)
        yield Figure(f"lighter messages, {name}: Redis CPU a message", median(run.redis_us for run in found), "µs")
    for name, target in (("two options", None), ("all three", FASTER)):
        each = (f"{light.per_s / plain.per_s:.2f}" for light, plain in zip(runs[name], runs["no option"], strict=True))
        note = f"of medians; of each round: {', '.join(each)}"
        value = rates[name] / rates["no option"]
        yield Figure(f"lighter messages, {name}: transfer / without", value, "", target, True, note)


def _fill(store: DelayStore, text: str, count: int, due_ms: Callable[[], float]) -> None:
    """Offers copies of a message with ids of their own."""
    for start in range(0, count, PER_CALL):
        ids = [str(uuid4()) for _ in range(min(PER_CALL, count - start))]
        offers = [Offer(task_id, repr(due_ms()), 0, text.replace(ID, task_id)) for task_id in ids]
        store.delivery.offer(QUEUE, *offers)


def _used(store: DelayStore) -> int:
    return int(store.client.info("memory")["used_memory"])
