"""The key of a limit is in a message, and the same, in whatever way the message comes to Redis."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery

from celery_ext import Call, asend, asend_many, browse, get, install, run_now, send_many
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.limits import LIMIT_HEADER
from celery_ext.periodic.entries import checked
from celery_ext.periodic.messages import RunMessages
from kombu_delayq import InvalidLimit
from tests.integration.serve.api.conftest import MakeApi, make_api
from tests.support.workers.harness import TRANSPORT

__all__ = ["make_api"]


@pytest.fixture(params=[False, True], ids=["celery", "fast"])
def app(redis_server: PrivateRedis, request: pytest.FixtureRequest) -> Celery:
    """An app with a task that declares a limit, and one that does not."""
    return app_of(redis_server, fast=request.param)


def app_of(server: PrivateRedis, *, fast: bool = False) -> Celery:
    app = Celery("limits", broker=server.url, set_as_current=False)
    app.conf.broker_transport = TRANSPORT
    install(app, fast_publish=fast)

    @app.task(name="export", shared=False, limit=("account", "account"), waiting_key=("account",), if_waiting="add")
    def export(account: Any, month: str = "May") -> None: ...

    @app.task(name="plain", shared=False)
    def plain(number: int) -> None: ...

    return app


def keys(app: Celery) -> list[str | None]:
    """Returns the keys of the tasks that wait, by due time."""
    return [(get(app, task.id) or task).headers.get(LIMIT_HEADER) for task in browse(app, limit=100)]


def test_many_calls_have_their_own_keys(app: Celery) -> None:
    """Each call has the key of its arguments, or that of all, or its own; by the name of the task, too."""
    own = [None, None, "account:x", ""]
    calls = [Call((n,), countdown=60 + n, task_id=f"{n}", limit=limit) for n, limit in enumerate(own)]
    assert send_many(app, "export", calls) == 4
    assert keys(app) == ["account:0", "account:1", "account:x", None]
    send_many(app, app.tasks["export"], calls, limit="all", if_waiting="replace")
    assert keys(app) == ["all", "all", "account:x", None]
    with pytest.raises(InvalidLimit):
        send_many(app, "export", [Call((None,))])


def test_calls_that_are_sent_one_by_one_have_their_own_keys(app: Celery) -> None:
    """So it is where Celery makes each message, as with a router that may look at arguments."""
    app.conf.task_routes = (lambda name, args, kwargs, options, task=None, **more: None,)
    send_many(app, "export", [Call((1,), countdown=60), Call((2,), countdown=70, limit="one")])
    send_many(app, "plain", [Call((1,), countdown=80), Call((2,), countdown=90, limit="")], limit="all")
    assert keys(app) == ["account:1", "one", "all", None]


def test_calls_of_asyncio_have_their_keys(app: Celery) -> None:
    """``asend`` and ``asend_many`` send what the others send."""

    async def send() -> None:
        await asend(app, "export", (1,), countdown=60)
        await asend(app, app.tasks["plain"], (1,), countdown=70, limit="account:ü")
        await asend_many(app, "export", [Call((2,), countdown=80)])

    asyncio.run(send())
    assert keys(app) == ["account:1", "account:%C3%BC", "account:2"]


def test_a_task_that_waits_once_has_its_key(app: Celery) -> None:
    """The one that waits under a waiting key has the key of its limit, that which replaces it its own."""
    export = app.tasks["export"]
    export.apply_async((1,), countdown=60, if_waiting="keep")
    export.apply_async((1,), countdown=60, if_waiting="keep", limit="other")
    assert keys(app) == ["account:1"]
    export.apply_async((1,), countdown=60, if_waiting="replace", limit="other")
    assert keys(app) == ["other"]


def test_a_run_of_a_periodic_entry_has_its_key(redis_server: PrivateRedis) -> None:
    """Runs that Celery makes and runs of a template have the key of the entry, or of the task's arguments."""
    app = app_of(redis_server)
    schedule = {
        "own": {"task": "plain", "schedule": timedelta(hours=1), "args": (1,), "options": {"limit": "account:7"}},
        "declared": {"task": "export", "schedule": timedelta(hours=1), "args": (8,)},
        "none": {"task": "export", "schedule": timedelta(hours=1), "args": (8,), "options": {"limit": ""}},
    }
    entries = checked(app, schedule).entries
    with app.connection_for_write() as connection:
        made = RunMessages(app, connection.default_channel)
        for _ in range(8):
            found = {}
            for name, entry in entries.items():
                [caught] = made.of(entry, 4_102_444_800_000, None)
                found[name] = f'"{LIMIT_HEADER}": "account:' in caught.offer.body and caught.offer.body
            assert '"account:7"' in found["own"]
            assert '"account:8"' in found["declared"]
            assert found["none"] is False


def test_a_task_over_http_has_its_key(make_api: MakeApi, redis_server: PrivateRedis) -> None:
    """``limit`` of a request goes before the declaration; a wrong one, and arguments of no key, are refused."""
    app = app_of(redis_server)
    api = make_api(app)
    tasks: list[dict[str, Any]] = [
        {"task": "export", "args": [7], "countdown": 60},
        {"task": "export", "args": [7], "countdown": 70, "limit": "account:a b"},
        {"task": "plain", "args": [7], "countdown": 80, "limit": "account:7", "headers": {"x-tenant": "7"}},
        {"task": "export", "args": [7], "countdown": 90, "limit": ""},
        {"task": "unknown", "countdown": 100, "limit": "account:7", "queue": "celery"},
    ]
    assert [api.post("/v1/tasks", json=task).status_code for task in tasks[:2]] == [201, 201]
    assert api.post("/v1/tasks:batch", json={"tasks": tasks[2:]}).json()["enqueued"] == 3
    assert keys(app) == ["account:7", "account:a%20b", "account:7", None, "account:7"]
    for wrong in ({"task": "export", "args": [None]}, {"task": "export", "args": [7], "limit": "ü"}):
        answer = api.post("/v1/tasks", json=wrong)
        assert answer.status_code == 422
        assert "limit" in answer.json()["detail"]


def test_a_task_that_is_moved_keeps_its_key(app: Celery, redis_server: PrivateRedis) -> None:
    """``run_now`` puts the message into its list as it is."""
    result = app.tasks["plain"].apply_async((1,), countdown=60, limit="account:7")
    assert run_now(app, result) == "transferred"
    [message] = redis_server.client().lrange("celery", 0, -1)
    assert f'"{LIMIT_HEADER}": "account:7"' in message
