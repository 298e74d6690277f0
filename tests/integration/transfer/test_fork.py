"""Pool children, which are forked from a process that runs a transfer worker."""

import subprocess
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import stays, until
from tests.support.workers.harness import MakeProj
from tests.support.workers.standalone import lease_holder

pytestmark = pytest.mark.wide

TASKS = 10


@pytest.mark.journey
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
    until(lambda: lease_holder(proj.server) == worker.process.pid)  # its lease may have ended for a moment
    assert proj.delayed() == 0


#: A program whose parent consumes, and that goes on as told: prints whether the process transfers, and what it gets.
FORKING = """
import multiprocessing, os, sys, threading
from kombu import Connection, Consumer, Queue

def connected():
    connection = Connection(sys.argv[1], transport="kombu_delayq.transport:Transport")
    Consumer(connection, [Queue("q")], callbacks=[lambda body, message: got.append(body)], no_ack=True).consume()
    return connection

def transfers():
    return sum(thread.name == "delayq-transfer" and thread.is_alive() for thread in threading.enumerate())

def drain(connection):
    try:
        connection.drain_events(timeout=0.2)
    except TimeoutError:
        pass

def receive(connection):
    connection.Producer().publish("late", routing_key="q", serializer="json", headers={}, DelaySeconds=1)
    while not got:
        drain(connection)
    print(transfers(), *got, flush=True)

def wait_for_messages(connection):
    while not connection.default_channel.client.info("clients")["blocked_clients"]:
        drain(connection)

def consume_anew():
    receive(connected())

got, how = [], sys.argv[2]
parents = connected()
assert transfers() == 1
if how == "released":
    parents.release()
if how == "multiprocessing":
    child = multiprocessing.get_context("fork").Process(target=consume_anew)
    child.start()
    child.join()
elif how == "daemon":  # the parent ends, and so does the child that its own child is to outlive
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    receive(parents)
    os._exit(0)
elif how == "outlived":  # the parent ends while it waits for a message
    wait_for_messages(parents)
    if os.fork():
        os._exit(0)
    consume_anew()
    os._exit(0)
elif how == "tried":  # the parent goes on when its child, which has got nothing, has ended
    wait_for_messages(parents)
    if not os.fork():
        drain(parents)
        os._exit(0)
    os.wait()
    receive(parents)
elif os.fork():
    os.wait()
else:
    consume_anew()
    os._exit(0)
"""


@pytest.mark.parametrize("how", ["consuming", "released", "multiprocessing", "daemon", "outlived", "tried"])
def test_a_forked_consumer_transfers(redis_server: PrivateRedis, how: str) -> None:
    """A consumer in a forked process transfers and gets its messages, whether its parent consumes, or has ended."""
    command = [sys.executable, "-W", "ignore", "-c", FORKING, redis_server.url, how]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout
    assert printed.splitlines() == ["1 late"]


#: A program that consumes, starts a process that outlives it, and ends. An argument names the way to start it.
OUTLIVED = """
import billiard, multiprocessing, os, sys, time
from kombu import Connection, Consumer, Queue

def outlive():
    print("lives", flush=True)
    while os.path.exists(sys.argv[3]):
        time.sleep(0.05)

class Forked:
    def __init__(self, target):
        if not os.fork():
            target()
            os._exit(0)
    def start(self):
        pass

connection = Connection(sys.argv[1], transport="kombu_delayq.transport:Transport")
Consumer(connection, [Queue("q")], callbacks=[print]).consume()
while not connection.default_channel.client.info("clients")["blocked_clients"]:
    try:
        connection.drain_events(timeout=0.1)
    except TimeoutError:
        pass
kinds = {"fork": Forked, "billiard": billiard.Process, "multiprocessing": multiprocessing.get_context("fork").Process}
kinds[sys.argv[2]](target=outlive).start()
os._exit(0)
"""


@pytest.mark.parametrize("how", ["fork", "billiard", "multiprocessing"])
def test_a_child_keeps_no_connection_of_a_dead_parent(own_server: PrivateRedis, tmp_path: Path, how: str) -> None:
    """When a process ends, its connections end, also while a child lives: a wait would take a message that is lost."""
    goes_on = tmp_path / "goes on"
    goes_on.touch()
    command = [sys.executable, "-W", "ignore", "-c", OUTLIVED, own_server.url, how, str(goes_on)]
    with own_server.client() as client, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == "lives\n"
            assert parent.wait(60) == 0
            until(lambda: len(client.client_list()) == 1, what="only the connection of the test")
        finally:
            goes_on.unlink()


def test_a_task_that_consumes_leaves_the_transfer_to_the_worker(make_proj: MakeProj) -> None:
    """A task in a pool child that consumes a queue for a moment runs no transfer worker there; its parent does."""
    proj = make_proj()
    proj.worker()
    proj.send("receive", "q")
    proj.await_runs(1)
    with proj.connection() as connection:
        connection.Producer().publish("late", routing_key="q", serializer="json", DelaySeconds=1)
    [_, run] = proj.await_runs(2)
    assert run["value"] == "late"
    assert "delayq-transfer" not in run["threads"]
