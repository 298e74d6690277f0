"""Every route of the server with every kind of token: nobody gets in further than a token says."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import redis
from celery import Celery
from starlette.routing import Route
from starlette.testclient import TestClient

from celery_ext.connection import TRANSPORT
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.limits.keys import LimitKeys
from celery_ext.periodic.keys import PeriodicKeys
from celery_ext.serve import asgi
from celery_ext.serve.access.identity import READING, Action
from celery_ext.serve.access.tokens import write_tokens
from celery_ext.serve.application import routes
from celery_ext.serve.bulk_runs import BulkRuns
from celery_ext.serve.routes import ActionRoute
from kombu_delayq.message.letter_record import DEAD_LETTER, Reason, record
from kombu_delayq.store.keys import Keys
from tests.support.conditions import DEADLINE_S
from tests.support.serve.running import close, token_of

#: Routes that are open to all: they show nothing of the broker and change nothing in it.
OPEN = {
    *("GET /healthz", "GET /openapi.json"),
    *("GET /login", "POST /login", "POST /logout", "GET /static/{path:path}"),
}
#: What stands in a path, for the queue and the task that are somebody else's.
PARAMETERS = {
    "queue": "theirs",
    "id": "id-of-theirs",
    "lease": "lease-of-theirs",
    "entry": "entry-of-theirs",
    "limit": "account:key-of-theirs",
}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
#: The same for routes of dead letters.
DEAD = {"queue": "theirs.dead"}
QUERIES = {
    "GET /scale": "queue=theirs",
    "GET /queues": "name=theirs",
    "GET /tasks": "id=id-of-theirs",
    "GET /v1/limits/keys": "queue=theirs",
    "GET /v1/queues/{queue:name}/histogram": "",
}
_FORM = {"id": "id-of-theirs", "countdown": "10s", "queue": "theirs.dead", "all": "1", "confirm": "1"}
_FILTER = {"queue": "theirs", "task": "theirs.task", "countdown": "10s", "all": "1"}
_QUEUE = {"queue": "theirs"}
_ENTRY = {"entry": "entry-of-theirs"}
_LIMIT = {"limit": "account:key-of-theirs", "running": "1"}
_TASK = {"task": "theirs.task", "queue": "theirs", "args": [1], "countdown": 60}
#: What is sent to the routes that change something; None for no body.
BODIES: dict[str, Any] = {
    **dict.fromkeys(
        ("POST /do/run", "POST /do/cancel", "POST /do/reschedule", "POST /do/replay", "POST /do/drop"), _FORM
    ),
    **dict.fromkeys(("POST /do/pause", "POST /do/resume"), _QUEUE),
    **dict.fromkeys(("POST /v1/queues/{queue:name}:pause", "POST /v1/queues/{queue:name}:resume")),
    **dict.fromkeys(("POST /bulk/run", "POST /bulk/cancel", "POST /bulk/reschedule"), _FILTER),
    "POST /bulk/{id:name}/start": {"confirm": "1"},
    "POST /bulk/{id:name}/stop": {},
    **dict.fromkeys(("POST /do/periodic/pause", "POST /do/periodic/resume", "POST /do/periodic/run"), _ENTRY),
    **dict.fromkeys(f"POST /v1/periodic/{{entry:name}}:{act}" for act in ("pause", "resume", "run-now")),
    **dict.fromkeys((f"POST /do/limits/{word}" for word in ("set", "pause", "reset")), _LIMIT),
    "PUT /v1/limits/{limit:name}": {"running": 1},
    "DELETE /v1/limits/{limit:name}": None,
    "POST /v1/tasks": _TASK,
    "POST /v1/tasks:batch": {"tasks": [_TASK]},
    "POST /v1/tasks/{id:name}:run": None,
    "PATCH /v1/tasks/{id:name}": {"countdown": 10},
    "DELETE /v1/tasks/{id:name}": None,
    "POST /v1/queues/{queue:name}:take": None,
    "POST /v1/leases/{lease:name}:ack": {"tags": ["1"]},
    "POST /v1/leases/{lease:name}:release": {"tags": ["1"]},
    "POST /v1/leases/{lease:name}:extend": {"seconds": 10},
    "POST /v1/dead-letters/{queue:name}:replay": {"all": True},
    "POST /v1/dead-letters/{queue:name}:drop": {"all": True},
    "POST /v1/bulk": {"action": "cancel", "filter": {"queue": "theirs", "task": "theirs.task"}},
    "POST /v1/bulk/{id:name}:start": {"confirm": 1},
    "POST /v1/bulk/{id:name}:stop": None,
}
#: Routes of a bulk action, which begins as a cancel here, need its action beside their own.
_OF_JOBS = (
    *("GET /bulk/{id:name}", "GET /bulk/{id:name}/start", "POST /bulk/{id:name}/start", "POST /bulk/{id:name}/stop"),
    "GET /v1/bulk/{id:name}",
)
BULK = dict.fromkeys(
    (*_OF_JOBS, "POST /v1/bulk", "POST /v1/bulk/{id:name}:start", "POST /v1/bulk/{id:name}:stop"), Action.CANCEL
)
#: Nobody who may not see the task and its queue comes to know these.
SECRETS = ("args-of-theirs", "theirs.task", "unseen-queue", "letter-of-theirs", "schedule-of-theirs", "key-of-theirs")
ALL = list(Action)


def name_of(route: ActionRoute) -> str:
    return f"{route.method} {route.path}"


ROUTES = {name_of(route): route for route in routes()}
GUARDED = {name: route for name, route in ROUTES.items() if name not in OPEN}


class Shop:
    """A server in front of a broker with somebody else's tasks, and the tokens of its callers."""

    def __init__(self, server: PrivateRedis, file: Path) -> None:
        self.client = redis.Redis(port=server.port)
        self.client.flushall()
        self.app = Celery("shop", broker=server.url, set_as_current=False)
        self.app.conf.update(broker_transport=TRANSPORT, task_default_queue="mine", task_create_missing_queues=True)
        self._file = file
        write_tokens(file, [])
        settings: Any = {"tokens": str(file), "dead_letters": ("theirs.dead",)}
        self._applications = {write: asgi(self.app, allow_write=write, **settings) for write in (True, False)}
        self.fill()

    def fill(self) -> None:
        """Puts the tasks into the broker, as at the start of each test, once bulk actions have ended."""
        for application in self._applications.values():
            for run in application.state.serve.broker.part(BulkRuns)._runs.values():  # type: ignore[attr-defined]
                assert run.thread
                run.thread.join(DEADLINE_S)
        self.client.flushall()
        for queue in ("theirs", "unseen-queue"):
            for countdown in (3600, None):
                task_id = f"id-of-{queue}" if countdown else f"ready-of-{queue}"
                self.app.send_task(
                    f"{queue}.task", [f"args-of-{queue}"], queue=queue, task_id=task_id, countdown=countdown
                )
        entry = {"digest": "", "task": "theirs.task", "schedule": "schedule-of-theirs", "missed": "last", "is_on": True}
        self.client.hset(PeriodicKeys(Keys()).entries, "entry-of-theirs", json.dumps({**entry, "queues": ["theirs"]}))
        limits = LimitKeys(Keys()).limits("")
        self.client.hset(limits, mapping={"": "1", "account": '{"running": 2}', "@theirs": "1"})
        self.client.hset(limits, "=account:key-of-theirs", '{"running": 5}')
        reason = record(Reason.FAILED, "letter-of-theirs", retries=0, exchange="", routing_key="theirs", worker="w")
        letter = {"queue": "theirs.dead", "task_id": "letter", DEAD_LETTER: reason}
        self.app.send_task("theirs.task", ["letter-of-theirs"], **letter)

    def own(self, route: ActionRoute, name: str) -> dict[str, str]:
        """Lets a caller who may do everything take a lease, or begin a bulk action. Returns its id."""
        client = self.serve(name, actions=ALL)
        if "lease" in route.param_convertors:
            self.fill()
            answer = client.post("/v1/queues/theirs:take?lease=600s")
            return {"lease": str(answer.json()["lease"]["id"])}
        if name_of(route) in BULK:
            answer = client.post("/bulk/cancel", content=urlencode(_FILTER), headers=FORM)
            return {"id": answer.headers["Location"].rpartition("/")[2]}
        return {}

    def serve(self, name: str = "somebody", *, allow_write: bool = True, **token: Any) -> TestClient:
        """Returns a client whose token is limited as given."""
        write_tokens(self._file, [token_of("dq_theirs", name, **token)])
        return TestClient(
            self._applications[allow_write], headers={"Authorization": "Bearer dq_theirs"}, follow_redirects=False
        )

    def close(self) -> None:
        """Ends the servers."""
        for application in self._applications.values():
            close(application)

    def content(self) -> dict[bytes, bytes]:
        """Returns all that Redis has, but what a server writes again and again.

        These are the states of bulk actions, and kombu's bindings of the queue for the answers of workers.
        """
        others = b"delayq:bulk:", b"_kombu.binding"
        keys = [key for key in self.client.scan_iter() if not key.startswith(others)]
        return {key: self.client.dump(key) or b"" for key in keys}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with PrivateRedis() as server:
        shop = Shop(server, tmp_path_factory.mktemp("tokens") / "tokens.json")
        yield shop
        shop.close()


def send(client: TestClient, route: ActionRoute, own: dict[str, str] | None = None) -> Any:
    """Sends a good request to a route, about what is somebody else's, or the caller's ``own``."""
    name, path = name_of(route), route.path
    parameters = PARAMETERS | (DEAD if "dead-letters" in path else {}) | (own or {})
    for parameter in route.param_convertors:
        start = path.index(f"{{{parameter}")
        path = path[:start] + parameters[parameter] + path[path.index("}", start) + 1 :]
    body, url = BODIES.get(name), f"{path}?{QUERIES.get(name, '')}"
    if body is not None and not path.startswith("/v1/"):
        return client.request(route.method, url, content=urlencode(body), headers=FORM)
    return client.request(route.method, url, json=body)


def test_every_route_names_its_action_or_is_open_on_purpose() -> None:
    """A new route without an action fails here, and so does one that is sent no good request by these tests."""
    assert all(isinstance(route, Route) for route in routes())
    assert {name for name, route in ROUTES.items() if route.action is None} == OPEN
    assert {name for name, route in GUARDED.items() if route.method != "GET"} == BODIES.keys()


@pytest.mark.parametrize("name", GUARDED)
def test_a_token_without_the_action_is_refused(shop: Shop, name: str) -> None:
    """A token for all actions but that of the route changes nothing, and is told which action it lacks."""
    route, before = GUARDED[name], shop.content()
    answer = send(shop.serve(actions=[action for action in ALL if action is not route.action]), route)
    assert answer.status_code == 403, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["action"] == route.action
    assert f"somebody may not {route.action}" in answer.json()["detail"]
    assert "dq_" not in answer.text
    assert shop.content() == before


@pytest.mark.parametrize("name", GUARDED)
def test_a_token_with_only_the_action_is_let_in(shop: Shop, name: str) -> None:
    """The action of the route is enough for what the route does."""
    route = GUARDED[name]
    shop.fill()
    try:
        own = shop.own(route, "somebody")
        answer = send(shop.serve(actions={route.action, BULK.get(name, route.action)}), route, own)
    finally:
        shop.fill()
    assert answer.status_code < 400, answer.text


@pytest.mark.parametrize("name", BULK)
def test_a_bulk_action_needs_what_it_does(shop: Shop, name: str) -> None:
    """Who began a bulk action, and lost the right to what it does, can neither start nor see it."""
    own, before = shop.own(GUARDED[name], "somebody"), shop.content()
    everything_else = [action for action in ALL if action is not BULK[name]]
    assert send(shop.serve(actions=everything_else), GUARDED[name], own).status_code == 403
    assert shop.content() == before


@pytest.mark.parametrize("name", GUARDED)
def test_without_a_token_nobody_gets_in(shop: Shop, name: str) -> None:
    """Whoever sends no token, a wrong one or another scheme is asked for one."""
    route, before = GUARDED[name], shop.content()
    for given in (None, "Bearer dq_other", "Bearer ", "Basic ZHFfdGhlaXJzOg==", "Bearer dq_theirs x", "dq_theirs"):
        client = shop.serve(actions=ALL)
        del client.headers["Authorization"]
        if given:
            client.headers["Authorization"] = given
        answer = send(client, route)
        assert answer.status_code == 401, (given, answer.text)
        assert answer.headers["WWW-Authenticate"].startswith('Bearer realm="delayq"')
        assert not any(secret in answer.text for secret in SECRETS)
    assert shop.content() == before


@pytest.mark.parametrize("name", [name for name, route in GUARDED.items() if route.action not in READING])
def test_a_server_that_only_shows_refuses_every_change(shop: Shop, name: str) -> None:
    """Without allow_write a token for everything changes nothing."""
    before = shop.content()
    assert send(shop.serve(actions=ALL, allow_write=False), GUARDED[name]).status_code == 403
    assert shop.content() == before


@pytest.mark.parametrize("limit", [{"queues": ["mine"]}, {"tasks": ["mine.*"]}, {"queues": []}, {"tasks": []}], ids=str)
@pytest.mark.parametrize("name", GUARDED)
def test_what_is_of_other_queues_and_tasks_is_neither_seen_nor_changed(
    shop: Shop, name: str, limit: dict[str, Any]
) -> None:
    """A token for all actions, but for other queues or other tasks, gets nothing of these and changes nothing."""
    others = shop.own(GUARDED[name], "owner")
    before = shop.content()
    answer = send(shop.serve(actions=ALL, **limit), GUARDED[name], others)
    assert answer.status_code < 500, answer.text
    sent = json.dumps(BODIES.get(name))
    seen = [secret for secret in SECRETS if secret in answer.text and secret not in sent]
    if "tasks" in limit:  # it may see all queues
        seen = [secret for secret in seen if secret != "unseen-queue"]
    assert seen == []
    assert shop.content() == before
