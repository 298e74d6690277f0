"""The ways to consume that are compared, and their workers."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.journal import Journal
from tests.bench.targets.app import BROKER, OURS, TRANSPORT, make_app
from tests.bench.targets.worker import started

#: Messages sent to Redis in one call.
PUSHED = 200
QUEUE = "celery"
#: An interpreter that has celery-redis-plus, kombu-delayq and Celery. The package needs Python 3.13.
PLUS_PYTHON = os.environ.get("BENCH_PLUS_PYTHON", ".venv-bench-plus/bin/python")


@dataclass(frozen=True, eq=False)
class Kind:
    """A transport and a way to consume.

    Attributes:
        name: Name in the figures.
        transport: ``broker_transport``; empty for stock Celery.
        options: ``broker_transport_options``.
        lists: Whether its queues are lists of messages as stock Celery has them.
        filled: Tasks that wait when its worker starts: more than it begins while it is watched.
    """

    name: str
    transport: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    lists: bool = True
    filled: int = 30_000


STOCK = Kind("stock")
TAKE = Kind("take", OURS, {"consume": "take"})
BRPOP = Kind("brpop", OURS, {"consume": "brpop"})
PLUS = Kind("celery-redis-plus", "celery_redis_plus.transport:Transport", lists=False, filled=8_000)


def plus_missing() -> str:
    """Says why celery-redis-plus cannot be measured here; empty if it can."""
    try:
        subprocess.run([PLUS_PYTHON, "-c", "import celery_redis_plus, kombu_delayq"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "celery-redis-plus is not measured: it needs Python 3.13, which make takes from PLUS_PYTHON"
    return ""


@dataclass(frozen=True)
class Bench:
    """A private Redis, a journal, and what one kind does with them."""

    kind: Kind
    server: PrivateRedis
    journal: Journal
    python: str = sys.executable

    @contextmanager
    def worker(self, *options: str, queues: Sequence[str] = ()) -> Iterator[int]:
        """Runs a worker with further options. Yields its process id when the process has been started."""
        with started(
            self.server.url,
            self.kind.transport,
            self.kind.options,
            *options,
            queues=queues,
            journal=self.journal.path,
            python=self.python,
        ) as pid:
            yield pid

    def fill(self, count: int) -> None:
        """Enqueues tasks that do nothing but note when they begin."""
        if not self.kind.lists:
            env = {**os.environ, BROKER: self.server.url, TRANSPORT: self.kind.transport}
            subprocess.run([self.python, "-m", "tests.bench.targets.app", str(count)], env=env, check=True)
            return
        for page in copies(template(), count):
            self.server.client().lpush(QUEUE, *[message for _, message in page])


@contextmanager
def bench(kind: Kind, python: str = sys.executable) -> Iterator[Bench]:
    """Starts a private Redis and makes an empty journal; ends and removes them."""
    with PrivateRedis() as server, TemporaryDirectory(prefix="delayq-bench-") as directory:
        yield Bench(kind, server, Journal(Path(directory) / "journal"), python)


#: The id of the task in a template.
TASK_ID = "00000000-0000-4000-8000-000000000000"


def template(**options: Any) -> str:
    """Returns a message of ``bench.begin`` as stock Celery publishes it, with ``TASK_ID`` as each of its ids.

    Args:
        **options: Further options of ``apply_async``.
    """
    with PrivateRedis() as server:
        make_app(server.url).tasks["bench.begin"].apply_async((0.0,), task_id=TASK_ID, **options)
        message = json.loads(str(server.client().rpop(QUEUE)))
    message["properties"]["delivery_tag"] = TASK_ID
    return json.dumps(message)


def copies(message: str, count: int) -> Iterator[list[tuple[str, str]]]:
    """Yields pages of ids and messages: copies of a template, each with an id of its own."""
    for start in range(0, count, PUSHED):
        ids = [str(uuid4()) for _ in range(min(PUSHED, count - start))]
        yield [(made, message.replace(TASK_ID, made)) for made in ids]
