"""``/metrics``, ``/scale`` and ``/healthz`` of the server."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery
from kombu.connection import Connection
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from starlette.requests import Request
from starlette.testclient import TestClient

from celery_ext.connection import TRANSPORT
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve.access.identity import READING, Action, Caller
from celery_ext.serve.application import make_app
from celery_ext.serve.exporter import exporting
from celery_ext.serve.service import ServeBroker
from celery_ext.serve.settings import ServeSettings
from kombu_delayq.store import DelayStore
from tests.support.conditions import until
from tests.support.serve.metrics import collector_of, series_in
from tests.support.serve.running import ask
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, waiting
from tests.support.workers.transfers import offer

#: Callers, named by the query parameter ``as``.
CALLERS = {
    "all": Caller("all", READING),
    "orders": Caller("orders", READING, queues=("orders*",)),
    "nothing": Caller("nothing", frozenset({Action.READ})),
}
Get = Callable[..., Any]


@pytest.fixture
def get(redis_server: PrivateRedis) -> Iterator[Get]:
    """Asks a server, by default as somebody who may see all."""
    with client_of(redis_server.url) as client:
        yield lambda path, by="all", **headers: client.get(path, headers={"X-As": by, **headers})


def client_of(url: str) -> TestClient:
    """Returns a client of a server for a broker."""

    def identify(request: Request) -> Caller | None:
        return CALLERS.get(request.headers.get("x-as", ""))

    app = Celery(set_as_current=False)
    broker = ServeBroker(app, lambda: Connection(url, transport=TRANSPORT))
    settings = ServeSettings(identify=identify, dead_letters=("failed", "orders.failed"))
    return TestClient(make_app(broker, settings), base_url="http://127.0.0.1", raise_server_exceptions=False)


@pytest.mark.journey
def test_metrics_come_in_the_format_that_is_preferred(get: Get, store: DelayStore) -> None:
    """Prometheus's text unless the caller prefers OpenMetrics, which ends with its own mark."""
    offer(store, "1", 900, "orders")
    answer = get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert series_in(answer.text)["delayed_messages", "orders"] == 1
    answer = get("/metrics", accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert answer.text.endswith("# EOF\n")
    assert "delayq_transferred_messages" in {family.name for family in parse_openmetrics(answer.text)}


def test_metrics_of_some_queues_can_be_asked_for(get: Get, store: DelayStore) -> None:
    """With names and patterns in the query nobody else's series are there; the rights of the caller hold as well."""
    for queue in ("orders-1", "orders-2", "mails"):
        offer(store, "1", 900, queue)

    def queues(path: str, by: str = "all") -> set[str]:
        return {key[1] for key in series_in(get(path, by=by).text) if key[0] == "delayed_messages"}

    assert queues("/metrics") > {"orders-1", "orders-2", "mails"}
    assert queues("/metrics?queue=orders-*") == {"orders-1", "orders-2"}
    assert queues("/metrics?queue=orders-1&queue=mails") == {"orders-1", "mails"}
    assert queues("/metrics?queue=orders-1&queue=mails", by="orders") == {"orders-1"}
    with exporting(collector_of(store), "127.0.0.1", 0) as url:
        found = ask(url, "/metrics?queue=orders-*").text
        assert {key[1] for key in series_in(found) if key[0] == "delayed_messages"} == {"orders-1", "orders-2"}


def test_many_metrics_go_compressed(get: Get, store: DelayStore) -> None:
    """The text of many queues is compressed for who takes that, and says the same."""
    for number in range(20):
        offer(store, "1", 900, f"queue-{number}")
    plain, packed = (get("/metrics", **{"accept-encoding": taken}) for taken in ("", "deflate, gzip;q=1.0"))
    assert ("content-encoding" in plain.headers, packed.headers["content-encoding"]) == (False, "gzip")
    assert series_in(plain.text).keys() == series_in(packed.text).keys()
    assert int(packed.headers["content-length"]) < len(plain.content) / 4


def test_metrics_show_a_caller_its_own_queues(get: Get, store: DelayStore) -> None:
    """A token for some queues sees no series of others, and one without the action sees nothing."""
    for queue in ("orders", "mails"):
        offer(store, "1", 900, queue)
    found = series_in(get("/metrics", by="orders").text)
    assert {key for key in found if key[0].endswith(("delayed_messages", "dead_letter_messages"))} == {
        ("delayed_messages", "orders"),
        ("dead_letter_messages", "orders.failed"),
    }
    assert not {key for key in found if "mails" in key or key[-1] == "failed"}  # also an outcome, before the queue
    assert get("/metrics", by="nothing").status_code == 403
    assert get("/metrics", by="").status_code == 401


def test_scale_counts_what_is_ready_overdue_and_due_soon(get: Get, store: DelayStore) -> None:
    """The value is the sum over all queues and priorities, each message once."""
    for number, due_ms in enumerate((PAST_MS, PAST_MS, store.now_ms() + 60_000, FUTURE_MS)):
        store.delivery.offer("orders", waiting(f"{number}", due_ms))
    store.client.lpush("orders", "message")
    store.client.lpush("orders\x06\x169", "message")
    offer(store, "1", 30, "mails")
    nothing = {"value": 0, "ready": 0, "limited": 0, "overdue": 0, "due": 0, "oldest_s": 0}
    assert get("/scale?queue=orders&queue=mails&queue=unknown&ahead=1m30s").json() == {
        "value": 6,
        "ready": 2,
        "limited": 0,
        "overdue": 2,
        "due": 2,
        "oldest_s": 0,
        "ahead_s": 90.0,
        "queues": {
            "orders": {"value": 5, "ready": 2, "limited": 0, "overdue": 2, "due": 1, "oldest_s": 0},
            "mails": {"value": 1, "ready": 0, "limited": 0, "overdue": 0, "due": 1, "oldest_s": 0},
            "unknown": nothing,
        },
    }
    assert get("/scale?queue=mails").json() == {**nothing, "ahead_s": 0.0, "queues": {"mails": nothing}}
    assert get("/scale?queue=orders").json()["value"] == 4
    store.fetching.pause("orders")  # so that no pod comes for it
    assert get("/scale?queue=orders").json()["queues"] == {
        "orders": {"value": 0, "ready": 2, "limited": 0, "overdue": 2, "due": 0, "oldest_s": 0}
    }
    store.figures.count_minute({"orders": {"failed": 2}})
    store.queues.note_dead_letters("graves", 2)
    metrics = get("/metrics").text
    assert series_in(metrics)["queue_paused", "orders"] == 1
    assert 'delayq_failures_total{queue="orders",outcome="failed"} 2' in metrics
    assert 'delayq_failures_total{queue="graves",outcome="dead-lettered"} 2' in metrics
    store.fetching.resume("orders")
    store.client.rpush("orders", json.dumps({"properties": {"timestamp": store.now_ms() / 1000 - 300}}))
    found = get("/scale?queue=orders&queue=mails").json()
    assert found["oldest_s"] == found["queues"]["orders"]["oldest_s"] == pytest.approx(300, abs=30)


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/scale", 400, "name 1 to 100 queues"),
        ("/scale?" + "&".join(f"queue={number}" for number in range(101)), 400, "name 1 to 100 queues"),
        ("/scale?queue=orders&ahead=soon", 400, "'soon' is not a duration"),
        ("/scale?queue=orders&queue=mails", 403, "may not metrics with queue 'mails'"),
        ("/healthz?leader=maybe", 400, "leader is 'required' or 'optional'"),
    ],
)
def test_a_wrong_question_is_answered_in_words(get: Get, path: str, status: int, said: str) -> None:
    """Each is answered with problem details that say what is wrong."""
    answer = get(path, by="orders")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert said in answer.json()["detail"]


@pytest.mark.parametrize("layout", ["hash"], indirect=True)
def test_scale_says_that_a_queue_cannot_be_counted(get: Get, store: DelayStore) -> None:
    """A key of the wrong type is an error, which an autoscaler does not take for an idle queue."""
    store.client.set("delayq:{orders}:due", "somebody else's")
    answer = get("/scale?queue=orders")
    assert answer.status_code == 502
    assert "WRONGTYPE" in answer.json()["detail"]


def test_health_is_that_of_redis_and_if_asked_of_the_transfer(own_server: PrivateRedis) -> None:
    """200 while Redis answers, also for a caller without a token; `leader=required` needs a leader besides."""
    with client_of(own_server.url) as client:
        assert client.get("/healthz").json() == {"status": "ok", "redis": True, "leader": False}
        answer = client.get("/healthz?leader=required")
        assert (answer.status_code, answer.json()["status"]) == (503, "failing")
        own_server.client().set("{delayq}:transfer", "somebody", ex=100)
        assert client.get("/healthz?leader=required").json() == {"status": "ok", "redis": True, "leader": True}
        own_server.stop()
        answer = client.get("/healthz")
        assert (answer.status_code, answer.json()) == (503, {"status": "failing", "redis": False, "leader": None})
        answer = client.get("/metrics", headers={"X-As": "all"})
        assert (answer.status_code, series_in(answer.text)) == (200, {("redis_up",): 0})
        assert client.get("/scale?queue=orders", headers={"X-As": "all"}).status_code == 503
        own_server.start()
        assert client.get("/healthz").status_code == 200


def test_health_is_that_of_the_next_broker_of_a_list() -> None:
    """When a broker of a failover list ends, probes find the next one, though nobody sends any other request."""
    with PrivateRedis() as first, PrivateRedis() as second, client_of(f"{first.url};{second.url}") as client:
        assert client.get("/healthz").status_code == 200
        first.stop()
        assert client.get("/healthz").status_code == 503
        until(lambda: client.get("/healthz").status_code == 200, what="the second broker is used")
