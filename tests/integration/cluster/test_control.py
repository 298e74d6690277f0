"""Remote control, events and results, over a cluster of several nodes."""

import uuid

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker

from tests.support.commands.shell import lines
from tests.support.conditions import until
from tests.support.servers.cluster import PrivateCluster
from tests.support.store.keyspace import idle_for
from tests.support.workers.events import captured
from tests.support.workers.harness import MakeProj, Proj, Worker


@pytest.fixture
def clustered(cluster: PrivateCluster, make_proj: MakeProj) -> Proj:
    """The app on a cluster; results are on a plain server."""
    return make_proj(broker_url=cluster.url)


@pytest.fixture
def workers(clustered: Proj) -> list[Worker]:
    """Two workers, each for a queue of another node, that send events."""
    started = [
        clustered.worker("-E", "-Q", queue, pool="solo", wait=False, gossip=True, worker_enable_remote_control=True)
        for queue in ("q0", "q1")
    ]
    return [worker.ready() for worker in started]


@pytest.mark.journey
def test_workers_answer_revoke_and_send_events(clustered: Proj, workers: list[Worker]) -> None:
    """Workers on different nodes' queues answer a ping, list and revoke what waits, and are heard as events."""
    assert clustered.await_answers() == sorted(worker.node for worker in workers)
    with captured(clustered) as seen:
        until(lambda: {event["hostname"] for event in seen} >= {worker.node for worker in workers})
        done = clustered.send("record", "done", queue="q1")
        assert done.get(timeout=60) == "done"
        until(lambda: any(event["type"] == "task-succeeded" and event["uuid"] == done.id for event in seen))
    waiting = clustered.send("record", "waits", queue="q0", countdown=3600)
    kept = clustered.send("record", "kept", queue="q1", countdown=3600)
    scheduled = clustered.app.control.inspect([worker.node for worker in workers], timeout=30).scheduled()
    found = {node: [task["request"]["id"] for task in tasks] for node, tasks in scheduled.items()}
    assert found == {workers[0].node: [waiting.id], workers[1].node: [kept.id]}
    clustered.app.control.revoke(waiting.id)
    until(lambda: clustered.delayed("q0") == 0)
    assert clustered.delayed("q1") == 1
    assert all(worker.stop() == 0 for worker in workers)


def test_replies_that_nobody_reads_are_removed(cluster: PrivateCluster) -> None:
    """On several nodes, replies that nobody has read for an hour go with their names, and the other names stay."""
    oids = [f"{number:08x}-8f3e-3c1a-9f31-0e5a3b1c2d4e" for number in range(20)]
    old = [f"{oid}.reply.celery.pidbox" for oid in oids[1:]]
    table = "{_kombu.binding}.reply.celery.pidbox"
    with cluster.client(decode_responses=False) as client:
        for oid in oids:
            client.lpush(f"{oid}.reply.celery.pidbox", "reply")
            client.sadd(table, f"{oid}\x06\x16\x06\x16{oid}.reply.celery.pidbox")
        for queue in old:
            idle_for(client, queue, 3600)
        [line] = lines(cluster, "repair", "--yes")
        assert (line["leftovers"]["replies"], line["leftovers"]["bindings"]) == (19, 0)
        assert client.smembers(table) == {f"{oids[0]}\x06\x16\x06\x16{oids[0]}.reply.celery.pidbox".encode()}
        assert [queue for queue in old if client.exists(queue)] == []


def test_rpc_brings_results(cluster: PrivateCluster) -> None:
    """With ``rpc://`` the caller gets the results of immediate and of delayed tasks."""
    with Celery(uuid.uuid4().hex, broker=cluster.url, backend="rpc://", set_as_current=False) as app:
        app.conf.broker_connection_retry_on_startup = True

        @app.task(name="double")
        def double(number: int) -> int:
            return 2 * number

        with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=60.0):
            results = [double.apply_async((number,), countdown=number % 2 or None) for number in range(6)]
            assert [result.get(timeout=60) for result in results] == [0, 2, 4, 6, 8, 10]
