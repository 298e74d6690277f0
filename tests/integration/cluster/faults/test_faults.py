"""Faults of a cluster under steady traffic: nothing is lost but what Redis itself lost, and no worker is restarted.

One fleet goes through all faults in the order of this file. Each test judges the tasks that were published during its
fault.
"""

import time
from collections.abc import Iterator

import pytest

from tests.chaos.brokers.clustered import ClusterRedis
from tests.chaos.fleet.setup import SPREAD
from tests.chaos.ledger import leftovers
from tests.support.conditions import until
from tests.support.servers.cluster import slot_of
from tests.support.servers.cluster_node import Node
from tests.support.workers.traffic import Traffic

#: Tasks per second, over three queues. Workers on a slow machine keep up with them: behind a backlog, the first new
#: task would show how fast the backlog is worked off.
RATE = 200
#: How long after the cluster's failover a queue's tasks may take to run again, in s.
BACK_S = 2.0
#: For how long a node is stopped after its replica has taken its place, in s.
STOPPED_S = 1.0

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600), pytest.mark.xdist_group("cluster-faults")]


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traffic]:
    """A fleet whose workers run tasks of all queues."""
    directory = tmp_path_factory.mktemp("faults")
    with ClusterRedis(directory, SPREAD) as broker, Traffic(broker, directory, RATE) as traffic:
        traffic.await_steady()
        traffic.await_steady()
        yield traffic


def primary_of(traffic: Traffic, queue: str) -> tuple[Node, Node, list[int]]:
    """Returns the primary of a queue, its replica, and its slots."""
    primary = traffic.cluster.node_of(queue)
    return primary, traffic.cluster.replicas_of(primary)[0], traffic.cluster.slots_of(primary)


def check(traffic: Traffic, fault: str, begin: float) -> None:
    """Checks what holds after every fault: workers as before, nothing lost."""
    traffic.check_workers(fault)
    traffic.await_steady()
    now = time.time()
    lost = traffic.await_runs(now)
    assert not lost, f"{fault}: lost {len(lost)}: {[(key, traffic.tasks[key]) for key in lost[:5]]}\n{traffic.logs()}"
    tasks = [task for task in traffic.tasks.values() if task.confirmed >= begin]
    gone = [task for task in tasks if not task.starts and task.confirmed <= now]
    twice = sum(len(task.starts) > 1 for task in tasks)
    print(f"{fault}: {len(tasks)} tasks, {len(gone)} lost by replication, {twice} ran twice")


def check_back(traffic: Traffic, fault: str, queue: str, begin: float, over: float) -> None:
    """Checks that tasks run again soon after the cluster has a primary for a queue again."""
    first = traffic.first_start(queue, begin)
    print(f"{fault}: failover {over - begin:.2f} s, first task {first - over:+.2f} s after it")
    # On a busy machine, a task takes a while to start also without a fault.
    assert first - over < BACK_S + traffic.usual_s, (
        f"{fault}: {queue} was back {first - over:.1f} s after the failover\n{traffic.logs()}"
    )


def test_slot_moves_back_and_forth(traffic: Traffic) -> None:
    """The slot of a queue moves between primaries, key by key: tasks run meanwhile, each once."""
    queue, begin = SPREAD[0], time.time()
    old = traffic.cluster.node_of(queue)
    new = next(node for node in traffic.cluster.primaries() if node is not old)
    for to in (new, old, new, old):
        moved_at = time.time()
        traffic.cluster.move_slot(slot_of(queue), to, page=1, pause_s=0.1)
        check_back(traffic, "slot move", queue, moved_at, time.time())
    traffic.cluster.await_agreement()
    check(traffic, "slot move", begin)
    twice = traffic.doubles(begin, time.time())
    assert not twice, f"slot move: {len(twice)} ran twice: {list(twice.items())[:5]}"


def test_failover(traffic: Traffic) -> None:
    """A replica becomes primary because it was asked to."""
    queue, begin = SPREAD[1], time.time()
    traffic.cluster.failover(traffic.cluster.node_of(queue))
    check_back(traffic, "failover", queue, begin, time.time())
    traffic.cluster.await_in_sync()
    check(traffic, "failover", begin)


@pytest.mark.parametrize("queue", SPREAD[1:])
def test_killed_primary(traffic: Traffic, queue: str) -> None:
    """A primary is killed (SIGKILL), and later comes back as the replica of the one that was its replica."""
    old, new, slots = primary_of(traffic, queue)
    begin = time.time()
    traffic.cluster.kill(old)
    gone = time.time()
    traffic.cluster.await_promotion(new)
    over = time.time()
    window = traffic.broker.replication.note(old, new, slots, gone)
    print(f"killed primary: writes of the last {window.end - window.begin:.3f} s are gone with it")
    check_back(traffic, "killed primary", queue, begin, over)
    check(traffic, "killed primary", begin)
    traffic.cluster.restart(old)
    traffic.cluster.await_agreement()
    traffic.cluster.await_in_sync()
    check(traffic, "killed primary came back", over)


def test_node_added_and_removed(traffic: Traffic) -> None:
    """A node is added, gets the slot of a queue, gives it back, and is removed."""
    queue, begin = SPREAD[0], time.time()
    new = traffic.cluster.add_node()
    traffic.cluster.move_slot(slot_of(queue), new, page=1, pause_s=0.05)
    check_back(traffic, "node added", queue, begin, time.time())
    check(traffic, "node added", begin)
    begin = time.time()
    traffic.cluster.remove_node(new)
    traffic.cluster.await_agreement()
    check_back(traffic, "node removed", queue, begin, time.time())
    check(traffic, "node removed", begin)


def test_stopped_primary(traffic: Traffic) -> None:
    """A primary is stopped (SIGSTOP) for longer than the node timeout, and goes on: its clients do not wait for it."""
    queue = SPREAD[0]
    old, new, slots = primary_of(traffic, queue)
    begin = time.time()
    traffic.cluster.stop_process(old)
    stopped = time.time()
    traffic.cluster.await_promotion(new)
    over = time.time()
    traffic.broker.replication.note(old, new, slots, stopped)
    check_back(traffic, "stopped primary", queue, begin, over)
    time.sleep(STOPPED_S)
    again = time.time()
    traffic.cluster.continue_process(old)
    until(lambda: old.role() == "slave", 30, "the stopped primary follows")
    traffic.broker.replication.note_late(again, time.time(), slots)
    traffic.cluster.await_in_sync()
    check(traffic, "stopped primary", begin)


def test_nothing_is_left(traffic: Traffic) -> None:
    """When publishing ends, all tasks run that were confirmed, but those that Redis lost; no key keeps a message."""
    lost = traffic.await_runs(traffic.end_publishing())
    assert not lost, f"lost {len(lost)}: {[(key, traffic.tasks[key]) for key in lost[:5]]}\n{traffic.logs()}"
    with traffic.cluster.client() as client:
        until(lambda: not leftovers.waiting(client), 30, "no key keeps a message")
    tasks = list(traffic.tasks.values())
    gone = sum(1 for task in tasks if task.confirmed and not task.starts)
    twice = sum(len(task.starts) > 1 for task in tasks)
    rate = len(tasks) / (max(task.confirmed for task in tasks) - min(task.intended for task in tasks))
    print(f"{len(tasks)} tasks, {rate:.0f} a second, {gone} lost by replication, {twice} ran twice")
    assert gone < len(tasks) / 100
