"""Running tasks that ask whether they are to stop, over the API and the page."""

from contextlib import closing

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve.access.identity import Action, Caller
from tests.integration.serve.api.conftest import MakeApi
from tests.support.conditions import until


def test_a_running_task_is_called_one_and_is_asked_to_stop(make_api: MakeApi, redis_server: PrivateRedis) -> None:
    """Who looks it up reads that it runs and can be asked to stop; a cancel asks it, with both, and says so.

    A caller whose rights name queues does not see it: nobody knows its queue here.
    """
    api, other = make_api(), make_api(caller=Caller("other", frozenset(Action), ("mine",)))
    with closing(redis_server.client().pubsub()) as running:
        running.subscribe("delayq:stop:0:mine")
        until(lambda: running.get_message(timeout=1))
        answer = api.get("/v1/tasks/mine")
        found = answer.json()
        assert (answer.status_code, found["type"]) == (404, "urn:delayq:problem:running")
        assert (found["outcome"], "queue" in found) == ("running", False)
        assert "a cancel tells it so" in found["detail"]
        page = api.get("/tasks?id=mine", headers={"Accept": "text/html"}).text
        assert ("This task runs" in page, "Ask it to stop" in page) == (True, True)

        assert api.delete("/v1/tasks/mine").json() == {"id": "mine", "outcome": "asked_to_stop"}
        assert "It runs, and was asked to stop" in api.post("/do/cancel", data={"id": "mine"}).text
        for _ in range(2):
            assert until(lambda: running.get_message(timeout=1))["type"] == "message"

        assert other.get("/v1/tasks/mine").json()["type"] == "urn:delayq:problem:not-delayed"
        assert other.delete("/v1/tasks/mine").status_code == 404
        assert other.post("/do/cancel", data={"id": "mine"}).status_code == 404
        assert running.get_message(timeout=0.2) is None
    until(lambda: api.get("/v1/tasks/mine").json()["outcome"] == "not_delayed")
    assert api.delete("/v1/tasks/mine").status_code == 404
