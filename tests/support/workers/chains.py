"""Workers with the tasks of ``chain_tasks.py``, and their chains step by step."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from celery_ext import DelayedTask, get, install, run_now
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.waiting.control import store_of_app
from tests.support.conditions import until
from tests.support.workers.harness import TRANSPORT, Proj, beside

#: Settings of an app with these tasks.
TASKS = {"include": ["chain_tasks"], "result_cache_max": -1}  # a cached result would outlive its server
#: How long on a busy machine a publisher may take from reading the clock to publishing a step, in s.
SLOW_S = 60


@contextmanager
def fleet(*args: str, server: PrivateRedis | None = None, **conf: Any) -> Iterator[Proj]:
    """Yields an app with these tasks on an empty broker, with a worker, for several tests."""
    with PrivateRedis() as own:
        broker = server or own
        settings = {"broker_url": broker.url, "broker_transport": TRANSPORT, "result_backend": beside(broker).url_of(1)}
        proj = Proj(broker, {**settings, **TASKS, **conf}, beside(broker))
        install(proj.app)
        try:
            proj.worker(*args, concurrency=4)
            yield proj
        finally:
            proj.close()


def waiting_step(proj: Proj, task_id: str, retries: int) -> DelayedTask:
    """Returns the message of a step of a chain as soon as it waits."""

    def waits() -> DelayedTask | None:
        task = get(proj.app, task_id)
        return task if task is not None and task.retries == retries else None

    task = until(waits, what=f"step {retries} of {task_id} waits")
    assert task is not None
    return task


def retries_of(proj: Proj, task_id: str) -> list[int]:
    """Returns the number of retries at each run of a task, 0 for the first run."""
    return [run["retries"] for run in proj.runs(id=task_id, told=None)]


def steps_of(proj: Proj, task_id: str, count: int) -> list[float]:
    """Runs each step of a chain before it is due. Returns how long each step would have waited, in s."""
    delays = []
    for retries in range(1, count + 1):
        delays.append(delay_of_step(proj, task_id, retries))
        assert run_now(proj.app, task_id) == "transferred"
    return delays


def delay_of_step(proj: Proj, task_id: str, retries: int) -> float:
    """Waits for a step. Returns how long it waits after the run before it, in s."""
    task = waiting_step(proj, task_id, retries)
    ran = proj.runs(id=task_id, told=None)[-1]
    assert ran["retries"] == retries - 1
    return task.due.timestamp() - float(ran["at"])


def assert_steps(delays: list[float], *expected: float) -> None:
    """Checks that no step waited too short, and none much too long."""
    assert len(delays) == len(expected)
    for delay, least in zip(delays, expected, strict=True):
        assert least <= delay < least + SLOW_S


@contextmanager
def watched(proj: Proj, task_id: str) -> Iterator[list[int]]:
    """Counts all the time how many messages of a task wait; yields the list of all counts."""
    counts: list[int] = []
    done = Event()

    def watch() -> None:
        with store_of_app(proj.app) as store:
            while not done.is_set():
                counts.append(len(store.lookup.get(store.queues.names() or ["celery"], [task_id]).get(task_id, [])))
                time.sleep(0.005)

    thread = Thread(target=watch)
    thread.start()
    try:
        yield counts
    finally:
        done.set()
        thread.join(10)


def error_of(result: Any) -> BaseException:
    """Waits for a task that fails. Returns its error. A raised error would keep the result longer than its server."""
    error = result.get(timeout=30, propagate=False)
    assert isinstance(error, BaseException), error
    return error


def messages(proj: Proj, queue: str) -> list[dict[str, Any]]:
    """Takes all messages out of a queue; their bodies are decoded."""
    found = []
    with proj.connection() as connection:
        channel = connection.default_channel
        while True:
            message = channel.basic_get(queue, no_ack=True)
            if message is None:
                return found
            found.append({"body": message.decode(), "headers": message.headers, "properties": message.properties})
