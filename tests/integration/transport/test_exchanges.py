"""Direct, topic and fanout exchanges."""

import time
from contextlib import suppress
from typing import Any

import pytest
from kombu import Connection, Exchange, Queue

from tests.support.conditions import stays, until
from tests.support.workers.harness import MakeProj, Proj

#: Longer than publishing and counting takes on a busy machine.
DELAY_S = 10
TOPIC = {"exchange": "news", "exchange_type": "topic"}
QUEUES = {
    "celery": {"exchange": "celery", "exchange_type": "direct", "routing_key": "celery"},
    "special": {"exchange": "orders", "exchange_type": "direct", "routing_key": "urgent"},
    "eu": {**TOPIC, "routing_key": "news.eu.#"},
    "all": {**TOPIC, "routing_key": "news.#"},
}


def _fanout(name: str) -> dict[str, Any]:
    return {name: {"exchange": "everybody", "exchange_type": "fanout", "routing_key": "all", "auto_delete": True}}


def _values(proj: Proj, value: str, count: int, due: float) -> list[dict[str, Any]]:
    """Returns the runs of what was sent with ``value``, none of them early and none more than ``count``."""
    runs = proj.await_runs(count, value=value)
    assert len(runs) == count
    assert all(run["at"] >= due for run in runs)
    return runs


@pytest.mark.journey
def test_tasks_of_direct_and_topic_exchanges_run_once_per_bound_queue(make_proj: MakeProj) -> None:
    """With and without a countdown, a task reaches each queue that its exchange and routing key lead to, once."""
    proj = make_proj(task_queues=QUEUES)
    proj.worker()
    due = time.time() + DELAY_S
    proj.send("record", "direct", queue="special", countdown=DELAY_S)
    proj.send("record", "by key", exchange="orders", routing_key="urgent", countdown=DELAY_S)
    proj.send("record", "both", queue="eu", routing_key="news.eu.fr", countdown=DELAY_S)
    proj.send("record", "one", queue="all", routing_key="news.us", countdown=DELAY_S)
    proj.send("record", "both at once", queue="eu", routing_key="news.eu.de")
    assert [proj.delayed(queue) for queue in QUEUES] == [0, 2, 1, 2]

    _values(proj, "both at once", 2, 0)
    for value, count in (("direct", 1), ("by key", 1), ("both", 2), ("one", 1)):
        _values(proj, value, count, due)
    assert [proj.delayed(queue) for queue in QUEUES] == [0, 0, 0, 0]


@pytest.mark.journey
def test_a_broadcast_task_runs_in_every_worker(make_proj: MakeProj) -> None:
    """A task sent to a fanout exchange runs once in each worker; with a countdown each worker keeps it till then."""
    proj = make_proj()
    proj.app.conf.task_queues = _fanout("everybody")
    workers = [proj.worker(task_queues=_fanout(f"ear{n}"), concurrency=1, wait=False) for n in range(2)]
    for worker in workers:
        worker.ready()
    proj.await_answers()
    due = time.time() + 2
    proj.send("record", "later", queue="everybody", countdown=2)
    proj.send("record", "now", queue="everybody")
    assert proj.delayed("everybody") == 0
    for value, not_before in (("now", 0), ("later", due)):
        pids = {run["pid"] for run in _values(proj, value, 2, not_before)}
        assert len(pids) == 2


def _listener(connection: Connection, heard: list[Any], name: str) -> Any:
    # A name of its own: kombu takes it for a fanout queue in the whole process from then on.
    queue = Queue(f"listener {name}", Exchange("plain", type="fanout"), auto_delete=True)
    return connection.Consumer(queue, callbacks=[lambda body, message: (heard.append(body), message.ack())])


def test_a_kombu_fanout_producer_reaches_every_consumer(proj: Proj) -> None:
    """A fanout message reaches each plain kombu consumer once, at once even if it asks for a delay, as on stock."""
    heard: dict[str, list[Any]] = {"one": [], "two": []}
    with proj.connection() as one, proj.connection() as two, proj.connection() as sender:

        def drained() -> bool:
            for connection in (one, two):
                with suppress(TimeoutError):
                    connection.drain_events(timeout=0.05)
            return all(len(bodies) == 2 for bodies in heard.values())

        with _listener(one, heard["one"], "one"), _listener(two, heard["two"], "two"):
            until(lambda: not drained() and _subscribers(proj) == 2)
            producer = sender.Producer(exchange=Exchange("plain", type="fanout"))
            producer.publish("now")
            producer.publish("asks for a delay", DelaySeconds=60)
            until(drained)
            stays(drained, 0.3)
    assert heard == {"one": ["now", "asks for a delay"], "two": ["now", "asks for a delay"]}


def _subscribers(proj: Proj) -> int:
    return sum(int(client["psub"]) > 0 for client in proj.server.client().client_list())
