"""Pool children, which are forked from a process that runs a transfer worker."""

import subprocess
import sys
from collections import Counter
from datetime import datetime

import pytest

from celery_ext.private_redis import PrivateRedis
from kombu_delayq.keys import Keys
from tests.integration.harness import MakeProj
from tests.waiting import stays

TASKS = 10


def test_tasks_in_short_lived_children_publish_with_a_countdown(make_proj: MakeProj) -> None:
    """Retries with a countdown from children that are forked all the time run once each; only the parent transfers."""
    proj = make_proj()
    worker = proj.worker("--max-tasks-per-child", "1", concurrency=3)
    for _ in range(TASKS):
        proj.send("flaky", 2, 0.3)
    runs = proj.await_runs(3 * TASKS, timeout_s=60)
    stays(lambda: len(proj.runs()) == 3 * TASKS, 1)
    assert Counter(run["retries"] for run in runs) == {0: TASKS, 1: TASKS, 2: TASKS}
    assert len({(run["id"], run["retries"]) for run in runs}) == len(runs)
    assert len({run["pid"] for run in runs}) > TASKS

    for run in (run for run in runs if run["eta"]):
        assert run["at"] >= datetime.fromisoformat(run["eta"]).timestamp()
    lease = str(proj.server.client().get(Keys().lease))
    assert int(lease.split(":")[1]) == worker.process.pid
    assert proj.delayed() == 0


FORKING = """
import os, sys, threading
from kombu import Connection, Consumer, Queue

def consume(released):
    connection = Connection(sys.argv[1], transport="kombu_delayq.transport:Transport")
    Consumer(connection, [Queue("q")], on_message=print).consume()
    transfers = "delayq-transfer" in [thread.name for thread in threading.enumerate()]
    print(os.getpid() == parent, transfers, flush=True)
    if released:
        connection.release()

parent = os.getpid()
consume(sys.argv[2] == "released")
if os.fork():
    os.wait()
else:
    consume(True)
    os._exit(0)
"""


@pytest.mark.parametrize(("parent", "child_transfers"), [("consuming", False), ("released", True)])
def test_a_forked_consumer_transfers_where_its_parent_does_not(
    redis_server: PrivateRedis, parent: str, child_transfers: bool
) -> None:
    """A consumer in a forked process leaves the transfer to its parent, and does it itself once the parent stopped."""
    command = [sys.executable, "-W", "ignore", "-c", FORKING, redis_server.url, parent]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    assert printed.splitlines() == ["True True", f"False {child_transfers}"]
