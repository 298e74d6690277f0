"""``/v1/tasks``: waiting tasks are found, listed, searched for and changed over HTTP."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
import redis
from starlette.testclient import TestClient

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve.access.identity import Action, Caller
from celery_ext.serve.application import routes
from tests.integration.serve.api.conftest import MakeApi, shop
from tests.support.commands.shell import Audit

DUE = datetime(2040, 1, 2, 3, 4, 5, 678000, UTC)
#: Ids with all that has a meaning in URLs.
ODD = ["a/b", "a%2Fb", "x:run", "x:run:run", "a?b#c", "ü 漢 \N{ROCKET}", "..", ".", "a\x00b", "a;b=c,d+e&f", "\\"]


def wait(api: TestClient, task_id: str, after_s: float = 0, **more: Any) -> None:
    """Enqueues a task that waits."""
    eta = (DUE + timedelta(seconds=after_s)).isoformat()
    asked = {"task": "shop.remind", "args": [1], "eta": eta, "id": task_id, **more}
    answer = api.post("/v1/tasks", json=asked)
    assert answer.status_code == 201, answer.text


def path(task_id: str, verb: str = "") -> str:
    """Returns the path of a task."""
    return f"/v1/tasks/{quote(task_id, safe='').replace('.', '%2E')}{verb}"


@pytest.mark.journey
def test_a_task_is_shown(api: TestClient, redis_server: PrivateRedis) -> None:
    """An answer has all that the message says, and where the task stands in its delay chain."""
    wait(api, "one", args=[{"a": None}], kwargs={"again": "é"}, delay_chain="4m,1h", priority=6)
    found = api.get("/v1/tasks/one").json()
    assert {name: found[name] for name in ("id", "task", "queue", "due", "priority", "retries", "state")} == {
        "id": "one",
        "task": "shop.remind",
        "queue": "celery",
        "due": "2040-01-02T03:04:05.678Z",
        "priority": 6,
        "retries": 0,
        "state": "delayed",
    }
    assert (found["args"], found["kwargs"]) == ([{"a": None}], {"again": "é"})
    assert found["headers"]["id"] == "one"
    assert found["due_in_s"] == pytest.approx((DUE - datetime.now(UTC)).total_seconds(), abs=60)
    ahead = [
        {"delay_s": 240.0, "at": "2040-01-02T03:08:05.678Z"},
        {"delay_s": 3600.0, "at": "2040-01-02T04:08:05.678Z"},
    ]
    assert (found["delay_chain"], found["steps"]) == ("4m,1h", {"behind": [], "ahead": ahead})
    shop(redis_server.url).send_task("shop.remind", task_id="two", eta=DUE, retries=1, delay_chain="4m,1h")
    steps = {"behind": [240.0], "ahead": [{"delay_s": 3600.0, "at": "2040-01-02T04:04:05.678Z"}]}
    assert api.get("/v1/tasks/two").json()["steps"] == steps


@pytest.mark.parametrize("task_id", ODD, ids=range(len(ODD)))
def test_any_id_works_in_a_path(make_api: MakeApi, task_id: str) -> None:
    """A task with any id is shown, rescheduled, run and cancelled, once its id is percent-encoded."""
    api = make_api()
    wait(api, task_id, queue=task_id)
    assert api.get(path(task_id)).json()["id"] == task_id
    assert api.get(path(task_id).replace("/v1/tasks", "/v1/queues")).json()["delayed"] == 1
    assert api.patch(path(task_id), json={"countdown": 60}).json()["outcome"] == "rescheduled"
    assert api.delete(path(task_id)).json() == {"id": task_id, "outcome": "cancelled"}
    wait(api, task_id)
    assert api.post(path(task_id, ":run")).json() == {"id": task_id, "outcome": "transferred"}


def test_a_task_is_rescheduled(api: TestClient) -> None:
    """Answers are the store's words; a time that is past sends the task to its queue."""
    wait(api, "one")
    answer = api.patch("/v1/tasks/one", json={"eta": "2041-01-01T00:00:00+01:00"})
    assert answer.json() == {"id": "one", "outcome": "rescheduled", "due": "2040-12-31T23:00:00.000Z"}
    assert api.get("/v1/tasks/one").json()["due"] == "2040-12-31T23:00:00.000Z"
    assert api.patch("/v1/tasks/one", json={"countdown": 90}).json()["outcome"] == "rescheduled"
    assert api.get("/v1/tasks/one").json()["due_in_s"] == pytest.approx(90, abs=60)
    assert api.patch("/v1/tasks/one", json={"countdown": 0}).json() == {"id": "one", "outcome": "transferred"}


@pytest.mark.parametrize("body", [{}, {"eta": "2041-01-01T00:00:00Z", "countdown": 1}, {"countdown": -1}, {"x": 1}])
def test_a_time_that_is_none_changes_nothing(make_api: MakeApi, body: dict[str, Any]) -> None:
    """A change without a clear time is refused."""
    api = make_api()
    wait(api, "one")
    assert api.patch("/v1/tasks/one", json=body).status_code == 422
    assert api.get("/v1/tasks/one").json()["due"] == "2040-01-02T03:04:05.678Z"


def test_what_does_not_wait_is_not_delayed(api: TestClient) -> None:
    """An unknown id gets 404 with the store's word, from each route."""
    calls = [
        api.get("/v1/tasks/unknown"),
        api.delete("/v1/tasks/unknown"),
        api.post("/v1/tasks/unknown:run"),
        api.patch("/v1/tasks/unknown", json={"countdown": 1}),
    ]
    for answer in calls:
        assert (answer.status_code, answer.json()["outcome"], answer.json()["id"]) == (404, "not_delayed", "unknown")
        assert answer.headers["content-type"] == "application/problem+json"


def test_changes_are_noted(make_api: MakeApi, audit: Audit) -> None:
    """The audit says who did what to which task, and what did not happen is not in it."""
    api = make_api()
    for task_id in ("one", "two"):
        wait(api, task_id)
    api.delete("/v1/tasks/one")
    api.delete("/v1/tasks/one")
    api.patch("/v1/tasks/two", json={"countdown": 90})
    api.post("/v1/tasks/two:run")
    assert [(line["who"], line["action"], *line["what"]["ids"]) for line in audit()] == [
        ("tester", "run", "two"),
        ("tester", "reschedule", "two"),
        ("tester", "cancel", "one"),
    ]


def test_pages_are_in_the_order_of_due_times(api: TestClient) -> None:
    """Pages of all queues join without a gap or a repetition, and the last one has no cursor."""
    for number in range(7):
        wait(api, str(number), after_s=number // 2, queue="ab"[number % 2])
    found, cursor = [], None
    for _ in range(4):
        page = api.get("/v1/tasks", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        found += [task["id"] for task in page["tasks"]]
        cursor = page["cursor"]
    assert sorted(found) == [str(number) for number in range(7)]
    assert [int(task) // 2 for task in found] == [0, 0, 1, 1, 2, 2, 3]
    assert cursor is None


def test_a_list_is_filtered(make_api: MakeApi) -> None:
    """Queue, range of due times, name and arguments choose tasks; a plus sign in a time may be as it is.

    As in a body, a space may stand before the hours.
    """
    api = make_api()
    for number in range(4):
        wait(api, str(number), after_s=number, queue=f"q{number % 2}", args=[number], task=f"shop.t{number // 2}")

    def ids(query: str) -> list[str]:
        answer = api.get(f"/v1/tasks?{query}")
        assert answer.status_code == 200, answer.text
        return [task["id"] for task in answer.json()["tasks"]]

    assert ids("queue=q1") == ["1", "3"]
    assert ids("from=2040-01-02T04:04:06.678+01:00&to=2040-01-02T03:04:08.678Z") == ["1", "2"]
    assert ids("from=2040-01-02 03:04:06.678Z&to=2040-01-02%2004:04:08.678+01:00") == ["1", "2"]
    assert ids("task=shop.t1") == ["2", "3"]
    assert ids("task=shop.*&q=args.0%3D3") == ["3"]
    assert ids("queue=unknown") == []
    assert ids("from=2040-01-02T00:00:00Z&to=2030-01-02T00:00:00Z") == []


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=x", "limit=1001", "from=0", "from=x", "cursor=x", "other=1", "queue=a&queue=b", "q=%20"]
)
def test_an_odd_query_is_refused(make_api: MakeApi, query: str) -> None:
    """Parameters that are unknown, repeated or out of bounds get a clear 4xx."""
    answer = make_api().get(f"/v1/tasks?{query}")
    assert answer.status_code in (400, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_search_comes_as_a_stream(make_api: MakeApi) -> None:
    """With ``application/x-ndjson`` tasks come as lines while they are found; the last line has the cursor."""
    api = make_api()
    for number in range(30):
        wait(api, str(number), after_s=number, args=[number % 10])
    with api.stream("GET", "/v1/tasks?q=args.0%3D7&limit=2", headers={"Accept": "application/x-ndjson"}) as answer:
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        lines = [json.loads(line) for line in answer.iter_lines()]
    assert [line["task"]["id"] for line in lines if "task" in line] == ["7", "17"]
    assert lines[-1]["done"] is True
    assert all(line.keys() <= {"task", "progress", "done", "cursor"} for line in lines)
    assert any(line["progress"]["of"] == 30 for line in lines if "progress" in line)
    rest = api.get("/v1/tasks", params={"q": "args.0=7", "cursor": lines[-1]["cursor"]}).json()
    assert [task["id"] for task in rest["tasks"]] == ["27"]


def test_arguments_can_be_hidden(make_api: MakeApi) -> None:
    """A server that hides arguments shows them nowhere, and lets nobody search them."""
    api = make_api(hide_arguments=True)
    wait(api, "one", args=["hush"], kwargs={"again": "hush"})
    assert "hush" not in api.get("/v1/tasks/one").text
    assert "hush" not in api.get("/v1/tasks").text
    assert "hush" not in api.get("/v1/tasks", headers={"Accept": "application/x-ndjson"}).text
    assert api.get("/v1/tasks?q=hush").status_code == 403


def test_a_caller_sees_and_changes_its_own_tasks(make_api: MakeApi, redis_server: PrivateRedis) -> None:
    """Tasks of other queues and other names are as if they were not there, and their chains do not end."""
    everybody = make_api()
    wait(everybody, "mine", queue="q1")
    wait(everybody, "queue", queue="q2")
    wait(everybody, "name", queue="q1", task="bank.pay")
    limited = make_api(caller=Caller("limited", frozenset(Action), ("q1",), ("shop.*",)))
    for task_id in ("queue", "name"):
        for answer in (
            limited.get(path(task_id)),
            limited.delete(path(task_id)),
            limited.post(path(task_id, ":run")),
            limited.patch(path(task_id), json={"countdown": 1}),
        ):
            assert (answer.status_code, answer.json()["outcome"]) == (404, "not_delayed"), answer.text
    assert [task["id"] for task in limited.get("/v1/tasks").json()["tasks"]] == ["mine"]
    assert limited.get("/v1/tasks?queue=q2").status_code == 403
    assert limited.delete("/v1/tasks/unknown").status_code == 404
    assert redis_server.client().exists("{delayq}:cancelled") == 0
    assert limited.delete("/v1/tasks/mine").json()["outcome"] == "cancelled"


def test_a_task_of_another_queue_with_the_same_id_does_not_exist_for_a_caller(
    make_api: MakeApi, client: redis.Redis
) -> None:
    """A caller of one queue sees and changes its own task of an id, and nothing of one in another queue."""
    owner = make_api()
    for queue in ("theirs", "mine"):
        for task_id in ("shown", "moved", "run", "cancelled"):
            sent = {"task": f"{queue}.task", "id": task_id, "queue": queue, "countdown": 600}
            assert owner.post("/v1/tasks", json=sent).status_code == 201
    mine = make_api(caller=Caller("mine", frozenset(Action), ("mine",)))
    before = client.dump("delayq:{theirs}:due")
    assert mine.get("/v1/tasks/shown").json()["task"] == "mine.task"
    assert mine.patch("/v1/tasks/moved", json={"countdown": 60}).json()["outcome"] == "rescheduled"
    assert mine.post("/v1/tasks/run:run").json()["outcome"] == "transferred"
    assert mine.delete("/v1/tasks/cancelled").json()["outcome"] == "cancelled"
    assert mine.delete("/v1/tasks/cancelled").status_code == 404
    assert client.zcard("delayq:{mine}:due") == 2
    assert client.dump("delayq:{theirs}:due") == before


def test_names_that_are_no_text_are_not_found(make_api: MakeApi) -> None:
    """Bytes in a path that are no UTF-8 name nothing, and are no failure of the server: each route says so."""
    api = make_api()
    for method, path in {(route.method, route.path) for route in routes() if "{" in route.path}:
        asked = re.sub(r"\{[^}]*\}", "%ff", path)
        answer = api.request(method, asked, json={} if path.startswith("/v1") else None)
        assert answer.status_code < 500, (method, asked, answer.text)
    for method, path in (("GET", "/v1/tasks/%ff"), ("DELETE", "/v1/tasks/%ff"), ("GET", "/v1/queues/%ff")):
        answer = api.request(method, path)
        assert (answer.status_code, answer.json()["status"]) == (404, 404), answer.text
