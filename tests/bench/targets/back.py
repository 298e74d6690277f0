"""How soon what a killed worker held runs again in another worker, which is as if on another machine."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from time import sleep, time
from typing import Any

import psutil
from celery import Celery

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.transfer.dead import READ_S
from tests.bench.targets.app import BROKER, LIMITS, OURS
from tests.bench.targets.report import Figure
from tests.support.conditions import until
from tests.support.workers.held import CONSUMED, UNACKED

POOLS = ("prefork", "threads", "solo", "gevent")
#: The median and the longest time that are promised, in s. Messages in a worker's hands when it is killed, at most.
MEDIAN_S, LONGEST_S, HELD = 4.0, 7.0, 8
#: The list in which runs are noted, and the queue.
RUNS, QUEUE = "bench:runs", "held"
#: The worker that is killed, and the one in which its messages run again.
DIES, LIVES = "dies@bench", "lives@bench"


def make_app(url: str) -> Celery:
    """Makes the app, with late acknowledgements and everything else at its default."""
    app = Celery("back", broker=url, set_as_current=False)
    app.conf.update(broker_transport=OURS, task_acks_late=True)
    if LIMITS in os.environ:
        app.conf.broker_transport_options = {"limits": json.loads(os.environ[LIMITS])}

    @app.task(bind=True, name="hold", shared=False)
    def hold(self: Any) -> None:
        again = bool(self.request.delivery_info["redelivered"])
        with app.connection_for_write() as connection:
            connection.default_channel.client.rpush(RUNS, json.dumps([again, time()]))
        if not again and self.request.hostname == DIES:
            sleep(600)

    return app


if BROKER in os.environ:
    app = make_app(os.environ[BROKER])


@contextmanager
def worker(
    server: PrivateRedis, app: Celery, name: str, pool: str, queue: str, limits: Any = None
) -> Iterator[psutil.Popen]:
    """Runs a worker, from when it is up. limits: the transport option."""
    options = ["-n", name, "-P", pool, "-c", "2", "-Q", queue, "-l", "ERROR"]
    process = psutil.Popen(
        [sys.executable, "-m", "celery", "-A", "tests.bench.targets.back", "worker", *options],
        env={**os.environ, BROKER: server.url, "PYTHONWARNINGS": "ignore"}
        | ({LIMITS: json.dumps(limits)} if limits else {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until(lambda: name in str(app.control.ping(timeout=0.5)), 60, f"the worker {name} is up")
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Kills workers of each pool that hold messages, one after the other, while another worker lives."""
    kills, app, client = 5 if quick else 20, make_app(server.url), server.client()
    found = {}
    with worker(server, app, LIVES, "threads", "other"):
        for pool in POOLS:
            found[pool] = [_return_s(server, client, app, pool) for _ in range(kills)]
    found["threads, of the worker that led"] = [_return_of_leader_s(server, client, app) for _ in range(kills)]
    for what, took_s in found.items():
        note = f"{kills} kills, until all of up to {HELD} messages run again; stock: visibility_timeout, 3600 s"
        yield Figure(f"kill to run again, {what}, median", median(took_s), "s", MEDIAN_S, note=note)
        yield Figure(f"kill to run again, {what}, longest", max(took_s), "s", LONGEST_S)


def _return_s(server: PrivateRedis, client: Any, app: Celery, pool: str) -> float:
    """Returns the time from the kill of a worker until all of its messages have begun again, in s."""
    with worker(server, app, DIES, pool, QUEUE) as doomed:
        return _killed(client, app, doomed)


def _return_of_leader_s(server: PrivateRedis, client: Any, app: Celery) -> float:
    """Returns the same for the worker whose transfer worker leads, as it has begun first."""
    with worker(server, app, DIES, "threads", QUEUE) as doomed, worker(server, app, LIVES, "threads", "other"):
        return _killed(client, app, doomed)


def _killed(client: Any, app: Celery, doomed: psutil.Popen) -> float:
    client.delete(RUNS)
    for _ in range(HELD):
        app.send_task("hold", queue=QUEUE)
    until(lambda: client.llen(RUNS), 30, "a task runs")
    until(lambda: str(client.hvals(CONSUMED)).count('"subscribed": true') == 2, 30, "both workers have subscribed")
    os.killpg(doomed.pid, signal.SIGSTOP)  # it takes no more, and its connections stay
    for name, about in client.hgetall(CONSUMED).items():
        client.hset(CONSUMED, name, json.dumps({**json.loads(about), "process": "elsewhere"}))
    sleep(READ_S)  # until the other has read that
    held = client.hlen(UNACKED)
    app.control.add_consumer(QUEUE, destination=[LIVES], reply=True)
    doomed.kill()
    killed = time()
    until(lambda: len(_again(client)) >= held, 120, "what it held runs again")
    took_s = max(_again(client)[:held]) - killed
    until(lambda: not client.exists(UNACKED, QUEUE), 60, "the queue is empty")
    app.control.cancel_consumer(QUEUE, destination=[LIVES], reply=True)
    return took_s


def _again(client: Any) -> list[float]:
    return sorted(at for again, at in map(json.loads, client.lrange(RUNS, 0, -1)) if again)
