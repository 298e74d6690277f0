"""The endpoints over a Redis of the test's own, and with the fixture ``delayed_tasks``: ``pytest``."""

from collections.abc import Iterator

import main
import pytest
from celery import Celery
from fastapi.testclient import TestClient

import celery_ext
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.testing.delayed_tasks import DelayedTasks


@pytest.fixture
def app() -> Iterator[Celery]:
    """An app like that of the server, on a Redis that nobody else uses."""
    with PrivateRedis() as redis:
        app = Celery("test", broker=redis.url, set_as_current=False)
        app.conf.broker_transport = main.tasks.app.conf.broker_transport
        yield app
        app.pool.force_close_all()


@pytest.fixture
def client(app: Celery) -> Iterator[TestClient]:
    """A client of the endpoints, which send by the app of the test."""
    main.api.dependency_overrides[main.celery_app] = lambda: app
    yield TestClient(main.api)
    main.api.dependency_overrides.clear()


def test_a_reminder_waits_until_it_is_cancelled(client: TestClient, app: Celery) -> None:
    sent = client.post("/reminders", json={"customer": "Ann", "in_s": 600, "id": "ann"})
    assert (sent.status_code, sent.json()) == (201, {"id": "ann"})
    [task] = celery_ext.select(app)
    assert (task.name, task.args) == ("tasks.remind", ["Ann"])
    assert client.get("/reminders/ann").json()["id"] == "ann"
    assert client.put("/reminders/ann/due", params={"eta": "2040-01-01T00:00:00Z"}).json() == {"outcome": "rescheduled"}
    assert client.get("/reminders").json() == [{"id": "ann", "due": "2040-01-01T00:00:00Z"}]
    assert client.delete("/reminders/ann").json() == {"outcome": "cancelled"}
    assert client.delete("/reminders/ann").status_code == 409
    assert client.get("/reminders/ann").status_code == 404


def test_many_reminders_are_sent_at_once(client: TestClient) -> None:
    wanted = [{"customer": f"customer {number}", "in_s": 60} for number in range(300)]
    assert client.post("/reminders/batch", json=wanted).json() == {"sent": 300}
    assert client.get("/reminders/count").json() == {"count": 300}
    first = client.get("/reminders", params={"limit": 1}).json()[0]["id"]
    assert client.post(f"/reminders/{first}/run").json() == {"outcome": "transferred"}
    assert client.get("/reminders/count").json() == {"count": 299}


def test_a_reminder_comes_after_ten_minutes(delayed_tasks: DelayedTasks) -> None:
    """With the fixture of kombu-delayq the app of the server may stay, and needs neither Redis nor a worker."""
    client = TestClient(main.api)
    client.post("/reminders", json={"customer": "Ann", "in_s": 600})
    assert delayed_tasks.has("tasks.remind", in_="10m", args=("Ann",))
    assert client.get("/reminders/count").json() == {"count": 1}
    delayed_tasks.advance("10m")
    assert [ran.result for ran in delayed_tasks.ran] == ["reminded Ann"]
    assert client.get("/reminders/count").json() == {"count": 0}
