"""A queue is moved between the two layouts while tasks are published in both, delivered, and run."""

import signal
import struct
import subprocess
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.commands.shell import BIN, run
from tests.support.conditions import until
from tests.support.workers.backlogs import fill
from tests.support.workers.harness import MakeProj, Proj

#: Tasks that wait all the time, so that a conversion takes its time; and most that wait besides.
FAR, NEAR = 6000, 300


class Publishers:
    """Publish tasks that are due soon, each in the layout of its app, until they are stopped.

    Args:
        proj: Whose journal tells how many have run.
        apps: One for each publisher.
    """

    def __init__(self, proj: Proj, *apps: Proj) -> None:
        self.due: dict[str, float] = {}
        self._proj = proj
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._publish, args=(n, app)) for n, app in enumerate(apps)]

    def __enter__(self) -> "Publishers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _publish(self, number: int, app: Proj) -> None:
        count = 0
        while not self._stop.is_set():
            # No more than a slow worker can run soon.
            until(lambda: self._stop.is_set() or len(self.due) < self._proj.journal.llen("runs") + NEAR, 100)
            count += 1
            name, delay = f"p{number}-{count}", 0.2 + count % 9 / 10
            self.due[name] = time.time() + delay
            app.send("record", countdown=delay, task_id=name, priority=count % 4 * 3)


def convert_and_break_off(server: PrivateRedis, queue: str, to: str, moved: int) -> None:
    """Starts a conversion, and kills it when it has moved so many; then converts the rest."""
    command = [BIN / "delayq", "--broker", server.url, "convert", queue, "--to", to]
    client = server.client()
    key = {"hash": f"delayq:{{{queue}}}:due", "redisson": f"redisson_delay_queue_timeout:{{{queue}}}"}[to]
    before = client.zcard(key)
    process = subprocess.Popen(command)
    until(lambda: client.zcard(key) >= before + moved, what="some are moved")
    process.send_signal(signal.SIGKILL)
    process.wait()
    run(server, "convert", queue, "--to", to)


@pytest.mark.timeout(600)  # on a busy machine, whose every process takes part
def test_a_queue_in_use_is_moved_there_and_back(make_proj: MakeProj) -> None:
    """While apps of both layouts publish and a worker runs, each task runs once, none early; none that waits is lost.

    The conversions are killed half way and run again.
    """
    proj, listed = make_proj(), make_proj(broker_transport_options={"layout": "redisson"})
    later = datetime.now(UTC) + timedelta(hours=1)
    far = [f"far{n}" for n in range(FAR)]
    fill(proj, "celery", ((each, later + timedelta(seconds=n // 3)) for n, each in enumerate(far)))
    proj.worker(concurrency=2)
    with Publishers(proj, proj, listed) as published:
        until(lambda: proj.journal.llen("runs") > 20, 60, "tasks run")
        for to in ("redisson", "hash", "redisson"):
            convert_and_break_off(proj.server, "celery", to, FAR // 4)
    proj.await_runs(len(published.due), 100)
    until(lambda: proj.delayed() == FAR)
    assert Counter(each["id"] for each in proj.runs()) == Counter([*published.due])
    assert not [each for each in proj.runs() if each["at"] < published.due[each["id"]] - 0.05]
    run(proj.server, "convert", "celery", "--to", "hash")
    with proj.connection() as connection:
        store = connection.default_channel.store
        assert store.client.zcard(store.keys.timeout("celery")) == 0
        assert Counter(store.client.hkeys(store.keys.bodies("celery"))) == Counter(each.encode() for each in far)
        page = store.scan.browse("celery", count=100)
    assert [each.id for each in page.messages] == far[: len(page.messages)]


def test_what_is_due_while_it_is_moved_runs_in_time(make_proj: MakeProj) -> None:
    """Tasks that become due right after they came into a form that nobody used run, and none before it is due."""
    proj = make_proj()
    proj.worker(pool="solo")
    due = datetime.now(UTC) + timedelta(seconds=2)
    tasks = {f"t{n}": due + timedelta(milliseconds=10 * n + 0.5) for n in range(100)}
    fill(proj, "celery", tasks.items())
    run(proj.server, "convert", "celery", "--to", "redisson")
    proj.await_runs(100)
    assert Counter(each["id"] for each in proj.runs()) == Counter([*tasks])
    assert not [each for each in proj.runs() if each["at"] < tasks[each["id"]].timestamp()]


@pytest.mark.parametrize("own", ["hash", "redisson"])
def test_a_worker_tells_once_of_the_other_form_and_delivers_both(make_proj: MakeProj, own: str) -> None:
    """It logs one warning, with the command that mends it; tasks published in either layout run, also by run-now."""
    forms = sorted(("hash", "redisson"), key=own.__ne__)
    proj, other = (make_proj(broker_transport_options={"layout": each}) for each in forms)
    other.send("record", countdown=1, task_id="before")
    worker = proj.worker(pool="solo")
    proj.await_runs(1)
    for n in range(3):
        (other if n % 2 else proj).send("record", countdown=0.5 + n / 10, task_id=f"t{n}")
    other.send("record", countdown=3600, task_id="now")
    run(proj.server, "run-now", "now")
    proj.await_runs(5)
    assert Counter(each["id"] for each in proj.runs()) == Counter(["before", "t0", "t1", "t2", "now"])
    [form] = {"hash", "redisson"} - {own}
    assert worker.log.count("has delayed messages in the layout") == 1
    assert f"queue 'celery' has delayed messages in the layout '{form}'" in worker.log
    assert f"`delayq convert celery --to {own}`" in worker.log


def test_a_queue_that_only_another_client_fills_is_known_and_delivered(make_proj: MakeProj) -> None:
    """A worker finds what Redisson has offered to the queue that it consumes, though nobody told it, and runs it."""
    proj = make_proj()
    due = time.time() + 3
    proj.send("record", eta=datetime.fromtimestamp(due, UTC), task_id="jvm")
    with proj.connection() as connection:
        store = connection.default_channel.store
        [[message]] = store.lookup.cancel(["celery"], ["jvm"]).values()
        entry = b"\x08" + bytes(8) + struct.pack("<Q", len(message.body)) + message.body
        store.client.zadd(store.keys.timeout("celery"), {entry: int(due * 1000) + 1})
        store.client.rpush(store.keys.listed("celery"), entry)
        store.client.delete(store.keys.queues)
        proj.worker(pool="solo")
        [ran] = proj.await_runs(1)
        assert (ran["id"], ran["at"] >= due) == ("jvm", True)
        assert store.queues.names() == ["celery"]
