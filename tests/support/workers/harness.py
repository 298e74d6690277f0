"""Real worker processes of the app in ``proj.py``, and the journal of their tasks."""

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import kombu.pools
import redis
from celery import Celery
from kombu import Connection

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store.layouts import LAYOUT_OF
from tests.support.conditions import until
from tests.support.workers.forked import Forked
from tests.support.workers.held import KEYS

TRANSPORT = "kombu_delayq.transport:Transport"
#: The directory of the apps that the processes run.
APPS = Path(__file__).parents[1] / "apps"


@cache
def _plain_server() -> PrivateRedis:
    server = PrivateRedis(slots=False).start()
    atexit.register(server.close)
    return server


def beside(server: PrivateRedis) -> PrivateRedis:
    """Returns the server for results and notes of an app: its broker, or one with databases if that has hash slots."""
    return _plain_server() if server.slots else server


def _start(args: list[str], environment: dict[str, str], log: str) -> "Forked | subprocess.Popen[bytes]":
    """Starts ``celery -A proj``: forked, unless something happens before the first import, or is read by it."""
    args, env = ["-A", "proj", *args], {**os.environ, **environment}
    if not {"gevent", "eventlet"}.intersection(args) and env.keys().isdisjoint({"REMAP_SIGTERM", "PYTHONPATH"}):
        return Forked("celery", args, APPS, env, log)
    with Path(log).open("ab") as written:
        return subprocess.Popen(
            [sys.executable, "-m", "celery", *args],
            cwd=APPS,
            env=env,
            stdout=written,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


class Worker:
    """A ``celery worker`` process.

    Args:
        environment: Variables on top of the test's own.
        args: Options of ``celery worker``.
        name: Node name before the ``@``.
    """

    def __init__(self, environment: dict[str, str], args: tuple[str, ...], name: str) -> None:
        self.name = name
        self._log = tempfile.NamedTemporaryFile("w+", prefix=f"delayq-{name}-", suffix=".log")  # noqa: SIM115
        self.process = _start(["worker", "-n", f"{name}@%h", "-l", "INFO", *args], environment, self._log.name)

    @property
    def node(self) -> str:
        """Its node name, as remote control knows it."""
        return f"{self.name}@{socket.gethostname()}"

    @property
    def log(self) -> str:
        """Its log so far."""
        return Path(self._log.name).read_text(errors="replace")

    def ready(self) -> "Worker":
        """Waits until it consumes, or has consumed."""

        def is_ready() -> bool:
            has_ended = self.process.poll() is not None
            was_ready = " ready." in self.log  # its first task may have ended it since
            assert was_ready or not has_ended, f"worker {self.name} ended:\n{self.log[-4000:]}"
            return was_ready

        until(is_ready, 90, f"worker {self.name} ready")
        return self

    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL to the worker and its pool, as the kernel's out-of-memory killer would."""
        if self.alive():
            with suppress(ProcessLookupError):  # it has just begun, and is no group yet
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait(10)

    def stop(self, timeout_s: float = 60.0) -> int:
        """Warm shutdown. Returns the exit code."""
        if self.alive():
            self.process.terminate()
        return self.process.wait(timeout_s)

    def close(self) -> None:
        """Ends the process, whatever state it is in."""
        self.kill()
        self._log.close()


@dataclass
class Proj:
    """The app of ``proj.py`` on one broker, its workers, and its journal.

    Attributes:
        server: Holds the broker (db 0).
        conf: Settings of the app, producers' and workers' alike.
        journal_server: Holds the results (db 1) and the journal (db 15): the same server, unless it has hash slots.
        python_path: Where processes find our packages, before all else; empty for where the tests find them.
        app: The app as a producer has it; ``send`` uses it.
    """

    server: PrivateRedis
    conf: dict[str, Any]
    journal_server: PrivateRedis
    python_path: str = ""
    workers: list[Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.app = Celery("producer", set_as_current=False)
        self.app.conf.update(self.conf)
        self.journal = redis.Redis(port=self.journal_server.port, db=15, decode_responses=True)

    def worker(
        self,
        *args: str,
        pool: str = "prefork",
        concurrency: int = 2,
        wait: bool = True,
        gossip: bool = False,
        **conf: Any,
    ) -> Worker:
        """Starts a worker; ``conf`` overrides settings for it alone."""
        quick = () if gossip else ("--without-mingle", "--without-gossip")
        options = ("-P", pool, *(() if pool == "solo" else ("-c", str(concurrency))), *quick, *args)
        worker = Worker(self.environment(**conf), options, f"w{len(self.workers)}")
        self.workers.append(worker)
        return worker.ready() if wait else worker

    def start(self, *args: str, log: str) -> "Forked | subprocess.Popen[bytes]":
        """Starts ``celery -A proj`` with a command that goes on; who calls it ends it."""
        return _start(list(args), self.environment(), log)

    def celery(self, *args: str, code: int = 0) -> str:
        """Runs ``celery -A proj`` with a command, and checks its exit code. Returns its output."""
        return self.program("-m", "celery", "-A", "proj", *args, code=code).stdout

    def program(self, *args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Runs Python in the directory of the apps, with the settings, and checks its exit code."""
        done = subprocess.run(
            [sys.executable, *args],
            cwd=APPS,
            env={**os.environ, **self.environment()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def await_answers(self) -> list[str]:
        """Waits until the workers answer remote control, a moment after they are ready. Returns their node names.

        They are asked from a thread, which has its own queue of replies: kombu counts any message there for the
        ``limit`` of a question, also a late answer to one of these pings.
        """
        nodes = sorted(worker.node for worker in self.workers if worker.alive())

        def answer() -> bool:
            replies = self.app.control.ping(destination=nodes, timeout=2)
            return sorted(node for reply in replies for node in reply) == nodes

        with ThreadPoolExecutor(1) as thread:
            thread.submit(until, answer, what=f"answers of {nodes}").result()
        return nodes

    def connection(self, **options: Any) -> Connection:
        """Makes a plain kombu connection to the broker; ``options`` go before the app's transport options."""
        return Connection(
            self.conf["broker_url"],
            transport=self.conf["broker_transport"],
            transport_options={**self.conf.get("broker_transport_options", {}), **options},
        )

    @property
    def layout(self) -> str:
        """The form in which the app keeps delayed messages."""
        return str(self.conf.get("broker_transport_options", {}).get("layout", "hash"))

    def keys(self, queue: str = "celery") -> list[str]:
        """Returns the names of the keys of a queue's delayed messages: the index, the bodies, two more."""
        return LAYOUT_OF[self.layout].keys(KEYS, queue)

    def lengths(self, queue: str = "celery") -> tuple[int, int]:
        """Counts the entries of a queue's index, and the bodies."""
        client, (index, bodies, *_) = self.server.client(), self.keys(queue)
        return int(client.zcard(index)), int(client.llen(bodies) if self.layout == "redisson" else client.hlen(bodies))

    def delayed(self, queue: str = "celery") -> int:
        """Counts the delayed messages of a queue."""
        with self.connection() as connection:
            return int(connection.default_channel.store.queues.size(queue))

    def send(self, task: str, *args: Any, **options: Any) -> Any:
        """Publishes a task as ``apply_async`` does. Returns the AsyncResult."""
        return self.app.send_task(f"proj.{task}", args, **options)

    def runs(self, **match: Any) -> list[dict[str, Any]]:
        """Returns what the tasks wrote down so far, in order."""
        runs = [json.loads(line) for line in self.journal.lrange("runs", 0, -1)]
        return [run for run in runs if all(run.get(key) == value for key, value in match.items())]

    def await_runs(self, count: int, timeout_s: float = 60.0, **match: Any) -> list[dict[str, Any]]:
        """Waits until at least ``count`` runs are written down."""
        try:
            return until(lambda: found if len(found := self.runs(**match)) >= count else None, timeout_s) or []
        except AssertionError as error:
            logs = "\n".join(f"--- {worker.name}\n{worker.log[-3000:]}" for worker in self.workers)
            raise AssertionError(f"{len(self.runs(**match))} of {count} runs. {error}\n{logs}") from None

    def environment(self, **conf: Any) -> dict[str, str]:
        """Returns the environment with the settings for a process of ``proj.py``; ``conf`` overrides some."""
        path = {"PYTHONPATH": self.python_path} if self.python_path else {}
        return {
            "PROJ_CONF": json.dumps({**self.conf, **conf}),
            "PROJ_JOURNAL_PORT": str(self.journal_server.port),
            **path,
        }

    def close(self) -> None:
        """Ends the workers and the app's connections. Kombu would give these to the next app with the same settings."""
        for worker in self.workers:
            worker.close()
        if self.conf["result_backend"] == "rpc://":
            self.app.backend.result_consumer.stop()  # else it would wait for results for ever
        settings = self.app.connection_for_write()
        for pools in (kombu.pools.producers, kombu.pools.connections):
            pools[settings].force_close_all()
            del pools[settings]
        self.app.close()
        gc.collect()  # results end their subscriptions, which needs the server


#: Makes a Proj; keywords are settings of the app.
MakeProj = Callable[..., Proj]
