"""What memory a worker gains by the tasks that it runs, and by the connections that it loses."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import NamedTuple

import click

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets.consume import PUSHED, QUEUE, TAKE, Worker, copies, template
from tests.bench.targets.report import Figure
from tests.support.conditions import until

#: Tasks of a run, and connections lost meanwhile; the same for a quick one.
FULL, QUICK = (1_000_000, 500), (100_000, 50)
#: Parts of a run, after each of which the worker is looked at.
PARTS = 10
#: Tasks before the first look: what is imported and connected late has been by then.
WARM = 20_000
#: Tasks that wait at a time; and how long it may take until the first of them runs again after a loss, in s.
WAITING, BACK_S = 4_000, 60


class Seen(NamedTuple):
    """A worker after so many tasks and lost connections, and s: its resident memory in MB, and its threads."""

    tasks: int
    lost: int
    after_s: float
    rss_mb: float
    threads: int


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Runs tasks by one worker that keeps its connections, and by one that loses them again and again."""
    tasks, lost = QUICK if quick else FULL
    for count, what, most in ((0, "", 2), (lost, f" and {lost} lost connections", 10)):
        with PrivateRedis() as own:
            first, *_, last = look(own, tasks, count)
        note = f"pool threads; {first.rss_mb:.1f} MB and {first.threads} threads at first, {last.threads} at last"
        yield Figure(
            f"memory a worker gains by {tasks:,} tasks{what}", last.rss_mb - first.rss_mb, "MB", most, note=note
        )


def look(server: PrivateRedis, tasks: int, lost: int) -> Iterator[Seen]:
    """Yields what a worker is when it has warmed up, and after each of ``PARTS`` parts of its tasks.

    Args:
        server: Its Redis, of which nobody else has connections.
        tasks: How many tasks it runs.
        lost: How often Redis closes all of its connections meanwhile, at even distances.
    """
    message, closed = template(), 0
    with TemporaryDirectory(prefix="delayq-bench-") as folder:
        worker = Worker(TAKE, server, Path(folder), "threads")
        try:
            _run(worker, message, WARM)
            begun = monotonic()
            yield Seen(0, 0, 0, worker.rss_mb(), worker.threads())
            for part in range(1, PARTS + 1):
                while closed < lost * part // PARTS:
                    closed += 1
                    _run(worker, message, WARM + tasks * closed // lost)
                    for kind in ("normal", "pubsub"):
                        worker.client.execute_command("CLIENT", "KILL", "TYPE", kind)
                _run(worker, message, WARM + tasks * part // PARTS + closed)
                yield Seen(tasks * part // PARTS, closed, monotonic() - begun, worker.rss_mb(), worker.threads())
        finally:
            worker.close()


def _run(worker: Worker, message: str, count: int) -> None:
    """Keeps tasks waiting until a worker has begun so many in all."""
    while (ran := worker.journal.count()) < count:
        if worker.client.llen(QUEUE) < WAITING:
            for page in copies(message, WAITING):
                worker.client.lpush(QUEUE, *page)
        until(lambda ran=ran: worker.journal.count() >= min(ran + PUSHED, count), BACK_S, "a worker runs tasks")


@click.command()
@click.option("--tasks", default=FULL[0], show_default=True, help="How many tasks run.")
@click.option("--lost", default=FULL[1], show_default=True, help="How often all connections are lost meanwhile.")
def main(tasks: int, lost: int) -> None:
    """Prints the memory and the threads of a worker of the pool threads, part by part.

    The worker has the environment of this command, such as MALLOC_ARENA_MAX.
    """
    click.echo(f"{'tasks':>9} {'lost':>5} {'s':>6} {'MB':>6} {'threads':>8}")
    with PrivateRedis() as server:
        for seen in look(server, tasks, lost):
            click.echo(f"{seen.tasks:>9,} {seen.lost:>5} {seen.after_s:>6.0f} {seen.rss_mb:>6.1f} {seen.threads:>8}")


if __name__ == "__main__":
    main(prog_name="python -m tests.bench.targets.memory")
