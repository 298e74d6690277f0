"""Counts what a planned failover behind Sentinel repeats and loses, with workers and publishers at work.

python -m tests.bench.targets.failover
"""

import random
import time
from collections import Counter
from collections.abc import Sequence
from threading import Event, Thread

import click
import kombu.exceptions
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store.keys import Keys
from tests.support.conditions import until
from tests.support.servers.sentinels import MASTER_NAME, Sentinels
from tests.support.workers.harness import Proj

PUBLISHERS, WORKERS = 2, 2
#: Pause between two tasks of a publisher, in s; longest delay, in s; share of tasks without a delay.
EVERY_S, LONGEST_S, AT_ONCE = 0.01, 8.0, 0.2
#: How long publishers go on before the failover, and after it: the old primary takes writes for 11 s after it.
BEFORE_S, AFTER_S = 4.0, 16.0
#: How long after the last due time no further task is expected.
QUIET_S = 5.0


class Publisher(Thread):
    """Publishes tasks until it is stopped.

    Attributes:
        sent: When each task was sent, and its delay in s, by id. Only tasks whose publishing raised no error.
        raised: Number of tasks whose publishing raised an error.
    """

    def __init__(self, proj: Proj, stopping: Event) -> None:
        super().__init__()
        self.sent: dict[str, tuple[float, float]] = {}
        self.raised = 0
        self._proj = proj
        self._stopping = stopping

    def run(self) -> None:
        """Publishes until it is stopped."""
        while not self._stopping.wait(EVERY_S):
            at = time.time()
            delay_s = 0.0 if random.random() < AT_ONCE else random.uniform(0.1, LONGEST_S)
            try:
                sent = self._proj.send("record", **({"countdown": delay_s} if delay_s else {}))
            except (kombu.exceptions.OperationalError, redis.RedisError):
                self.raised += 1
            else:
                self.sent[sent.id] = at, delay_s


def run(min_replicas: int, stock: bool) -> str:
    """Runs tasks through a failover. Returns what became of them, in words."""
    with Sentinels() as sentinels, PrivateRedis() as journal:
        for server in (sentinels.master, sentinels.replica):
            server.client().config_set("min-replicas-max-lag", 10)
        sentinels.master.client().config_set("min-replicas-to-write", min_replicas)
        proj = Proj(
            sentinels.master,
            {
                "broker_url": sentinels.urls("sentinel" if stock else "delayq+sentinel"),
                "broker_transport": None,
                "broker_transport_options": {"master_name": MASTER_NAME},
                "broker_connection_retry_on_startup": True,
                "task_ignore_result": True,
            },
            journal,
        )
        try:
            for _ in range(WORKERS):
                proj.worker()
            return _report(*_load(proj, sentinels), proj, sentinels.replica.client())
        finally:
            proj.close()


def _load(proj: Proj, sentinels: Sentinels) -> tuple[Sequence[Publisher], float]:
    stopping = Event()
    publishers = [Publisher(proj, stopping) for _ in range(PUBLISHERS)]
    for publisher in publishers:
        publisher.start()
    time.sleep(BEFORE_S)
    failed_over = time.time()
    sentinels.fail_over()
    time.sleep(AFTER_S)
    stopping.set()
    for publisher in publishers:
        publisher.join()
    return publishers, failed_over


def _report(publishers: Sequence[Publisher], failed_over: float, proj: Proj, primary: redis.Redis) -> str:
    sent = {task: when for publisher in publishers for task, when in publisher.sent.items()}
    end = max(at + delay_s for at, delay_s in sent.values())
    until(lambda: time.time() > end + QUIET_S, LONGEST_S + 2 * QUIET_S)
    due = Keys().stored("celery", "hash")[0]
    until(lambda: not primary.zcard(due) and not primary.llen("celery"), 120, "all is run")
    time.sleep(1)
    runs = Counter(run["id"] for run in proj.runs())
    twice = sum(runs[task] > 1 for task in sent)
    never = [sent[task] for task in sent if not runs[task]]
    before = sum(at < failed_over for at, _ in never)
    delayed = sum(delay_s > 0 for _, delay_s in never)
    raised = sum(publisher.raised for publisher in publishers)
    alive = sum(worker.alive() for worker in proj.workers)
    return (
        f"{len(sent):,} sent, {raised} publishes raised; {twice:,} ran twice; "
        f"{len(never)} never ran ({delayed} of them delayed, {before} sent before the failover); "
        f"{alive} of {WORKERS} workers alive"
    )


@click.command()
@click.option("--runs", default=1, show_default=True, help="How often each case is measured.")
@click.option("--stock", is_flag=True, help="Also with stock kombu.")
@click.option("--min-replicas", type=int, multiple=True, default=(0, 1), show_default=True)
def main(runs: int, stock: bool, min_replicas: tuple[int, ...]) -> None:
    """Prints what became of the tasks, without and with ``min-replicas-to-write 1``."""
    for replicas in min_replicas:
        for is_stock in (False, True) if stock else (False,):
            for _ in range(runs):
                name = "stock kombu" if is_stock else "kombu-delayq"
                click.echo(f"{name}, min-replicas-to-write {replicas}: {run(replicas, is_stock)}")


if __name__ == "__main__":
    main(prog_name="python -m tests.bench.targets.failover")
