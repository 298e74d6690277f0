"""A killed process leaves a trace at once, as its connections end: what it held runs again within seconds."""

import json
import os
import signal
from contextlib import suppress
from time import monotonic, sleep, time

import pytest

from kombu_delayq.cluster import SlotKeys
from kombu_delayq.text import as_text
from kombu_delayq.transfer.dead import GRACE_S
from tests.support.conditions import stays, until
from tests.support.servers.cluster import PrivateCluster
from tests.support.servers.proxies import Proxy
from tests.support.servers.sentinels import MASTER_NAME, Sentinels
from tests.support.workers.harness import MakeProj, Proj, Worker
from tests.support.workers.held import CONSUMED, in_hand, leases

pytestmark = pytest.mark.wide

#: No test waits for so long, in s, so that nothing goes back because a lease has ended.
TTL_S = 600.0
#: For so long a consumer may be without a subscription before it counts as dead, and a leader gives all consumers so
#: long after its own connection was lost, in s.
LOOKED_S = 8.0


@pytest.fixture
def fleet(make_proj: MakeProj) -> Proj:
    """The app, with leases that end only after the test."""
    return make_proj(broker_transport_options={"consumer_ttl": TTL_S}, worker_prefetch_multiplier=4)


def are_seen(proj: Proj, count: int = 1) -> bool:
    """Whether so many consumers have said that they have subscribed."""
    abouts = proj.server.client().hvals(CONSUMED)
    return sum('"subscribed": true' in as_text(about) for about in abouts) == count


def nobody_is_dead(*workers: Worker) -> bool:
    """Whether no worker has given back what another one held."""
    return not any("is dead" in worker.log or "run twice" in worker.log for worker in workers)


@pytest.mark.journey
@pytest.mark.parametrize(
    ("pool", "held"),
    [
        ("prefork", 4),
        ("gevent", 2),  # its consumer stands still while the pool is full
    ],
)
def test_what_a_killed_worker_held_runs_again_within_seconds(fleet: Proj, pool: str, held: int) -> None:
    """All that a killed worker had in hand runs in another one, though its lease would go on for minutes."""
    doomed = fleet.worker(pool=pool, concurrency=1)
    for value in range(4):
        fleet.send("hang_once", value)
    fleet.await_runs(1)
    until(lambda: are_seen(fleet))
    until(lambda: in_hand(fleet.server.client()) == held, what="it holds what runs, and what it has prefetched")
    other = fleet.worker(pool="threads", concurrency=6)
    doomed.kill()
    until(lambda: len(fleet.runs(redelivered=True)) == held, 60)
    assert {run["pid"] for run in fleet.runs(redelivered=True)} == {other.process.pid}
    assert sorted(run["value"] for run in fleet.runs(redelivered=True)) == [*range(held)]
    assert {run["deaths"] for run in fleet.runs(redelivered=True)} == {1}
    until(lambda: f"process {doomed.process.pid} on host" in other.log)
    assert f"{held} went back ({held} to 'celery')" in other.log


@pytest.mark.parametrize("is_here", [True, False], ids=["on this machine", "elsewhere"])
def test_a_lone_worker_that_is_started_again_runs_what_it_held(fleet: Proj, is_here: bool) -> None:
    """Nobody was there who knew the killed one; a worker on the same machine sees that its process has ended."""
    doomed = fleet.worker(pool="threads", concurrency=2)
    for value in range(2):
        fleet.send("hang_once", value)
    fleet.await_runs(2)
    until(lambda: are_seen(fleet))
    client = fleet.server.client()
    [(name, about)] = client.hgetall(CONSUMED).items()
    if not is_here:
        client.hset(CONSUMED, name, json.dumps({**json.loads(about), "process": "another/machine/1@1"}))
    doomed.kill()
    fleet.worker(pool="threads", concurrency=4)
    ready_at = time()
    runs = fleet.await_runs(2, redelivered=True)
    if is_here:
        assert max(run["at"] for run in runs) - ready_at < GRACE_S


def test_a_standby_notices_at_once_that_the_leader_is_dead(fleet: Proj) -> None:
    """It looks as often as the leader does, and not only when it asks who leads."""
    poll_s = 20.0
    fleet.conf["broker_transport_options"]["poll_interval"] = poll_s
    leader = fleet.worker(pool="threads", concurrency=1)
    fleet.send("hang_once", 1)
    fleet.await_runs(1)
    fleet.worker(pool="threads", concurrency=2)
    until(lambda: are_seen(fleet, 2))
    leader.kill()
    killed_at = time()
    [run] = fleet.await_runs(1, redelivered=True)
    assert run["at"] - killed_at < poll_s


def test_a_prefork_worker_is_dead_with_its_main_process(fleet: Proj) -> None:
    """What the children of a killed main process are working on runs again: nobody can acknowledge it any more."""
    doomed = fleet.worker(pool="prefork", concurrency=2)
    for value in range(2):
        fleet.send("hang_once", value)
    fleet.await_runs(2)
    until(lambda: are_seen(fleet))
    children = [int(run["pid"]) for run in fleet.runs()]
    try:
        os.kill(doomed.process.pid, signal.SIGKILL)
        fleet.worker(pool="threads", concurrency=6)
        until(lambda: len(fleet.runs(redelivered=True)) == 2, 60)
    finally:
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def test_consumers_whose_connections_are_cut_again_and_again_live(fleet: Proj) -> None:
    """While all connections are cut every other second, nobody is taken for dead.

    As with stock kombu, a channel that is closed in order gives back what is in hand, so tasks may run again.
    """
    workers = [fleet.worker(pool="threads", concurrency=2, wait=False) for _ in range(2)]
    for worker in workers:
        worker.ready()
    until(lambda: are_seen(fleet, 2))
    for value in range(4):
        fleet.send("late_acked", 2, value)
    client, ends_at = fleet.server.client(), monotonic() + LOOKED_S
    while monotonic() < ends_at:
        for kind in ("normal", "pubsub"):
            client.client_kill_filter(_type=kind, skipme=True)
        sleep(2)
    until(lambda: in_hand(client) == 0 and {run["value"] for run in fleet.runs()} == {0, 1, 2, 3})
    stays(lambda: nobody_is_dead(*workers), LOOKED_S)


def test_a_worker_cut_off_without_a_word_is_dead_when_its_lease_ends(fleet: Proj) -> None:
    """A network that drops all packets leaves no trace: the lease decides, and both sides log it."""
    client, ttl_s = fleet.server.client(), 12.0
    with Proxy(fleet.server.port) as proxy:
        fleet.conf["broker_transport_options"] = {"consumer_ttl": ttl_s}
        cut_off = fleet.worker(pool="threads", concurrency=1, broker_url=proxy.url)
        fleet.send("hang_once", 1)
        fleet.await_runs(1)
        until(lambda: are_seen(fleet))
        other = fleet.worker(pool="threads", concurrency=1)
        proxy.freeze()
        with fleet.connection() as connection:
            read_at, leases_now = time(), connection.default_channel.store.consumers.all()
        [left_ms] = [lease.left_ms for lease in leases_now if f":{cut_off.process.pid}:" in lease.name]
        [again] = until(lambda: fleet.runs(redelivered=True), 60)
        assert again["at"] >= read_at + left_ms / 1000
        until(lambda: f"process {cut_off.process.pid} on host" in other.log and in_hand(client) == 0)
        until(lambda: "Redis cannot be used" in cut_off.log)


def test_a_worker_that_stands_still_lives(fleet: Proj) -> None:
    """A process that is stopped for longer than a dead one is missed keeps what it holds: its connections are open."""
    stopped, other = (fleet.worker(pool="threads", concurrency=1) for _ in range(2))
    until(lambda: are_seen(fleet, 2))
    for value in range(2):
        fleet.send("late_acked", 1, value)
    fleet.await_runs(2)
    os.kill(stopped.process.pid, signal.SIGSTOP)
    try:
        stays(lambda: len(fleet.runs()) == 2, LOOKED_S)
    finally:
        os.kill(stopped.process.pid, signal.SIGCONT)
    until(lambda: in_hand(fleet.server.client()) == 0)
    assert nobody_is_dead(stopped, other)


def test_a_task_that_outlives_its_connection_runs_once(fleet: Proj) -> None:
    """After a lost connection a worker connects as another consumer, and acknowledges under the name before it."""
    worker, other = (fleet.worker(pool="threads", concurrency=1) for _ in range(2))
    until(lambda: are_seen(fleet, 2))
    for value in range(2):
        fleet.send("late_acked", LOOKED_S, value)
    fleet.await_runs(2)
    client = fleet.server.client()
    client.client_kill_filter(_type="normal", skipme=True)
    until(lambda: in_hand(client) == 0)
    assert len(fleet.runs()) == 2
    until(lambda: leases(client) == 2, what="the consumers of the lost connections have left")
    assert nobody_is_dead(worker, other)


def test_a_failover_makes_nobody_dead(make_proj: MakeProj) -> None:
    """When the primary behind Sentinel is killed, all consumers come back, and keep what they hold."""
    with Sentinels() as sentinels:
        proj = make_proj(
            sentinels.master,
            broker_url=sentinels.urls("delayq+sentinel"),
            broker_transport=None,
            broker_transport_options={"master_name": MASTER_NAME, "consumer_ttl": TTL_S},
        )
        workers = [proj.worker(pool="threads", concurrency=1) for _ in range(2)]
        until(lambda: are_seen(proj, 2))
        for value in range(2):
            proj.send("late_acked", 2 * LOOKED_S, value)
        proj.await_runs(2)
        sentinels.await_copies()
        sentinels.master.stop(signal.SIGKILL)
        sentinels.await_new_master()
        stays(lambda: nobody_is_dead(*workers) and len(proj.runs()) == 2, LOOKED_S)


def test_in_a_cluster_what_a_killed_worker_held_runs_again(cluster: PrivateCluster, make_proj: MakeProj) -> None:
    """A consumer of queues on several nodes is dead in all of them, and what it held of each runs again."""
    proj = make_proj(broker_url=cluster.url, broker_transport_options={"consumer_ttl": TTL_S})
    doomed = proj.worker("-Q", "q0,q1", pool="threads", concurrency=4)
    for value in range(4):
        proj.send("hang_once", value, queue=f"q{value % 2}")
    proj.await_runs(4)
    keys = SlotKeys()
    until(lambda: all('"subscribed": true' in str(cluster.client().hvals(keys.consumed(q))) for q in ("q0", "q1")))
    other = proj.worker("-Q", "q0,q1", pool="threads", concurrency=4)
    doomed.kill()
    until(lambda: len(proj.runs(redelivered=True)) == 4, 90)
    assert {run["pid"] for run in proj.runs(redelivered=True)} == {other.process.pid}


def test_in_a_cluster_a_failover_makes_nobody_dead(cluster: PrivateCluster, make_proj: MakeProj) -> None:
    """The node at which consumers subscribe lives on as a replica: they subscribe where the leader asks now."""
    proj, keys = make_proj(broker_url=cluster.url, broker_transport_options={"consumer_ttl": TTL_S}), SlotKeys()
    workers = [proj.worker("-Q", "q0,q1", pool="threads", concurrency=1) for _ in range(2)]
    for value in range(2):
        proj.send("late_acked", 2 * LOOKED_S, value, queue=f"q{value}")
    proj.await_runs(2)
    until(lambda: str(cluster.client().hvals(keys.consumed("q1"))).count('"subscribed": true') == 2)
    promoted = cluster.failover(cluster.node_of(keys.lease))
    stays(lambda: nobody_is_dead(*workers) and len(proj.runs()) == 2, 1.5 * LOOKED_S)
    until(lambda: len(promoted.client.pubsub_channels("delayq:consumer:*")) == 2, what="consumers subscribe there")


def test_without_the_right_to_subscribe_the_lease_decides(fleet: Proj) -> None:
    """A worker whose user may not subscribe says so once, and what it held when it is killed waits for its lease."""
    client = fleet.server.client()
    client.acl_setuser(
        "worker", enabled=True, passwords=["+secret"], commands=["+@all"], keys=["*"], reset_channels=True
    )
    try:
        client.execute_command("ACL", "SETUSER", "worker", "&/0.celery.pidbox", "&delayq:wake:*")
        port = client.connection_pool.connection_kwargs["port"]
        doomed = fleet.worker(
            "--without-gossip",
            "--without-mingle",
            pool="threads",
            broker_url=f"redis://worker:secret@127.0.0.1:{port}/0",
        )
        fleet.send("hang_once", 1)
        fleet.await_runs(1)
        until(lambda: "Redis forbids the channel of a consumer" in doomed.log)
        doomed.kill()
        fleet.worker(pool="threads")
        stays(lambda: len(fleet.runs()) == 1, LOOKED_S)
        assert in_hand(client) == 1
    finally:
        client.acl_deluser("worker")
