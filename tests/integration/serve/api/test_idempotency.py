"""``Idempotency-Key``: a request that comes again is not done again."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from starlette.testclient import TestClient

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve.access.identity import Action, Caller
from celery_ext.serve.api import publisher
from tests.integration.serve.api.conftest import MakeApi, shop
from tests.support.servers.proxies import LosesReply

REMIND = {"task": "shop.remind", "args": [1], "countdown": 60}
KEY = {"Idempotency-Key": 'order 17, "a"'}


def kept(client: redis.Redis) -> str:
    """Returns the Redis key of the only answer."""
    [key] = client.scan_iter("delayq:answer:*")
    return str(key)


def test_the_first_answer_comes_again(api: TestClient, client: redis.Redis) -> None:
    """A repetition gets the same answer, byte for byte, with a header that says so, and enqueues nothing."""
    first = api.post("/v1/tasks", json=REMIND, headers=KEY)
    second = api.post("/v1/tasks", json=REMIND, headers=KEY)
    assert (first.status_code, second.status_code) == (201, 201)
    assert second.content == first.content
    assert second.headers["Location"] == first.headers["Location"]
    assert ("Idempotency-Replayed" in first.headers, second.headers["Idempotency-Replayed"]) == (False, "true")
    assert client.zcard("delayq:{celery}:due") == 1
    assert 86_000 < client.ttl(kept(client)) <= 86_400


def test_a_key_belongs_to_one_request_of_one_caller(make_api: MakeApi, client: redis.Redis) -> None:
    """With another body, path or method the key is refused; another caller may use the same key."""
    api = make_api()
    assert api.post("/v1/tasks", json=REMIND, headers=KEY).status_code == 201
    for path, body in (("/v1/tasks", {**REMIND, "countdown": 61}), ("/v1/tasks:batch", {"tasks": [REMIND]})):
        answer = api.post(path, json=body, headers=KEY)
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:delayq:problem:idempotency-key-reused")
    other = make_api(caller=Caller("other", frozenset(Action)))
    assert other.post("/v1/tasks", json=REMIND, headers=KEY).status_code == 201
    assert client.zcard("delayq:{celery}:due") == 2


@pytest.mark.parametrize("key", ["", "x" * 256, "a\x01b"])
def test_a_key_that_is_none_is_refused(make_api: MakeApi, key: str) -> None:
    """A key is a text of up to 255 printable characters."""
    assert make_api().post("/v1/tasks", json=REMIND, headers={"Idempotency-Key": key}).status_code == 400


def test_only_one_of_many_does_the_work(make_api: MakeApi, client: redis.Redis) -> None:
    """Of requests at the same time one enqueues the task; the others get its answer, or 409 while it is worked on."""
    api = make_api()
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: api.post("/v1/tasks", json=REMIND, headers=KEY), range(16)))
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len({answer.content for answer in answers if answer.status_code == 201}) == 1
    assert client.zcard("delayq:{celery}:due") == 1


def test_while_it_is_worked_on_another_is_told_to_wait(make_api: MakeApi, client: redis.Redis) -> None:
    """A key that another server works on is refused with 409, and the time after which to ask again."""
    api = make_api()
    api.post("/v1/tasks", json=REMIND, headers=KEY)
    client.hdel(kept(client), "answer")
    client.hset(kept(client), "till", 1e15)
    answer = api.post("/v1/tasks", json=REMIND, headers=KEY)
    assert (answer.status_code, answer.headers["Retry-After"]) == (409, "1")


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/tasks:batch"])
def test_a_task_that_waits_is_recognized_after_a_crash(make_api: MakeApi, client: redis.Redis, path: str) -> None:
    """A server that dies between publishing and keeping leaves no second task, and the due time stays the first."""
    api = make_api()
    body = REMIND if path == "/v1/tasks" else {"tasks": [REMIND, {**REMIND, "countdown": 90}]}
    first = api.post(path, json=body, headers=KEY)
    client.hdel(kept(client), "answer", "till")  # as after its death
    due = client.zrange("delayq:{celery}:due", 0, -1, withscores=True)
    again = api.post(path, json=body, headers=KEY)
    assert again.status_code == first.status_code
    assert "Idempotency-Replayed" not in again.headers
    assert again.json() == first.json()
    assert client.zrange("delayq:{celery}:due", 0, -1, withscores=True) == due
    assert api.post(path, json=body, headers=KEY).headers["Idempotency-Replayed"] == "true"


def test_what_was_not_done_may_be_tried_again(make_api: MakeApi, client: redis.Redis) -> None:
    """An error after which nothing has changed is no answer to keep: a right request may use the key."""
    api = make_api()
    wrong = api.post("/v1/tasks", json={"task": "shop.remind", "args": [1, 2, 3]}, headers=KEY)
    assert wrong.status_code == 422
    assert not list(client.scan_iter("delayq:answer:*"))
    assert api.post("/v1/tasks", json=REMIND, headers=KEY).status_code == 201


def test_a_run_is_done_once(make_api: MakeApi, client: redis.Redis) -> None:
    """A repeated run gets the first answer: the task is no longer there."""
    api = make_api()
    task_id = api.post("/v1/tasks", json=REMIND).json()["id"]
    answers = [api.post(f"/v1/tasks/{task_id}:run", headers=KEY) for _ in range(2)]
    assert [answer.json()["outcome"] for answer in answers] == ["transferred"] * 2
    assert client.llen("celery") == 1


def test_a_lost_answer_is_found_out_by_the_repetition(
    make_api: MakeApi, redis_server: PrivateRedis, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the answer of Redis is lost, the caller is told so, and a repetition finds the task that waits."""
    monkeypatch.setattr(publisher, "TRIES", 1)
    with LosesReply(redis_server.port, b":sender:") as proxy:
        api = make_api(shop(proxy.url))
        assert api.post("/v1/tasks", json=REMIND).status_code == 201
        proxy.arm()
        lost = api.post("/v1/tasks", json=REMIND, headers=KEY)
        assert (lost.status_code, lost.json()["outcome"]) == (503, "unknown"), lost.text
        assert "Retry-After" in lost.headers
        again: dict[str, Any] = api.post("/v1/tasks", json=REMIND, headers=KEY).json()
    assert (again["id"], again["outcome"]) == (lost.json()["id"], "delayed")
    assert client.zcard("delayq:{celery}:due") == 2
