"""``/v1/queues`` and ``/v1/dead-letters``."""

from datetime import UTC, datetime, timedelta
from time import sleep
from typing import Any

import pytest
import redis
from celery.app.task import Context

from celery_ext.dead_letters.burying import bury
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve.access.identity import Action, Caller
from kombu_delayq.message.letter_record import Reason
from tests.integration.serve.api.conftest import MakeApi, shop
from tests.support.commands.shell import Audit

DEAD = "dead/letters"
REMIND = {"task": "shop.remind", "args": [1]}


def test_queues_are_counted(make_api: MakeApi) -> None:
    """The list has the queues of the app and those that hold tasks, and says who leads."""
    api = make_api()
    api.post("/v1/tasks:batch", json={"tasks": [{**REMIND, "countdown": 60}] * 3 + [{**REMIND, "queue": "ü/b"}]})
    api.post("/v1/tasks", json={**REMIND, "queue": "ü/b", "countdown": 3600})
    found = api.get("/v1/queues").json()
    rows = {row["queue"]: row for row in found["queues"]}
    assert {name: (row["delayed"], row["ready"]) for name, row in rows.items()} == {"celery": (3, 0), "ü/b": (1, 1)}
    assert rows["celery"]["next_due"] > found["now"]
    assert rows["celery"]["lateness_p50_s"] is None
    assert (found["leader"], found["standby"]) == (None, [])
    assert found["redis"]["used_memory"] > 0
    waits_s = rows["ü/b"].pop("oldest_ready_s")
    one = api.get("/v1/queues/%C3%BC%2Fb").json()
    assert 0 <= waits_s <= one.pop("oldest_ready_s") < 60
    assert one == rows["ü/b"]
    assert api.get("/v1/queues/unknown").status_code == 404


def test_a_queue_of_which_nothing_was_delayed_is_listed(make_api: MakeApi) -> None:
    """A queue with ready messages alone is in the list, on the page and among the metrics, which no setting names."""
    api = make_api()
    api.post("/v1/tasks:batch", json={"tasks": [{**REMIND, "queue": "mails"}] * 2})
    rows = {row["queue"]: row["ready"] for row in api.get("/v1/queues").json()["queues"]}
    assert rows == {"celery": 0, "mails": 2}
    assert '<a href="./queues/mails">' in api.get("/", headers={"Accept": "text/html"}).text
    assert 'delayq_ready_messages{queue="mails"} 2' in api.get("/metrics").text
    assert 'delayq_consumers{queue="mails"} 0' in api.get("/metrics").text


def test_a_histogram_counts_what_comes_due_when(make_api: MakeApi) -> None:
    """Buckets are of equal length; what is due before and after the span is counted beside them."""
    api = make_api()
    start = datetime(2040, 1, 1, tzinfo=UTC)
    tasks = [
        {**REMIND, "eta": (start + timedelta(seconds=at)).isoformat(), "queue": "q"}
        for at in (-1, 0, 9.999, 10, 59, 60)
    ]
    api.post("/v1/tasks:batch", json={"tasks": tasks})
    query = {"from": start.isoformat(), "to": (start + timedelta(seconds=60)).isoformat(), "buckets": 6}
    found = api.get("/v1/queues/q/histogram", params=query).json()
    assert found["counts"] == {"q": [2, 1, 0, 0, 0, 1]}
    assert (found["before"], found["after"]) == ({"q": 1}, {"q": 1})
    assert (found["from"], found["to"], len(found["bounds"])) == (
        "2040-01-01T00:00:00.000Z",
        "2040-01-01T00:01:00.000Z",
        7,
    )
    assert api.get("/v1/queues/*/histogram", params=query).json()["counts"] == {
        "celery": [0] * 6,
        "q": [2, 1, 0, 0, 0, 1],
    }


def test_a_caller_sees_its_own_queues(make_api: MakeApi) -> None:
    """Queues that a caller does not name are left out of lists, and refused by name."""
    api = make_api(caller=Caller("limited", frozenset(Action), ("q1",)))
    api.post("/v1/tasks", json={**REMIND, "queue": "q1", "countdown": 60})
    assert [row["queue"] for row in api.get("/v1/queues").json()["queues"]] == ["q1"]
    assert list(api.get("/v1/queues/*/histogram").json()["counts"]) == ["q1"]
    for where in ("/v1/queues/celery", "/v1/queues/celery/histogram", "/v1/dead-letters/dead"):
        assert api.get(where).status_code == 403


def bury_some(redis_server: PrivateRedis, *ids: str, queue: str = "celery", priority: int = 0) -> Any:
    """Buries tasks as a worker does."""
    app = shop(redis_server.url)
    task = app.tasks["shop.remind"]
    task.dead_letter_queue = "dead/letters"
    for task_id in ids:
        info = {"exchange": "", "routing_key": queue, "priority": priority}
        request = Context(
            id=task_id, args=[task_id], kwargs={}, retries=3, hostname="w1", delivery_info=info, called_directly=False
        )
        try:
            raise KeyError("hush")
        except KeyError as error:
            bury(task, request, Reason.CHAIN_EXHAUSTED, error)
    return app


def test_dead_letters_are_listed_replayed_and_dropped(
    make_api: MakeApi, redis_server: PrivateRedis, audit: Audit
) -> None:
    """Letters are chosen by id, or all of a queue; an id that is none is named."""
    api = make_api(dead_letters=("dead/letters",))
    bury_some(redis_server, "one", "two", "three")
    assert api.get("/v1/dead-letters").json() == {"queues": [{"queue": "dead/letters", "dead_letters": 3}]}
    where = "/v1/dead-letters/dead%2Fletters"
    page = api.get(where, params={"limit": 2}).json()
    rest = api.get(where, params={"limit": 2, "cursor": page["cursor"]}).json()
    letters = page["dead_letters"] + rest["dead_letters"]
    assert ([letter["id"] for letter in letters], rest["cursor"]) == (["one", "two", "three"], None)
    first = {name: letters[0][name] for name in ("task", "reason", "error", "worker", "retries", "args", "routing_key")}
    assert first == {
        "task": "shop.remind",
        "reason": "delay chain exhausted",
        "error": "KeyError: 'hush'",
        "worker": "w1",
        "retries": 3,
        "args": ["one"],
        "routing_key": "celery",
    }
    assert letters[0]["traceback"].startswith("Traceback")
    for wanted, found in (
        ({"error": "HUSH"}, 3),
        ({"error": "x"}, 0),
        ({"task": "shop.*"}, 3),
        ({"older_than_s": 60}, 0),
    ):
        assert len(api.get(where, params=wanted).json()["dead_letters"]) == found
    assert api.post(f"{where}:drop", json={"all": True, "newer_than_s": 60, "task": "x"}).json()["dropped"] == 0
    done = api.post(f"{where}:replay", json={"ids": ["two", "none"]}).json()
    assert done == {"replayed": 1, "dropped": 0, "unroutable": 0, "missing": ["none"], "more": False}
    assert redis_server.client().llen("celery") == 1
    assert api.post(f"{where}:drop", json={"all": True}).json()["dropped"] == 2
    assert api.get(where).json() == {"dead_letters": [], "cursor": None}
    assert [(line["action"], line["count"]) for line in audit()] == [("drop", 2), ("replay", 1)]


def test_dead_letters_are_replayed_at_a_pace(
    make_api: MakeApi, redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call ends after its time, and says whether there are more; the next one goes on."""
    api, slept = make_api(), list[float]()
    monkeypatch.setattr("celery_ext.dead_letters.served.PACED_S", 0.5)
    monkeypatch.setattr("celery_ext.dead_letters.letters.sleep", lambda s: (slept.append(s), sleep(0.5)))
    bury_some(redis_server, "one", "two", "three")
    body = {"all": True, "rate": 2}
    done = [api.post("/v1/dead-letters/dead%2Fletters:replay", json=body).json() for _ in range(2)]
    assert [(each["replayed"], each["more"]) for each in done] == [(2, True), (1, False)]
    assert slept == [1.0, 0.5]
    assert redis_server.client().llen("celery") == 3
    assert api.post("/v1/dead-letters/dead%2Fletters:replay", json={**body, "rate": 0}).status_code == 422


@pytest.mark.parametrize("body", [{}, {"ids": []}, {"ids": ["a"], "all": True}, {"all": False}, {"ids": "a"}])
def test_dead_letters_have_to_be_chosen(make_api: MakeApi, redis_server: PrivateRedis, body: dict[str, Any]) -> None:
    """Neither ids nor all, or both, changes nothing."""
    api = make_api()
    bury_some(redis_server, "one")
    assert api.post("/v1/dead-letters/dead%2Fletters:drop", json=body).status_code == 422
    assert redis_server.client().llen("dead/letters") == 1


def test_a_caller_changes_its_own_dead_letters(
    make_api: MakeApi, redis_server: PrivateRedis, client: redis.Redis
) -> None:
    """Letters of other tasks stay, and so do those that would go to a queue which the caller does not name."""
    api = make_api(caller=Caller("limited", frozenset(Action), ("dead/letters", "mine"), ("shop.*",)))
    bury_some(redis_server, "one", queue="mine")
    bury_some(redis_server, "two", queue="other")
    done = api.post("/v1/dead-letters/dead%2Fletters:replay", json={"all": True}).json()
    assert (done["replayed"], client.llen("mine"), client.llen("other"), client.llen("dead/letters")) == (1, 1, 0, 1)
    assert api.post("/v1/dead-letters/other:drop", json={"all": True}).status_code == 403


def test_hidden_arguments_are_hidden_in_dead_letters(make_api: MakeApi, redis_server: PrivateRedis) -> None:
    """An error may name an argument, so it is hidden, too."""
    api = make_api(hide_arguments=True)
    bury_some(redis_server, "secret")
    text = api.get("/v1/dead-letters/dead%2Fletters").text
    assert api.get("/v1/dead-letters/dead%2Fletters", params={"error": "hush"}).status_code == 403
    assert "hush" not in text
    assert '"args"' not in text


def test_tasks_of_an_ordinary_queue_are_no_dead_letters(make_api: MakeApi, redis_server: PrivateRedis) -> None:
    """Nobody lists, replays or drops the tasks of a queue into which no dead letters were put, over API and page."""
    api, client = make_api(), redis_server.client()
    api.post("/v1/tasks:batch", json={"tasks": [REMIND] * 5})
    for verb in ("replay", "drop"):
        answer = api.post(f"/v1/dead-letters/celery:{verb}", json={"all": True})
        assert (answer.status_code, "no queue of dead letters" in answer.json()["detail"]) == (404, True)
        form = {"queue": "celery", "all": "1", "confirm": "5"}
        assert api.post(f"/do/{verb}", data=form).status_code == 404
    for path in ("/v1/dead-letters/celery", "/dead-letters/celery"):
        assert api.get(path).status_code == 404
    assert client.llen("celery") == 5


def test_a_dead_letter_is_called_one(make_api: MakeApi, redis_server: PrivateRedis) -> None:
    """Whoever asks for a dead letter by its id reads where it lies, on the page too, and no cancel says to end it."""
    api = make_api()
    bury_some(redis_server, "failed")
    redis_server.client().zadd("{delayq}:chains", {"failed": 1, "": "inf"})
    for method in ("GET", "DELETE"):
        answer = api.request(method, "/v1/tasks/failed")
        found = answer.json()
        assert (answer.status_code, found["type"], found["queue"]) == (404, "urn:delayq:problem:dead-letter", DEAD)
        assert (found["outcome"], "is a dead letter in queue" in found["detail"]) == ("dead_letter", True)
    page = api.get("/tasks?id=failed", headers={"Accept": "text/html"})
    assert (page.status_code, "This task is a dead letter" in page.text, "runs, has run" in page.text) == (
        404,
        True,
        False,
    )
    cancelled = api.post("/do/cancel", data={"id": "failed"}).text
    assert ("Nothing changed" in cancelled, "chain has ended" in cancelled) == (True, False)
    other = make_api(caller=Caller("other", frozenset(Action), ("mine",)))
    assert "runs, has run" in other.get("/v1/tasks/failed").json()["detail"]


def test_a_queue_that_nobody_knows_is_not_found(make_api: MakeApi) -> None:
    """A queue that nobody knows has no page, no figures and no histogram."""
    api = make_api()
    for path in ("/queues/nosuch", "/v1/queues/nosuch", "/v1/queues/nosuch/histogram"):
        assert api.get(path).status_code == 404, path
    assert api.get("/queues/celery").status_code == 200
