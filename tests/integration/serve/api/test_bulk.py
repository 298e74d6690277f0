"""``/v1/bulk``: an action on all tasks that a filter chooses at a moment."""

from typing import Any

import pytest
import redis
from starlette.testclient import TestClient

from celery_ext.serve.access.identity import Action, Caller
from tests.integration.serve.api.conftest import MakeApi
from tests.support.commands.shell import Audit
from tests.support.conditions import until


def fill(api: TestClient, count: int = 30, **more: Any) -> None:
    """Lets tasks wait in two queues."""
    tasks = [
        {"task": f"shop.t{number % 3}", "args": [number], "countdown": 600, "queue": f"q{number % 2}", **more}
        for number in range(count)
    ]
    assert api.post("/v1/tasks:batch", json={"tasks": tasks}).json()["enqueued"] == count


def ended(api: TestClient, job: str) -> dict[str, Any]:
    """Waits for the end of a bulk action. Returns its state."""
    found: dict[str, Any] = {}

    def is_over() -> bool:
        found.update(api.get(f"/v1/bulk/{job}").json())
        return found["state"] not in ("counting", "running")

    until(is_over, what="the bulk action ended")
    return found


def test_what_was_counted_is_done_and_nothing_else(make_api: MakeApi, client: redis.Redis, audit: Audit) -> None:
    """A filter is counted at a moment; once the number is confirmed, those tasks are cancelled, and no later ones."""
    api = make_api()
    fill(api)
    made = api.post("/v1/bulk", json={"action": "cancel", "filter": {"queue": "q1", "task": "shop.t1"}})
    job = made.json()
    assert (made.status_code, job["state"], job["matched"], job["done"]) == (201, "counted", 5, 0)
    assert made.headers["Location"] == f"/v1/bulk/{job['id']}"
    fill(api, 6)
    wrong = api.post(f"/v1/bulk/{job['id']}:start", json={"confirm": 6})
    assert (wrong.status_code, client.zcard("delayq:{q1}:due")) == (409, 18)
    api.post(f"/v1/bulk/{job['id']}:start", json={"confirm": 5})
    done = ended(api, job["id"])
    assert (done["state"], done["done"], done["outcomes"]) == ("done", 5, {"cancelled": 5})
    assert client.zcard("delayq:{q1}:due") == 13
    line = audit()[0]
    assert (line["who"], line["action"], line["count"]) == ("tester", "bulk cancel", 5)
    again = api.post(f"/v1/bulk/{job['id']}:start", json={"confirm": 5})
    assert again.status_code == 409


def test_tasks_are_run_and_rescheduled(make_api: MakeApi) -> None:
    """The other two actions use the same steps; a new time belongs to one of them only."""
    api = make_api()
    fill(api)
    asked = {"action": "reschedule", "filter": {"queue": "q0"}, "eta": "2040-01-01T00:00:00Z"}
    job = api.post("/v1/bulk", json=asked).json()
    api.post(f"/v1/bulk/{job['id']}:start", json={"confirm": 15})
    assert ended(api, job["id"])["outcomes"] == {"rescheduled": 15}
    assert api.get("/v1/tasks?queue=q0&limit=1").json()["tasks"][0]["due"] == "2040-01-01T00:00:00.000Z"
    job = api.post("/v1/bulk", json={"action": "run", "filter": {"q": "args.0=7"}}).json()
    key = {"Idempotency-Key": "start"}
    first = api.post(f"/v1/bulk/{job['id']}:start", json={"confirm": 1}, headers=key)
    again = api.post(f"/v1/bulk/{job['id']}:start", json={"confirm": 1}, headers=key)
    assert (again.status_code, again.json()) == (200, first.json())
    assert ended(api, job["id"])["outcomes"] == {"transferred": 1}
    assert api.get("/v1/queues/q1").json()["ready"] == 1
    for wrong in (
        {"action": "run", "filter": {}, "eta": "2040-01-01T00:00:00Z"},
        {"action": "reschedule", "filter": {}},
    ):
        assert api.post("/v1/bulk", json=wrong).status_code == 422


def test_a_bulk_action_is_stopped(make_api: MakeApi, client: redis.Redis, audit: Audit) -> None:
    """One that was stopped before it began changes nothing, and an unknown one is 404."""
    api = make_api()
    fill(api, 4)
    job = api.post("/v1/bulk", json={"action": "cancel", "filter": {}}).json()
    assert job["matched"] == 4
    assert api.post(f"/v1/bulk/{job['id']}:stop").status_code == 200
    api.post(f"/v1/bulk/{job['id']}:start", json={"confirm": 4})
    assert ended(api, job["id"])["state"] == "stopped"
    assert client.zcard("delayq:{q0}:due") + client.zcard("delayq:{q1}:due") == 4
    assert not audit()
    assert api.get("/v1/bulk/unknown").status_code == 404


@pytest.mark.parametrize(
    ("caller", "chosen", "status"),
    [
        (Caller("reader", frozenset({Action.READ})), {}, 403),
        (Caller("runner", frozenset({Action.READ, Action.RUN})), {}, 403),
        (Caller("queue", frozenset(Action), ("q1",)), {"queue": "q0"}, 403),
        (Caller("task", frozenset(Action), ("*",), ("shop.t1",)), {}, 403),
        (Caller("task", frozenset(Action), ("*",), ("shop.t1",)), {"task": "shop.t*"}, 403),
        (Caller("task", frozenset(Action), ("*",), ("shop.t1",)), {"task": "shop.t1"}, 201),
    ],
)
def test_a_caller_acts_on_its_own_tasks(make_api: MakeApi, caller: Caller, chosen: dict[str, str], status: int) -> None:
    """A filter that reaches beyond the caller's action, queues or tasks is refused before anything is counted."""
    fill(make_api(), 6)
    answer = make_api(caller=caller).post("/v1/bulk", json={"action": "cancel", "filter": chosen})
    assert answer.status_code == status, answer.text


def test_all_queues_are_all_of_the_caller(make_api: MakeApi) -> None:
    """Without a queue in the filter, a caller of one queue counts the tasks of this one; another caller sees no job."""
    fill(make_api(), 6)
    api = make_api(caller=Caller("queue", frozenset(Action), ("q1",)))
    job = api.post("/v1/bulk", json={"action": "cancel", "filter": {}}).json()
    assert job["matched"] == 3
    elsewhere = make_api(caller=Caller("queue", frozenset(Action), ("q0",)))  # since then it has lost the queue
    assert elsewhere.get(f"/v1/bulk/{job['id']}").status_code == 403


def test_any_process_of_a_server_knows_a_bulk_action(make_api: MakeApi, client: redis.Redis) -> None:
    """Of several processes one counts; every other one shows, starts and stops what that one does."""
    first, second = make_api(), make_api()
    fill(first, 20)
    job = first.post("/v1/bulk", json={"action": "cancel", "filter": {"queue": "q1"}}).json()
    assert second.get(f"/v1/bulk/{job['id']}").json() == job
    wrong = second.post(f"/v1/bulk/{job['id']}:start", json={"confirm": 9})
    assert (wrong.status_code, wrong.json()["type"].rpartition(":")[2]) == (409, "not-confirmed")
    started = second.post(f"/v1/bulk/{job['id']}:start", json={"confirm": 10})
    assert (started.status_code, started.json()["state"] in ("running", "done")) == (200, True), started.text
    done = ended(second, job["id"])
    assert (done["state"], done["outcomes"], client.zcard("delayq:{q1}:due")) == ("done", {"cancelled": 10}, 0)
    assert ended(first, job["id"]) == done
    assert second.post(f"/v1/bulk/{job['id']}:start", json={"confirm": 10}).status_code == 409
    stopped = first.post("/v1/bulk", json={"action": "cancel", "filter": {"queue": "q0"}}).json()
    assert second.post(f"/v1/bulk/{stopped['id']}:stop").status_code == 200
    first.post(f"/v1/bulk/{stopped['id']}:start", json={"confirm": 10})
    assert ended(second, stopped["id"])["state"] == "stopped"
    assert client.zcard("delayq:{q0}:due") == 10
    other = make_api(caller=Caller("other", frozenset(Action)))
    assert other.get(f"/v1/bulk/{job['id']}").status_code == 404


def test_a_bulk_action_ends_with_its_process(make_api: MakeApi, client: redis.Redis) -> None:
    """What a process had that is gone is shown as failed by the others, and cannot be started."""
    api = make_api()
    fill(api, 4)
    job = api.post("/v1/bulk", json={"action": "cancel", "filter": {}}).json()
    key = f"delayq:bulk:{job['id']}"
    client.copy(key, f"{key}-of-nobody")
    client.pexpire(f"{key}-of-nobody", 3_000_000)
    gone = api.get(f"/v1/bulk/{job['id']}-of-nobody").json()
    assert (gone["state"], "is gone" in gone["error"]) == ("failed", True)
    assert api.post(f"/v1/bulk/{job['id']}-of-nobody:start", json={"confirm": 4}).status_code == 409
