"""``POST /v1/tasks`` and ``POST /v1/tasks:batch``."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from celery.signals import before_task_publish
from starlette.testclient import TestClient

from celery_ext import install, select
from celery_ext.delays.install import is_installed
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve.access.identity import Action, Caller
from celery_ext.waiting import DelayedTask, control
from tests.integration.serve.api.conftest import MakeApi, shop

REMIND = {"task": "shop.remind", "args": [1]}
FUTURE = datetime(2040, 1, 2, 3, 4, 5, 678000, UTC)


def waiting(server: PrivateRedis, task_id: str) -> DelayedTask:
    """Returns a waiting task as any app finds it."""
    found = control.get(shop(server.url), task_id)
    assert found is not None
    return found


@pytest.mark.journey
def test_a_task_waits_as_if_an_app_had_sent_it(api: TestClient, redis_server: PrivateRedis) -> None:
    """All that a request says of a task is in its message, and the answer says where it waits until when."""
    asked = {
        **REMIND,
        "kwargs": {"again": True},
        "queue": "ü/b:c%2F",
        "eta": FUTURE.isoformat(),
        "expires": "2041-01-01T00:00:00+02:00",
        "priority": 3,
        "delay_chain": "4m,1h",
        "id": "a/b:run%2F ü",
        "headers": {"traceparent": "00-ab-cd-01", "x-tenant": "7"},
    }
    answer = api.post("/v1/tasks", json=asked)
    assert answer.status_code == 201, answer.text
    assert answer.json() == {
        "id": asked["id"],
        "task": "shop.remind",
        "outcome": "delayed",
        "queue": asked["queue"],
        "due": "2040-01-02T03:04:05.678Z",
    }
    task = waiting(redis_server, "a/b:run%2F ü")
    assert (task.queue, task.due, task.priority, task.delay_chain) == (asked["queue"], FUTURE, 3, "4m,1h")
    assert (task.args, task.kwargs) == ([1], {"again": True})
    assert task.headers["traceparent"] == "00-ab-cd-01"
    assert task.headers["x-tenant"] == "7"
    assert datetime.fromisoformat(task.headers["expires"]) == datetime(2040, 12, 31, 22, tzinfo=UTC)
    where = api.get(answer.headers["Location"])
    assert where.json()["id"] == asked["id"]


def test_a_task_that_waits_is_kept_or_replaced(api: TestClient, redis_server: PrivateRedis) -> None:
    """With ``if_waiting`` one task of an id waits, and the answer says which; also for the items of a batch."""

    def enqueue(number: int, mode: str) -> tuple[str, bool]:
        wanted = {**REMIND, "args": [number], "id": "one", "countdown": 60, "if_waiting": mode}
        answer = api.post("/v1/tasks", json=wanted)
        assert answer.status_code == 201, answer.text
        return answer.json()["outcome"], answer.json()["due"] is None

    outcomes = [enqueue(1, "keep"), enqueue(2, "keep")]
    wait = [task.args for task in select(shop(redis_server.url), queues="celery")]
    assert (outcomes, wait) == ([("delayed", False), ("kept", True)], [[1]])
    assert enqueue(3, "replace") == ("replaced", False)
    assert waiting(redis_server, "one").args == [3]
    items = [{**REMIND, "id": "one", "countdown": 9, "if_waiting": "keep"}, {**REMIND, "id": "two", "countdown": 9}]
    results = api.post("/v1/tasks:batch", json={"tasks": items}).json()["results"]
    assert [(item["outcome"], item["id"]) for item in results] == [("kept", "one"), ("delayed", "two")]


def test_a_task_of_an_installed_app_is_kept_or_replaced(make_api: MakeApi, redis_server: PrivateRedis) -> None:
    """A page of messages compares with nothing, although such an app makes these messages by a template."""
    app = shop(redis_server.url)
    install(app)
    api = make_api(app)
    wanted = {**REMIND, "id": "one", "countdown": 60}
    done = [api.post("/v1/tasks", json={**wanted, "if_waiting": mode}) for mode in ("keep", "keep", "replace")]
    assert [answer.json()["outcome"] for answer in done] == ["delayed", "kept", "replaced"]


@pytest.mark.parametrize("installs", [True, False])
def test_a_key_keeps_a_task_of_another_id(make_api: MakeApi, redis_server: PrivateRedis, installs: bool) -> None:
    """Each task of a ``waiting_key`` has its own id; an answer has that of the one that waits, and the key finds it."""
    app = shop(redis_server.url)
    if installs:
        install(app)
    api, wanted = make_api(app), {**REMIND, "waiting_key": "one", "countdown": 60}
    first, second = (api.post("/v1/tasks", json=wanted).json() for _ in range(2))
    assert (first["outcome"], second["outcome"], second["id"]) == ("delayed", "kept", first["id"])
    newest = api.post("/v1/tasks", json={**wanted, "if_waiting": "replace"}).json()
    assert (newest["outcome"], first["id"] == newest["id"]) == ("replaced", False)
    added = {**wanted, "if_waiting": "add"}
    beside = [api.post("/v1/tasks", json=added, headers={"Idempotency-Key": "a"}).json()["id"] for _ in range(2)]
    assert len({first["id"], newest["id"], *beside}) == 3
    assert api.get("/v1/tasks/one").json()["id"] in {newest["id"], *beside}
    assert api.delete("/v1/tasks/one").json()["outcome"] == "cancelled"
    assert not list(select(shop(redis_server.url)))


def test_an_app_that_its_first_connection_installs_keeps_tasks(make_api: MakeApi, redis_server: PrivateRedis) -> None:
    """In a process with Celery's worker, the first request itself installs the extension of its app."""
    import celery.worker.consumer  # noqa: F401  # what tells a worker's process from others

    app = shop(redis_server.url_of(7))  # a URL to which this process has no connection yet
    api = make_api(app)
    assert not is_installed(app)
    wanted = {**REMIND, "id": "one", "countdown": 60, "if_waiting": "keep"}
    done = [api.post("/v1/tasks", json=wanted | {"args": [number]}) for number in range(2)]
    assert ([answer.json()["outcome"] for answer in done], is_installed(app)) == (["delayed", "kept"], True)


def test_a_countdown_counts_from_the_request(api: TestClient, redis_server: PrivateRedis) -> None:
    """A countdown is a due time that many seconds away; so is an expiry in seconds."""
    before = datetime.now(UTC)
    answer = api.post("/v1/tasks", json={**REMIND, "countdown": 60.5, "expires": 90})
    took, rounded = datetime.now(UTC) - before, timedelta(seconds=0.1)
    task = waiting(redis_server, answer.json()["id"])
    assert -rounded < task.due - before - timedelta(seconds=60.5) < took + rounded
    assert datetime.fromisoformat(answer.json()["due"]) <= task.due
    expires = datetime.fromisoformat(task.headers["expires"])
    assert -rounded < expires - before - timedelta(seconds=90) < took + rounded


@pytest.mark.parametrize(
    "when", [{}, {"countdown": 0}, {"eta": "2001-01-01T00:00:00Z"}, {"eta": "0001-01-01T00:00:00+14:00"}]
)
def test_a_task_that_is_due_goes_to_its_queue(api: TestClient, client: redis.Redis, when: dict[str, Any]) -> None:
    """Without a time, or with one that is past, a task does not wait."""
    answer = api.post("/v1/tasks", json={**REMIND, **when})
    assert (answer.status_code, answer.json()["outcome"], answer.json()["due"]) == (201, "queued", None)
    assert client.llen("celery") == 1
    assert client.exists("delayq:{celery}:due") == 0


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"countdown": -1}, "$.countdown"),
        ({"countdown": 1e12}, "$.countdown"),
        ({"countdown": "60"}, "$.countdown"),
        ({"countdown": True}, "$.countdown"),
        ({"eta": "tomorrow"}, "$.eta"),
        ({"eta": "2030-01-01T00:00:00"}, "$.eta"),
        ({"eta": 1893456000}, "$.eta"),
        ({"eta": "2030-01-01T00:00:00Z", "countdown": 1}, "$"),
        ({"expires": 0}, "$.expires"),
        ({"priority": 10}, "$.priority"),
        ({"delay_chain": "4x"}, "$.delay_chain"),
        ({"id": ""}, "$.id"),
        ({"id": "x" * 501}, "$.id"),
        ({"task": ""}, "$.task"),
        ({"args": "ab"}, "$.args"),
        ({"if_waiting": "keep"}, "$.waiting_key"),
        ({"waiting_key": "k", "id": "i"}, "$"),
        ({"if_waiting": "skip", "id": "i"}, "$.if_waiting"),
        ({"kwargs": [1]}, "$.kwargs"),
        ({"countdwon": 1}, "$"),
        ({"headers": {"task": "shop.other"}}, "key in $.headers"),
        ({"headers": {"callbacks": "x"}}, "key in $.headers"),
    ],
)
def test_a_wrong_field_is_named(api: TestClient, client: redis.Redis, wrong: dict[str, Any], path: str) -> None:
    """A request with a wrong field is refused with the path of the field, and nothing is enqueued."""
    answer = api.post("/v1/tasks", json={**REMIND, **wrong})
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert [error["path"] for error in answer.json()["errors"]] == [path]
    assert client.dbsize() == 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b'{"task":', 400),
        (b'{"task": "shop.remind", "countdown": NaN}', 400),
        (b'{"task": "shop.remind", "countdown": 1e999}', 422),
        (b'{"task": "\xff"}', 400),
        (b'{"task": "\\ud800"}', 400),
        (b"[" * 100_000, 422),
        (b'{"task": "t", "args": ' + b"[" * 100_000, 400),
        (b"null", 422),
    ],
    ids=["empty", "cut", "nan", "huge", "latin-1", "surrogate", "deep", "deep-arguments", "null"],
)
def test_what_is_no_request_is_refused(make_api: MakeApi, client: redis.Redis, body: bytes, status: int) -> None:
    """A body that is no JSON, no text or far too deep gets a clear 4xx."""
    answer = make_api().post("/v1/tasks", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text[:1000]
    assert client.dbsize() == 0


def test_other_content_types_are_refused(make_api: MakeApi) -> None:
    """A body that does not say it is JSON is refused, so that no form of another site can send it."""
    api = make_api()
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = api.post("/v1/tasks", content=b'{"task":"t"}', headers={"Content-Type": kind})
        assert answer.status_code == 415


def test_wrong_arguments_are_refused_where_the_app_knows_the_task(make_api: MakeApi, client: redis.Redis) -> None:
    """Celery's check of the arguments is the server's."""
    answer = make_api().post("/v1/tasks", json={"task": "shop.remind", "args": [1, 2, 3]})
    assert answer.status_code == 422
    assert "remind() takes from 1 to 2 positional arguments" in answer.json()["detail"]
    assert client.exists("celery") == 0


def test_a_delay_beyond_the_option_is_refused(make_api: MakeApi, redis_server: PrivateRedis) -> None:
    """``max_delay`` of the transport bounds what may be enqueued."""
    api = make_api(shop(redis_server.url, broker_transport_options={"max_delay": 3600}))
    assert api.post("/v1/tasks", json={**REMIND, "countdown": 3500}).status_code == 201
    for late in ({"countdown": 3700}, {"eta": FUTURE.isoformat()}):
        answer = api.post("/v1/tasks", json={**REMIND, **late})
        assert answer.status_code == 422
        assert "max_delay" in answer.json()["detail"]


def test_each_item_of_a_batch_has_its_own_outcome(api: TestClient, client: redis.Redis) -> None:
    """Good items are enqueued, wrong ones say in which field they are wrong."""
    items = [
        {**REMIND, "id": "one"},
        {"task": 7},
        {**REMIND, "id": "two", "countdown": 60, "queue": "other"},
        {**REMIND, "delay_chain": "x"},
        {"task": "unknown.task"},
    ]
    answer = api.post("/v1/tasks:batch", json={"tasks": items})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["enqueued"] == 3
    assert [(item["status"], item["outcome"]) for item in found["results"]] == [
        (201, "queued"),
        (422, "refused"),
        (201, "delayed"),
        (422, "refused"),
        (201, "queued"),
    ]
    paths = [item["problem"]["errors"][0]["path"] for item in found["results"] if "problem" in item]
    assert paths == ["$.tasks[1].task", "$.tasks[3].delay_chain"]
    assert (client.llen("celery"), client.zcard("delayq:{other}:due")) == (2, 1)


def test_a_batch_of_a_thousand(make_api: MakeApi, client: redis.Redis) -> None:
    """1,000 tasks are enqueued in order; more are refused as a whole."""
    api = make_api()
    items = [{**REMIND, "id": str(number)} for number in range(1_000)]
    found = api.post("/v1/tasks:batch", json={"tasks": items}).json()
    assert found["enqueued"] == client.llen("celery") == 1_000
    assert [item["id"] for item in found["results"]] == [item["id"] for item in items]
    answer = api.post("/v1/tasks:batch", json={"tasks": [*items, REMIND]})
    assert (answer.status_code, client.llen("celery")) == (422, 1_000)


def test_a_caller_enqueues_its_own_tasks_to_its_own_queues(make_api: MakeApi, redis_server: PrivateRedis) -> None:
    """Patterns of queues and tasks hold for the queue to which the app routes a task, and for each item of a batch."""
    routes = {"shop.secret": {"queue": "secret"}, "shop.fan": {"exchange": "news", "routing_key": "x"}}
    caller = Caller("limited", frozenset({Action.ENQUEUE}), ("celery", "orders.*"), ("shop.*",))
    api = make_api(shop(redis_server.url, task_routes=routes), caller)
    wanted = [
        ({"task": "shop.remind", "args": [1]}, 201),
        ({"task": "shop.remind", "args": [1], "queue": "orders.eu"}, 201),
        ({"task": "shop.remind", "args": [1], "queue": "secret"}, 403),
        ({"task": "shop.secret"}, 403),
        ({"task": "shop.secret", "queue": "orders.eu"}, 201),
        ({"task": "shop.fan"}, 403),
        ({"task": "bank.pay"}, 403),
    ]
    for body, status in wanted:
        answer = api.post("/v1/tasks", json=body)
        assert answer.status_code == status, (body, answer.text)
    answer = api.post("/v1/tasks:batch", json={"tasks": [body for body, _ in wanted]})
    assert [item["status"] for item in answer.json()["results"]] == [status for _, status in wanted]
    sent = redis_server.client()
    assert sorted(sent.keys("*")) == sorted(set(sent.keys("*")) - {"secret", "news"})


@pytest.mark.parametrize("mode", ["keep", "replace"])
def test_a_caller_of_some_tasks_meets_no_other_by_its_id(
    make_api: MakeApi, redis_server: PrivateRedis, mode: str
) -> None:
    """Whoever may not enqueue all tasks neither replaces a waiting one by its id, nor learns that one waits.

    The mode may be the request's or the task's; an id that the key of a task makes meets no other task.
    """
    app = shop(redis_server.url)
    install(app)

    @app.task(name="shop.index", shared=False, waiting_key=("order",), if_waiting=mode)
    def index(order: int) -> None:
        """Indexes an order."""

    assert make_api().post("/v1/tasks", json={"task": "bank.pay", "id": "pay", "countdown": 60}).status_code == 201
    limited = Caller("limited", frozenset({Action.ENQUEUE}), ("celery",), ("shop.*",))
    keyed = {**REMIND, "waiting_key": "pay", "countdown": 60}
    assert make_api(shop(redis_server.url), limited).post("/v1/tasks", json=keyed).status_code == 403
    api = make_api(app, limited)
    indexing = {"task": "shop.index", "args": [1], "countdown": 60}
    items = [
        {**REMIND, "id": "pay", "countdown": 60, "if_waiting": mode},
        {**REMIND, "id": "free", "countdown": 60, "if_waiting": mode},
        {**indexing, "id": "pay"},
        keyed,
    ]
    answers = [api.post("/v1/tasks", json=item) for item in items]
    answers_of_items = api.post("/v1/tasks:batch", json={"tasks": items}).json()["results"]
    assert {answer.status_code for answer in answers} == {item["status"] for item in answers_of_items} == {403}
    assert all("needs a token for all tasks" in answer.json()["detail"] for answer in answers)
    assert [task.name for task in select(shop(redis_server.url), queues="celery")] == ["bank.pay"]
    outcomes = [api.post("/v1/tasks", json=indexing).json()["outcome"] for _ in range(2)]
    assert outcomes == ["delayed", {"keep": "kept", "replace": "replaced"}[mode]]
    added = {**indexing, "id": "pay", "if_waiting": "add"}
    assert api.post("/v1/tasks", json=added).json()["outcome"] == "delayed"


def test_a_router_in_code_is_asked_once(make_api: MakeApi, redis_server: PrivateRedis) -> None:
    """The queue that was checked is the queue to which the task goes, even if the router changes its mind."""
    asked = []

    def router(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **more: Any) -> dict[str, str]:
        asked.append(args)
        return {"queue": "celery" if len(asked) == 1 else "secret"}

    caller = Caller("limited", frozenset({Action.ENQUEUE}), ("celery",), ("shop.*",))
    answer = make_api(shop(redis_server.url, task_routes=[router]), caller).post("/v1/tasks", json=REMIND)
    assert (answer.status_code, answer.json()["queue"]) == (201, "celery")
    assert len(asked) == 1
    assert redis_server.client().llen("celery") == 1


def test_signals_of_an_app_are_heard(make_api: MakeApi, client: redis.Redis) -> None:
    """An app that listens to published tasks, as tracers do, hears of each task, with its own id."""
    heard = []

    def listen(headers: dict[str, Any] | None = None, **given: Any) -> None:
        heard.append((headers or {})["id"])

    before_task_publish.connect(listen)
    try:
        api = make_api()
        for number in range(2):
            assert (
                api.post("/v1/tasks", json={**REMIND, "id": str(number), "countdown": 60}).json()["outcome"]
                == "delayed"
            )
    finally:
        before_task_publish.disconnect(listen)
    assert heard == ["0", "1"]
    assert client.zcard("delayq:{celery}:due") == 2


def test_queues_that_somebody_names_are_not_added_to_the_app(make_api: MakeApi, redis_server: PrivateRedis) -> None:
    """Names from requests do not fill the memory of the server; an app that creates no queues refuses them."""
    app = shop(redis_server.url)
    api = make_api(app)
    for number in range(3):
        assert api.post("/v1/tasks", json={**REMIND, "queue": f"q{number}"}).status_code == 201
    assert set(app.amqp.queues) == {"celery"}
    strict = shop(redis_server.url, task_create_missing_queues=False, task_queues=None)
    answer = make_api(strict).post("/v1/tasks", json={**REMIND, "queue": "other"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "$.queue"


def test_an_app_that_runs_tasks_at_once_enqueues_none(make_api: MakeApi, redis_server: PrivateRedis) -> None:
    """With ``task_always_eager`` a request would run code in the server."""
    answer = make_api(shop(redis_server.url, task_always_eager=True)).post("/v1/tasks", json=REMIND)
    assert answer.status_code == 501


def test_a_task_goes_to_no_queue_with_the_name_of_a_key(api: TestClient, redis_server: PrivateRedis) -> None:
    """Whoever may enqueue could stop all workers with a list in the place of one of our keys: it is a wrong field."""
    answer = api.post("/v1/tasks", json={**REMIND, "queue": "{delayq}:paused"})
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "$.queue")
    again = api.post("/v1/tasks", json={**REMIND, "queue": "unacked", "id": "i", "if_waiting": "keep"})
    assert (again.status_code, "kept for keys" in again.json()["detail"]) == (422, True)
    tasks = [{**REMIND, "queue": queue} for queue in ("{delayq}:consumers", "orders", "_kombu.binding.orders")]
    batch = api.post("/v1/tasks:batch", json={"tasks": tasks}).json()
    assert [one["status"] for one in batch["results"]] == [422, 201, 422]
    client = redis_server.client()
    assert [key for key in client.keys("*") if client.type(key) == "list"] == ["orders"]
