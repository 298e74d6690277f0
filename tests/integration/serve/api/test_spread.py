"""A queue that is spread over several, in ``/v1``, in metrics and on the page: one, with its parts."""

from celery_ext import Call, send_many, spread
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve.access.identity import Action, Caller
from tests.integration.serve.api.conftest import MakeApi, shop

ORDERS = spread("orders", 4)
IDS = [f"order-{n}" for n in range(20)]


def test_views_show_one_queue(make_api: MakeApi, redis_server: PrivateRedis) -> None:
    """A server that knows the parts from Redis alone sums them up, in each of its views."""
    app = shop(redis_server.url, broker_transport_options=ORDERS.transport_options)
    send_many(app, "shop.remind", [Call((1,), countdown=60, task_id=task_id) for task_id in IDS], queue="orders")
    send_many(app, "shop.remind", [Call((1,)) for _ in range(8)], queue="orders")
    api = make_api(shop(redis_server.url, tasks=False))
    rows = {row["queue"]: row for row in api.get("/v1/queues").json()["queues"]}
    row = rows["orders"]
    assert set(rows) == {"celery", "orders"}
    assert (row["delayed"], row["ready"]) == (20, 8)
    assert [part["queue"] for part in row["parts"]] == ["orders", *ORDERS.parts]
    assert sum(part["delayed"] for part in row["parts"]) == 20
    assert api.get("/v1/queues/orders").json() == row
    assert sum(api.get("/v1/queues/orders/histogram").json()["counts"]["orders"]) == 20
    found = api.get("/v1/tasks", params={"queue": "orders", "limit": 100}).json()["tasks"]
    assert [task["id"] for task in found] == IDS
    assert {task["id"]: task["queue"] for task in found} == {task_id: ORDERS.part_of(task_id) for task_id in IDS}
    assert api.get("/scale", params={"queue": "orders", "ahead": "2m"}).json()["value"] == 28
    metrics = api.get("/metrics").text
    assert 'delayq_delayed_messages{queue="orders"} 20.0' in metrics
    assert 'delayq_delayed_messages{queue="orders.' not in metrics
    assert "4 parts" in api.get("/").text
    page = api.get("/queues/orders").text
    assert "orders.3</bdi></a>" in page
    assert "order-7" in page
    assert "orders.3" in api.get("/queues/orders.3").text


def test_enqueued_tasks_go_to_their_parts_and_rights_on_the_queue_hold_for_them(
    make_api: MakeApi, redis_server: PrivateRedis
) -> None:
    """A caller who may act on the queue, and on no other, enqueues into parts, sees tasks there and cancels them."""
    app = shop(redis_server.url, broker_transport_options=ORDERS.transport_options)
    app.send_task("shop.remind", (1,), queue="other", countdown=60, task_id="other")
    api = make_api(app, caller=Caller("tester", frozenset(Action), ("orders",)))
    for task_id in IDS:
        body = {"task": "shop.remind", "args": [1], "queue": "orders", "countdown": 60, "id": task_id}
        api.post("/v1/tasks", json=body).raise_for_status()
    found = api.get("/v1/tasks").json()["tasks"]
    assert {task["id"]: task["queue"] for task in found} == {task_id: ORDERS.part_of(task_id) for task_id in IDS}
    assert [row["queue"] for row in api.get("/v1/queues").json()["queues"]] == ["orders"]
    assert api.delete(f"/v1/tasks/{IDS[0]}").status_code == 200
    assert api.delete("/v1/tasks/other").status_code == 404
