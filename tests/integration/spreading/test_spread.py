"""``celery_ext.spread``: a queue in parts. Publishers pick the part by the task id, workers consume all of them."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kombu import Connection
from kombu.entity import Queue
from redis.exceptions import ResponseError

from celery_ext import Call, browse, cancel, count, get, send_many, spread
from celery_ext.connection import open_store
from celery_ext.dead_letters import replay
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.errors import InvalidOptions
from kombu_delayq.store.keys import Keys
from tests.support.commands.shell import lines, run
from tests.support.slots import need_slots
from tests.support.workers.chains import TASKS, waiting_step
from tests.support.workers.harness import MakeProj, Proj

PARTS = 8
ORDERS = spread("orders", PARTS)


@pytest.fixture
def spread_proj(make_proj: MakeProj) -> Proj:
    """The app, whose queue ``orders`` is spread over eight."""
    return make_proj(broker_transport_options=ORDERS.transport_options)


def _due(minutes: float) -> datetime:
    return datetime.now(UTC) + timedelta(minutes=minutes)


def _ready(proj: Proj, queue: str) -> list[str]:
    """The ids of the messages that are ready in a queue."""
    return [json.loads(message)["headers"]["id"] for message in proj.server.client().lrange(queue, 0, -1)]


def test_each_way_of_publishing_picks_the_part_by_the_task_id(spread_proj: Proj) -> None:
    """With a delay and without, one by one, many at once, and in a batch, a task goes to the part of its id."""
    proj, ids = spread_proj, [f"order-{n}" for n in range(60)]
    for n, task_id in enumerate(ids[:20]):
        proj.send("record", queue="orders", task_id=task_id, countdown=None if n % 2 else 600)
    calls = [Call(task_id=task_id, countdown=None if n % 2 else 600) for n, task_id in enumerate(ids[20:])]
    assert send_many(proj.app, "proj.record", calls, queue="orders") == 40
    where = {task.id: task.queue for task in browse(proj.app, "orders")}
    for part in ORDERS.parts:
        where |= dict.fromkeys(_ready(proj, part), part)
    assert where == {task_id: ORDERS.part_of(task_id) for task_id in ids}
    assert len(set(where.values())) == PARTS
    assert proj.server.client().llen("orders") == 0


def test_where_redis_has_slots_the_parts_are_registered_and_not_the_whole(make_proj: MakeProj) -> None:
    """Publishers of pages confirm each part that got messages: a transfer worker looks only at queues that it knows."""
    need_slots()
    with PrivateRedis(slots=True) as server:
        proj = make_proj(server, broker_transport_options=ORDERS.transport_options)
        calls = [Call(task_id=f"order-{n}", countdown=600) for n in range(300)]
        assert send_many(proj.app, "proj.record", calls, queue="orders") == 300
        assert server.client().smembers("{delayq}:queues") == {*ORDERS.parts}


def test_a_queue_that_is_given_is_the_one_that_counts(spread_proj: Proj) -> None:
    """`queue="orders"` is spread, `queue="orders.3"` is that part, and other queues are as ever."""
    proj = spread_proj
    proj.app.conf.task_routes = ORDERS.router
    proj.send("record", task_id="routed")
    proj.send("record", task_id="part", queue="orders.3")
    proj.send("record", task_id="other", queue="mail")
    assert _ready(proj, ORDERS.part_of("routed")) == ["routed"]
    assert "part" in _ready(proj, "orders.3")
    assert _ready(proj, "mail") == ["other"]


def test_workers_consume_all_parts_also_of_retries_and_of_publishers_that_know_of_none(make_proj: MakeProj) -> None:
    """With `-Q orders` a worker runs what is in the queue itself and in all parts, and retries of it."""
    proj = make_proj(broker_transport_options=ORDERS.transport_options, task_routes=ORDERS.router)
    worker = proj.worker("-Q", "orders", pool="solo")
    ids = [f"order-{n}" for n in range(3 * PARTS)]
    send_many(proj.app, "proj.record", [Call(task_id=task_id, countdown=n % 3) for n, task_id in enumerate(ids)])
    make_proj().send("record", task_id="unspread", queue="orders")
    proj.send("flaky", 2, 0.2, task_id="flaky")
    runs = proj.await_runs(len(ids) + 4)
    assert sorted({run["id"] for run in runs}) == sorted([*ids, "unspread", "flaky"])
    assert {run["queue"] for run in runs} == {"orders"}
    consumed = {
        queue["name"] for queue in proj.app.control.inspect([worker.node], timeout=30).active_queues()[worker.node]
    }
    assert consumed == {"orders", *ORDERS.parts}


def test_tasks_are_found_counted_and_cancelled_as_of_one_queue(spread_proj: Proj) -> None:
    """`browse`, `count`, `get` and `cancel` span the parts, in the order of due times, and `delayq` does, too."""
    proj = spread_proj
    ids = [f"order-{n}" for n in range(30)]
    for n, task_id in enumerate(ids):
        proj.send("record", n, queue="orders", task_id=task_id, eta=_due(60 - n))
    proj.send("record", queue="other", countdown=600)
    assert [task.id for task in browse(proj.app, "orders")] == ids[::-1]
    assert [task.id for task in browse(proj.app, "orders", limit=3)] == ids[::-1][:3]
    assert (count(proj.app, "orders"), count(proj.app)) == (30, 31)
    found = get(proj.app, "order-7")
    assert found is not None
    assert found.queue == ORDERS.part_of("order-7")
    assert cancel(proj.app, ["order-7", "order-8"]) == {"order-7": "cancelled", "order-8": "cancelled"}

    # A shell that has no app knows the parts from Redis.
    listed = lines(proj.server, "list", "--queue", "orders", "--limit", "0")
    assert [line["id"] for line in listed] == [
        task_id for task_id in ids[::-1] if task_id not in ("order-7", "order-8")
    ]
    assert run(proj.server, "list", "orders", "unknown", code=1).stderr.startswith("queue 'unknown'")
    [row] = [row for row in json.loads(run(proj.server, "status", "--json").stdout)["queues"] if "parts" in row]
    assert (row["queue"], row["delayed"], len(row["parts"])) == ("orders", 28, PARTS + 1)
    assert sum(part["delayed"] for part in row["parts"]) == 28
    assert [part["queue"] for part in row["parts"]] == ["orders", *ORDERS.parts]
    _, *rows = run(proj.server, "status", "orders").stdout.partition("QUEUE")[2].splitlines()
    assert rows[0].split()[:4] == ["orders", "(8", "parts)", "28"]
    assert rows[2].split()[0] == "orders.0"
    assert "orders.0" not in run(proj.server, "status").stdout
    run(proj.server, "purge", "orders", "--yes")
    assert count(proj.app, "orders") == 0


def test_parts_of_earlier_are_still_seen(make_proj: MakeProj) -> None:
    """After a change of the number of parts, messages in the parts of before are listed and counted."""
    before = make_proj(broker_transport_options=spread("orders", 16).transport_options)
    for n in range(20):
        before.send("record", queue="orders", task_id=f"order-{n}", countdown=600)
    now = make_proj(broker_transport_options=spread("orders", 2).transport_options)
    now.send("record", queue="orders", task_id="order-20", countdown=600)
    assert count(now.app, "orders") == 21
    assert {task.queue for task in browse(now.app, "orders")} - {"orders.0", "orders.1"}


def test_steps_of_a_delay_chain_go_to_the_part_of_their_task(make_proj: MakeProj) -> None:
    """Each step has the task's id, and so goes to the same part."""
    proj = make_proj(broker_transport_options=ORDERS.transport_options, **TASKS)
    proj.worker("-Q", "orders", pool="solo")
    proj.send("notify", 5, queue="orders", task_id="chained", delay_chain="100ms 600s")
    assert waiting_step(proj, "chained", 2).queue == ORDERS.part_of("chained")


def test_a_dead_letter_is_replayed_to_its_part(spread_proj: Proj) -> None:
    """A letter of a task of `orders` goes back to the part of its id."""
    proj = spread_proj
    proj.send("record", queue="dead", task_id="dead-1")
    with proj.connection() as connection:
        store = open_store(connection)
        done = list(replay.replay(store, "dead", lambda one: replay.to_queue(one, "orders", as_before=False), None))
    assert [letter.queue for _, letter in done] == [ORDERS.part_of("dead-1")]
    assert _ready(proj, ORDERS.part_of("dead-1")) == ["dead-1"]


def test_a_plain_message_goes_by_its_correlation_id(spread_proj: Proj) -> None:
    """Messages that are no tasks have no task id: their correlation id picks the part, or else any part gets them."""
    with spread_proj.connection() as connection:
        producer = connection.Producer()
        producer.publish({"n": 1}, routing_key="orders", correlation_id="one")
        producer.publish({"n": 2}, routing_key="orders")
    client = spread_proj.server.client()
    assert client.llen(ORDERS.part_of("one")) >= 1
    assert sum(client.llen(part) for part in ORDERS.parts) == 2


def test_each_part_has_its_share_of_the_rate(make_proj: MakeProj) -> None:
    """A `transfer_rate` of 80 for the queue is 10 for each of eight parts; other limits hold for each part."""
    options: dict[str, Any] = {
        **ORDERS.transport_options,
        "transfer_rate": {"orders": 80},
        "overdue": {"orders": "drop"},
        "max_lateness": {"orders": 30},
    }
    with make_proj(broker_transport_options=options).connection() as connection:
        parsed = open_store(connection).options
    assert parsed.limits_of("orders.7") == ("drop", 30_000, 10, 10)
    assert parsed.limits_of("orders.8") is None


def test_install_gives_an_app_the_option_and_the_queues(make_proj: MakeProj) -> None:
    """`install` keeps what is there, adds the parts to queues that are declared, and may be called twice."""
    app = make_proj(
        broker_transport_options={"queue_parts": {"mail": 2}, "max_delay": 60}, task_queues=[Queue("celery")]
    ).app
    ORDERS.install(app)
    ORDERS.install(app)
    assert app.conf.broker_transport_options == {"queue_parts": {"mail": 2, "orders": PARTS}, "max_delay": 60}
    assert [queue.name for queue in app.conf.task_queues] == ["celery", "orders", *ORDERS.parts]


@pytest.mark.parametrize("given", [{"orders": 0}, {"orders": 1.5}, {"": 2}, 8, {"orders": 2, "orders.1": 3}])
def test_a_wrong_spread_is_refused(given: Any) -> None:
    """A queue needs a whole number of parts, and a part cannot be spread itself."""
    with (
        Connection(
            "redis://", transport="kombu_delayq.transport:Transport", transport_options={"queue_parts": given}
        ) as one,
        pytest.raises(InvalidOptions, match="queue_parts="),
    ):
        _ = one.transport.options


def test_the_note_of_the_parts_is_one_key(spread_proj: Proj) -> None:
    """Redis knows the parts of all queues under one key, and each part until it is deleted."""
    proj = spread_proj
    proj.send("record", queue="orders")
    with proj.connection() as connection:
        store = open_store(connection)
        assert store.queues.spread() == {"orders": ORDERS.parts}
        key = Keys(slots=proj.server.slots).spread
        assert proj.server.client().smembers(key) == {*ORDERS.parts}
        store.queues.delete("orders.7")
        assert not proj.server.client().sismember(key, "orders.7")


def test_parts_that_a_full_redis_did_not_note_are_noted_later(own_server: PrivateRedis, make_proj: MakeProj) -> None:
    """A publisher that began while Redis was full notes the parts with its first message after that."""
    proj, client = make_proj(own_server, broker_transport_options=ORDERS.transport_options), own_server.client()
    key = Keys(slots=own_server.slots).spread
    client.config_set("maxmemory", 1)
    with proj.connection() as connection:
        producer = connection.Producer()
        with pytest.raises(ResponseError, match="maxmemory"):
            producer.publish({"n": 1}, routing_key="orders")
        assert not client.exists(key)
        client.config_set("maxmemory", 0)
        producer.publish({"n": 1}, routing_key="orders")
    assert client.smembers(key) == {*ORDERS.parts}
