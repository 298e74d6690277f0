"""A queue that is spread over the nodes of a cluster: workers serve each part, and all parts are seen as one queue."""

import json
from collections import Counter

from celery_ext import Call, browse, cancel, count, get, send_many, spread
from tests.support.commands.shell import lines, run
from tests.support.conditions import until
from tests.support.servers.cluster import PrivateCluster
from tests.support.workers.harness import MakeProj

ORDERS = spread("orders", 8)
IDS = [f"order-{number}" for number in range(48)]


def test_workers_serve_the_parts_of_all_nodes(cluster: PrivateCluster, make_proj: MakeProj) -> None:
    """Two workers run each task once, delayed or not, from every part; one of them alone still serves all parts."""
    nodes = {part: cluster.node_of(part).port for part in ORDERS.parts}
    assert len(set(nodes.values())) == 3
    proj = make_proj(broker_url=cluster.url, broker_transport_options=ORDERS.transport_options)
    first, second = (proj.worker("-Q", "orders", pool="solo", wait=False) for _ in range(2))
    for worker in (first, second):
        worker.ready()
    calls = [Call(task_id=task_id, countdown=n % 3 or None) for n, task_id in enumerate(IDS)]
    assert send_many(proj.app, "proj.record", calls, queue="orders") == len(IDS)
    assert Counter(run["id"] for run in proj.await_runs(len(IDS))) == Counter(IDS)
    assert {ORDERS.part_of(task_id) for task_id in IDS} == set(ORDERS.parts)

    def row() -> dict:
        [found] = [one for one in json.loads(run(cluster, "status", "--json").stdout)["queues"] if "parts" in one]
        return found

    # A consumer of several parts counts once, and each part has both.
    until(lambda: row()["consumers"] == 2 and {part["consumers"] for part in row()["parts"]} == {2})
    places = {part["queue"]: part["node"] for part in row()["parts"]}
    assert {part: places[part] for part in nodes} == {part: f"127.0.0.1:{port}" for part, port in nodes.items()}

    second.stop()
    again = [f"again-{task_id}" for task_id in IDS]
    for task_id in again:
        proj.send("record", queue="orders", task_id=task_id)
    runs = proj.await_runs(2 * len(IDS))
    assert Counter(one["id"] for one in runs[len(IDS) :]) == Counter(again)
    assert {ORDERS.part_of(task_id) for task_id in again} == set(ORDERS.parts)


def test_what_waits_on_all_nodes_is_one_queue(cluster: PrivateCluster, make_proj: MakeProj) -> None:
    """Tasks in the parts of three nodes are listed by due time, counted, found, cancelled and purged together."""
    proj = make_proj(broker_url=cluster.url, broker_transport_options=ORDERS.transport_options)
    calls = [Call(task_id=task_id, countdown=3600 - 10 * n) for n, task_id in enumerate(IDS)]
    send_many(proj.app, "proj.record", calls, queue="orders")
    waiting = {task.id: task.queue for task in browse(proj.app, "orders")}
    assert list(waiting) == IDS[::-1]
    assert waiting == {task_id: ORDERS.part_of(task_id) for task_id in IDS}
    assert len({cluster.node_of(part).port for part in waiting.values()}) == 3
    assert count(proj.app, "orders") == len(IDS)
    assert {task_id: getattr(get(proj.app, task_id), "queue", None) for task_id in IDS} == waiting

    # A shell without the app knows the parts from the cluster.
    assert [one["id"] for one in lines(cluster, "list", "orders", "--limit", "0")] == IDS[::-1]
    assert cancel(proj.app, IDS[:24]) == dict.fromkeys(IDS[:24], "cancelled")
    assert count(proj.app, "orders") == 24
    run(cluster, "purge", "orders", "--yes")
    assert (count(proj.app, "orders"), lines(cluster, "list", "orders")) == (0, [])
