"""The ACL users of docs/reference/acl.md on a cluster of several nodes, with nothing more than their rights there."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

import celery_ext
from celery_ext.cli import delayq
from tests.support.conditions import until
from tests.support.servers.acl import commands_of_page, denied_by, rights_in_slots
from tests.support.servers.cluster import PrivateCluster
from tests.support.workers.harness import MakeProj, Proj

#: Queues on three nodes, all of which the page's pattern ``~celery*`` allows.
QUEUES = ("celery", "celery1", "celery0")


@pytest.fixture(scope="module")
def users() -> Iterator[PrivateCluster]:
    """A cluster on each node of which there are the users of the page, with what it adds for clusters."""
    with PrivateCluster() as cluster:
        assert len({cluster.node_of(queue).port for queue in QUEUES}) == 3
        for node in cluster.nodes:
            for name, command in commands_of_page().items():
                node.client.execute_command(*command, *rights_in_slots(name))
            node.client.config_set("cluster-node-timeout", 15_000)  # no replica takes the place of a slow primary
        yield cluster


def url_of(cluster: PrivateCluster, user: str) -> str:
    """Returns the broker URL of a user."""
    return cluster.url.replace("://", f"://{user}:password@")


def denials(cluster: PrivateCluster) -> list[Any]:
    """Returns what nodes have denied to users."""
    return [(str(node), entry) for node in cluster.nodes for entry in denied_by(node.client)]


def run(cluster: PrivateCluster, user: str, *command: str) -> str:
    """Runs a ``delayq`` command as a user; it must succeed. Returns what it prints."""
    done = CliRunner().invoke(delayq, ["--broker", url_of(cluster, user), *command])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def shop(users: PrivateCluster, make_proj: MakeProj) -> Proj:
    """The app with the rights of the user that the page gives to workers and publishers."""
    return make_proj(broker_url=url_of(users, "shop"))


def test_users_of_the_page_have_enough_rights_on_a_cluster(users: PrivateCluster, shop: Proj) -> None:
    """An app publishes, delays, consumes and cancels on all nodes; two other users look at it and take care of it."""
    shop.worker("-Q", ",".join(QUEUES))
    shop.await_answers()
    sent = []
    for number, queue in enumerate(QUEUES):
        sent.append(shop.send("record", number, queue=queue))
        sent.append(shop.send("record", number, queue=queue, priority=5))
        sent.append(shop.send("record", number, queue=queue, countdown=1, priority=9))
    for task in sent:
        shop.await_runs(1, id=task.id)
    waiting = [shop.send("record", queue=queue, countdown=3600, task_id=f"far-{queue}") for queue in QUEUES]
    assert celery_ext.cancel(shop.app, [waiting[0].id]) == {"far-celery": "cancelled"}
    assert celery_ext.reschedule(shop.app, waiting[1].id, countdown=7200) == "rescheduled"
    waiting[2].revoke()
    until(lambda: celery_ext.get(shop.app, waiting[2].id) is None)
    found = json.loads(run(users, "status", "status", "--json"))
    assert {row["queue"]: row["delayed"] for row in found["queues"] if row["delayed"]} == {"celery1": 1}
    assert len(found["cluster"]["nodes"]) == len(users.nodes)
    assert "far-celery1" in run(users, "caretaker", "list")
    for change in ("pause", "resume"):
        run(users, "caretaker", "queues", change, "celery1")
    run(users, "caretaker", "run-now", waiting[1].id)
    shop.await_runs(1, id=waiting[1].id)
    assert shop.workers[0].stop() == 0
    assert denials(users) == []


def test_a_transfer_worker_of_the_page_leads_on_a_cluster(users: PrivateCluster, shop: Proj) -> None:
    """A user that may only transfer delivers messages of all nodes."""
    command = [sys.executable, "-m", "celery", "delayq", "--broker", url_of(users, "transfer"), "transfer"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        for queue in QUEUES:
            shop.send("record", queue=queue, countdown=0.5)
        store = shop.app.connection_for_write().default_channel.store
        until(lambda: [int(count) for count in store.fetching.ready(QUEUES)] == [1, 1, 1], what="all are transferred")
    finally:
        process.terminate()
        _, log = process.communicate(timeout=60)
    assert "NOPERM" not in log
    assert denials(users) == []
