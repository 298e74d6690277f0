"""Runs the demo: a private Redis and two real workers.

They serve two tenants; then one of them is killed, a task is retried by its chain, and one is cancelled.
"""

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self

import click

from celery_ext import DelayChain, cancel
from celery_ext.connection import open_store
from celery_ext.delays import in_words
from celery_ext.demo.arrivals import Arrival, Arrivals, Verdict
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.demo.tenants import BIG, SMALL, TASK_S, Tenants

#: How long a worker may take to end, in s.
STOP_S = 5.0


class DemoWorker:
    """A ``celery worker`` of the demo's app, in a process group of its own.

    Args:
        name: Node name before the ``@``.
        server: The broker. The worker's log is a file in the server's directory.
        queues: What it consumes.
    """

    def __init__(self, name: str, server: PrivateRedis, queues: Sequence[str] = ("celery",)) -> None:
        self.name = name
        self._log = server.directory / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "celery", "-A", "celery_ext.demo.app", "worker"),
                    *("--hostname", f"{name}@%h", "--concurrency", "1", "--loglevel", "INFO"),
                    *("--queues", ",".join(queues), "--without-mingle", "--without-gossip"),
                ],
                env={
                    **os.environ,
                    "DELAYQ_DEMO_BROKER": server.url,
                    "DELAYQ_DEMO_ARRIVALS": server.url_of(Arrivals.DB),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    def is_ready(self) -> bool:
        """Whether the worker consumes. If the worker has ended instead, the demo ends with its log."""
        log = self._log.read_text(errors="replace")
        if self._process.poll() is not None:
            raise click.ClickException(f"worker {self.name} ended:\n{log[-2000:]}")
        return " ready." in log

    def kill(self) -> None:
        """Sends SIGKILL to the worker and its pool."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(STOP_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()


#: Countdowns in s: some run before the kill, some in the moments after it, some later, three at once.
COUNTDOWNS = (1, 1.5, 2, 2.5, 3, 3.5, 5.3, 5.5, 5.7, 6, 7, 7.5, 8, 9, 9.5, 10, 10, 10, 11, 12)
#: Countdown of the task that is cancelled, and when the demo cancels it, in s after sending.
CANCELLED_COUNTDOWN, CANCEL_AT_S = 8.0, 4.2
#: Numbers of the task with a delay chain and of the task that is cancelled. Those of ``COUNTDOWNS`` come first.
CHAINED, CANCELLED = len(COUNTDOWNS), len(COUNTDOWNS) + 1
#: When the leading worker is killed, in s after sending. Nothing is due just then, so no task runs in that worker.
KILL_AT_S = 5.0
#: A worker is killed only if nothing is due within this time in ms: on a busy machine a task takes a moment.
QUIET_MS = 150
#: How long the workers may take to start, and how long the last task may take after its due time, in s.
START_S = 30.0
PATIENCE_S = 15.0
#: How often the screen is brought up to date, in s.
SCREEN_S = 0.1


class Demo:
    """One run against a private server.

    Args:
        server: A running private server.
    """

    QUEUE = "celery"

    def __init__(self, server: PrivateRedis) -> None:
        os.environ["DELAYQ_DEMO_BROKER"] = server.url
        self._app: Any = importlib.import_module("celery_ext.demo.app")
        self._chain = DelayChain.parse(self._app.CHAIN)
        self._server = server
        self._store = open_store(self._app.app.connection_for_read())
        self._kept = Arrivals(server.client(Arrivals.DB))
        self._arrivals: list[Arrival] = []

    def run(self) -> Verdict:
        """Runs the demo and judges it."""
        with ExitStack() as cleanup:
            workers = [cleanup.enter_context(DemoWorker(name, self._server)) for name in ("alice", "bob")]
            click.echo(f"private Redis on port {self._server.port}; starting the workers alice and bob …")
            _wait_for(lambda: all(worker.is_ready() for worker in workers), START_S)
            cleanup.callback(self._app.app.close)
            self._show_tenants()
            to_cancel = self._send()
            acts = [(CANCEL_AT_S, lambda: self._cancel(to_cancel)), (KILL_AT_S, lambda: self._kill_leader(workers))]
            self._watch(acts)
        return Verdict(frozenset(range(len(COUNTDOWNS))), tuple(self._arrivals), self._chain, CHAINED, CANCELLED)

    def _show_tenants(self) -> None:
        """Shows how long a small tenant waits for a big one, without limits by key and with them."""
        click.echo(f"a big tenant sends {BIG} tasks of {TASK_S:g} s, and after it a small one {SMALL}:")
        rows = Tenants(self._server.client(Arrivals.DB)).rows(self._app.convert)
        heads = ["", "without limits", 'limits={"tenant": {}}']
        click.echo(
            "\n".join(f"  {what:28}{free:18}{limited}".rstrip() for what, free, limited in [heads, *rows]) + "\n"
        )

    def _send(self) -> str:
        """Sends the tasks. Returns the id of the task to cancel."""
        remind = self._app.remind
        for number, countdown in enumerate(COUNTDOWNS):
            remind.apply_async((number,), countdown=countdown)
        click.echo(f"sent {len(COUNTDOWNS)} tasks with countdowns from {min(COUNTDOWNS)} s to {max(COUNTDOWNS)} s")
        self._app.notify.delay(CHAINED)
        click.echo(f"sent task {CHAINED}, which fails {len(self._chain)} times, with the delay chain {self._chain}")
        to_cancel = str(remind.apply_async((CANCELLED,), countdown=CANCELLED_COUNTDOWN).id)
        click.echo(f"sent task {CANCELLED}, which will be cancelled, with a countdown of {CANCELLED_COUNTDOWN:g} s")
        click.echo(f"{self._waiting()}\n")
        return to_cancel

    def _watch(self, acts: list[tuple[float, Callable[[], None]]]) -> None:
        """Shows what happens until all tasks have run, and does each act at its time in s."""
        start = monotonic()
        expected = len(COUNTDOWNS) + len(self._chain) + 1
        while monotonic() - start < COUNTDOWNS[-1] + PATIENCE_S:
            self._show_arrivals()
            self._show_state()
            if acts and monotonic() - start >= acts[0][0] and self._is_quiet():
                acts.pop(0)[1]()
            if not acts and len(self._arrivals) >= expected and not self._store.queues.size(self.QUEUE):
                break
            sleep(SCREEN_S)
        self._show_arrivals()
        _clear_line()

    def _is_quiet(self) -> bool:
        """Whether no worker has a task, or gets one within ``QUIET_MS``.

        The time since the start does not show that: on a busy machine tasks run late.
        """
        stats = self._store.queues.stats(self.QUEUE)
        soon = stats.next_due_ms is not None and stats.next_due_ms - stats.now_ms < QUIET_MS
        return not (soon or stats.ready or self._store.client.hlen("unacked"))

    def _show_arrivals(self) -> None:
        for arrival in self._kept.read(after=len(self._arrivals)):
            self._arrivals.append(arrival)
            what, why = self._in_words(arrival)
            _clear_line()
            click.echo(
                f"  task {arrival.number:2} {what:9} in {arrival.worker:5}  {why:17}"
                f"{arrival.late_ms:6.1f} ms late   {self._waiting()}"
            )

    def _in_words(self, arrival: Arrival) -> tuple[str, str]:
        """Returns what a task did when it arrived, and what it had waited for."""
        if arrival.number != CHAINED:
            countdown = CANCELLED_COUNTDOWN if arrival.number == CANCELLED else COUNTDOWNS[arrival.number]
            return "ran", f"countdown {countdown:4g} s"
        waited = f"step of {self._chain[arrival.retries - 1].total_seconds():g} s" if arrival.retries else "at once"
        return ("failed" if arrival.retries < len(self._chain) else "succeeded"), waited

    def _show_state(self) -> None:
        if sys.stdout.isatty():
            _clear_line()
            click.echo(f"  {self._waiting()}; {len(self._arrivals)} arrived", nl=False)

    def _waiting(self) -> str:
        stats = self._store.queues.stats(self.QUEUE)
        if stats.next_due_ms is None:
            return "none wait in Redis"
        return f"{stats.delayed:2} wait in Redis, next due {in_words((stats.next_due_ms - stats.now_ms) / 1000)}"

    def _cancel(self, task_id: str) -> None:
        outcome = cancel(self._app.app, task_id)
        _clear_line()
        click.echo(f"  --- cancel of task {CANCELLED}: {outcome}; {self._waiting()} ---")

    def _kill_leader(self, workers: list[DemoWorker]) -> None:
        leader = self._store.leases.leader()
        victim = next((worker for worker in workers if leader and f":{worker.pid}:" in leader), workers[0])
        victim.kill()
        _clear_line()
        click.echo(f"  --- kill -9 of {victim.name}, which led the transfer; {self._waiting()} ---")


def _wait_for(condition: Callable[[], bool], timeout_s: float) -> None:
    deadline = monotonic() + timeout_s
    while not condition():
        if monotonic() > deadline:
            raise click.ClickException(f"the workers did not start within {timeout_s:g} s")
        sleep(SCREEN_S)


def _clear_line() -> None:
    if sys.stdout.isatty():
        click.echo("\r\033[K", nl=False, color=True)
