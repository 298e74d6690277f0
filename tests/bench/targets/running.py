"""What a running task pays to know whether it is to stop, and how many coroutines tasks run a second."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median
from tempfile import TemporaryDirectory
from threading import Thread
from time import monotonic
from typing import Any

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets.app import BROKER
from tests.bench.targets.report import Figure
from tests.support.conditions import until

#: Looks of a task, and tasks.
LOOKS, TASKS = 200_000, 5
#: Fetches; threads that fetch; how long each answer takes, in s.
FETCHES, THREADS, ANSWER_S = 1_000, 50, 0.05


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Lets tasks look in a worker with threads, and in one with processes."""
    os.environ[BROKER] = server.url
    from tests.bench.targets import running_tasks as tasks  # its app is on this broker

    for pool in ("threads", "prefork"):
        with worker(server, pool):
            found = [tasks.look.delay(LOOKS // (10 if quick else 1)).get(timeout=60) for _ in range(TASKS)]
        yield Figure(f"cancelled() in a task, pool {pool}", median(each for _, each in found), "µs", 1.0)
        yield Figure(f"the first cancelled() of a task, pool {pool}", median(first for first, _ in found), "µs")
    slow, count = SlowServer(), FETCHES // (4 if quick else 1)
    for pool, size in (("threads", THREADS), ("prefork", 2)):
        ways = (tasks.fetch_in_loop, tasks.fetch_in_own_loop, tasks.fetch)
        with worker(server, pool, size):
            for way in ways:
                some = count if pool == "threads" and way is not tasks.fetch_in_own_loop else count // 20
                yield Figure(
                    f"{way.name.rpartition('.')[2]}, {size} in the pool {pool}", slow.rate(way, some), "tasks/s"
                )
    yield from _queries(500 if quick else 3_000)


def _queries(count: int) -> Iterator[Figure]:
    """Asks Django's ORM for rows of SQLite from ten threads, with coroutines in the loop and without."""
    import django
    from django.conf import settings

    with TemporaryDirectory(prefix="delayq-bench-") as folder, ThreadPoolExecutor(10) as threads:
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{folder}/db"}})
        django.setup()
        from django.db import connection, models

        from tests.bench.targets.running_tasks import in_loop

        class Order(models.Model):
            class Meta:
                app_label = "bench"

        with connection.schema_editor() as schema:
            schema.create_model(Order)
        Order.objects.create(pk=1)

        @in_loop
        async def aget(_: int) -> None:
            await Order.objects.aget(pk=1)

        for name, get in (("aget() in the loop", aget), ("get()", lambda _: Order.objects.get(pk=1))):
            list(threads.map(get, range(20)))
            begun = monotonic()
            list(threads.map(get, range(count)))
            yield Figure(f"Django's {name}, 10 threads", count / (monotonic() - begun), "queries/s")


class SlowServer:
    """An HTTP server whose answers take ``ANSWER_S``."""

    def __init__(self) -> None:
        self.answers = 0
        self.loop = asyncio.new_event_loop()
        made = self.loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{made.sockets[0].getsockname()[1]}/"
        Thread(target=self.loop.run_forever, daemon=True).start()

    def rate(self, way: Any, count: int) -> float:
        """Returns how many tasks of a kind fetch in a second."""
        way.delay(self.url)  # the first one imports and connects
        begun = self.answers
        until(lambda: self.answers > begun, 60)
        begun, at = self.answers, monotonic()
        for _ in range(count):
            way.delay(self.url)
        until(lambda: self.answers >= begun + count, 300)
        return count / (monotonic() - at)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await asyncio.sleep(ANSWER_S)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                self.answers += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@contextmanager
def worker(server: PrivateRedis, pool: str, concurrency: int = 1) -> Iterator[None]:
    """Runs a worker of the app in ``running_tasks.py``."""
    command = ["celery", "-A", "tests.bench.targets.running_tasks", "worker", "-l", "ERROR", "--pool", pool]
    process = subprocess.Popen(
        [sys.executable, "-m", *command, "--concurrency", str(concurrency)],
        env={**os.environ, BROKER: server.url, "PYTHONWARNINGS": "ignore"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
