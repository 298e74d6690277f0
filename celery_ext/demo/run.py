"""The demo: a private Redis, two real workers, one of them killed, and nothing lost."""

import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic, sleep
from typing import Any

import click

from celery_ext.cli.text import duration
from celery_ext.demo.journal import Arrival, Journal, Verdict
from celery_ext.demo.process import DemoWorker
from celery_ext.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore

#: Countdowns in s: some run before the kill, some in the moments after it, some later, three at once.
COUNTDOWNS = (1, 1.5, 2, 2.5, 3, 3.5, 5.3, 5.5, 5.7, 6, 7, 7.5, 8, 9, 9.5, 10, 10, 10, 11, 12)
#: When the leading worker is killed, in s after sending. Nothing is due just then, so nothing runs in it.
KILL_AT_S = 5.0
#: How long the workers may take to start, and how long the last task may take after its due time, in s.
START_S = 12.0
PATIENCE_S = 3.0
#: How often the screen is brought up to date, in s.
SCREEN_S = 0.1


class Demo:
    """One run against a private server.

    Args:
        server: A running private server.
    """

    QUEUE = "celery"

    def __init__(self, server: PrivateRedis) -> None:
        self._server = server
        self._store = DelayStore(server.client())
        self._journal = Journal(server.client(Journal.DB))
        self._arrivals: list[Arrival] = []
        self._killed = False

    def run(self) -> Verdict:
        """Runs the demo and judges it."""
        with ExitStack() as cleanup:
            workers = [cleanup.enter_context(DemoWorker(name, self._server)) for name in ("alice", "bob")]
            click.echo(f"private Redis on port {self._server.port}; starting the workers alice and bob …")
            _wait_for(lambda: all(worker.is_ready() for worker in workers), START_S)
            self._send()
            self._watch(workers)
        return Verdict(frozenset(range(len(COUNTDOWNS))), tuple(self._arrivals))

    def _send(self) -> None:
        os.environ["DELAYQ_DEMO_BROKER"] = self._server.url
        app: Any = importlib.import_module("celery_ext.demo.app")
        for number, countdown in enumerate(COUNTDOWNS):
            app.remind.apply_async((number,), countdown=countdown)
        app.app.close()
        click.echo(f"sent {len(COUNTDOWNS)} tasks with countdowns from {min(COUNTDOWNS)} s to {max(COUNTDOWNS)} s")
        click.echo(f"{self._waiting()}\n")

    def _watch(self, workers: list[DemoWorker]) -> None:
        start = monotonic()
        while monotonic() - start < COUNTDOWNS[-1] + PATIENCE_S:
            self._show_arrivals()
            self._show_state()
            if monotonic() - start >= KILL_AT_S and not self._killed:
                self._kill_leader(workers)
            if self._killed and len(self._arrivals) >= len(COUNTDOWNS) and not self._store.size(self.QUEUE):
                break
            sleep(SCREEN_S)
        _clear_line()

    def _show_arrivals(self) -> None:
        for arrival in self._journal.read(after=len(self._arrivals)):
            self._arrivals.append(arrival)
            _clear_line()
            countdown = COUNTDOWNS[arrival.number]
            click.echo(
                f"  task {arrival.number:2} ran in {arrival.worker:5}  countdown {countdown:4g} s  "
                f"{arrival.late_ms:6.1f} ms late   {self._waiting()}"
            )

    def _show_state(self) -> None:
        if sys.stdout.isatty():
            _clear_line()
            click.echo(f"  {self._waiting()}; {len(self._arrivals)} arrived", nl=False)

    def _waiting(self) -> str:
        stats = self._store.stats(self.QUEUE)
        if stats.next_due_ms is None:
            return "none wait in Redis"
        return f"{stats.delayed:2} wait in Redis, next due {duration((stats.next_due_ms - stats.now_ms) / 1000)}"

    def _kill_leader(self, workers: list[DemoWorker]) -> None:
        leader = self._store.leader()
        victim = next((worker for worker in workers if leader and f":{worker.pid}:" in leader), workers[0])
        victim.kill()
        self._killed = True
        _clear_line()
        click.echo(f"  --- kill -9 of {victim.name}, which led the transfer; {self._waiting()} ---")


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """Lets SIGTERM end the demo as Ctrl-C does, so that its processes end with it."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _wait_for(condition: Callable[[], bool], timeout_s: float) -> None:
    deadline = monotonic() + timeout_s
    while not condition():
        if monotonic() > deadline:
            raise click.ClickException(f"the workers did not start within {timeout_s:g} s")
        sleep(SCREEN_S)


def _clear_line() -> None:
    if sys.stdout.isatty():
        click.echo("\r\033[K", nl=False)
