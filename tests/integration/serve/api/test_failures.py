"""Enqueueing when Redis is away, full, or does not answer: never a wrong success."""

import asyncio
import signal
from contextlib import suppress
from typing import Any

import httpx2 as httpx

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve import asgi
from kombu_delayq.redis import scripts
from tests.integration.serve.api.conftest import ALL, ORIGIN, MakeApi, shop
from tests.support.conditions import until
from tests.support.servers.proxies import LosesReply

REMIND = {"task": "shop.remind", "args": [1], "countdown": 60}


def test_a_redis_that_is_away_is_no_success(make_api: MakeApi, own_server: PrivateRedis) -> None:
    """Each route that enqueues says 503 with the time after which to try again, and works again with Redis."""
    api = make_api(shop(own_server.url), server=own_server)
    assert api.post("/v1/tasks", json=REMIND).status_code == 201
    own_server.stop(signal.SIGKILL)
    for _ in range(2):  # the first over the connection that was there, the second over none
        answer = api.post("/v1/tasks", json=REMIND)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2"), answer.text
    assert answer.json()["outcome"] == "refused"
    batch = api.post("/v1/tasks:batch", json={"tasks": [REMIND] * 300})
    assert batch.json()["enqueued"] == 0
    assert {(item["status"], item["outcome"]) for item in batch.json()["results"]} == {(503, "refused")}
    with_key = api.post("/v1/tasks", json=REMIND, headers={"Idempotency-Key": "k"})
    assert with_key.status_code == 503
    for method, path in (
        ("GET", "/v1/tasks"),
        ("DELETE", "/v1/tasks/x"),
        ("GET", "/v1/queues"),
        ("POST", "/v1/queues/celery:take?wait=60s"),
    ):
        assert api.request(method, path).status_code == 503
    own_server.start()
    until(lambda: api.post("/v1/tasks", json=REMIND).status_code == 201, what="Redis is used again")


def test_a_full_redis_is_no_success(make_api: MakeApi, own_server: PrivateRedis) -> None:
    """A full Redis is named, with 507; what waits can still be cancelled, which frees memory."""
    api = make_api(shop(own_server.url), server=own_server)
    api.post("/v1/tasks", json={**REMIND, "id": "one"})
    client = own_server.client()
    client.config_set("maxmemory", 1)
    answer = api.post("/v1/tasks", json=REMIND)
    assert (answer.status_code, answer.json()["outcome"], answer.headers["Retry-After"]) == (507, "refused", "2")
    assert {item["status"] for item in api.post("/v1/tasks:batch", json={"tasks": [REMIND] * 3}).json()["results"]} == {
        507
    }
    assert client.zcard("delayq:{celery}:due") == 1
    assert api.delete("/v1/tasks/one").json()["outcome"] == "cancelled"
    client.config_set("maxmemory", 0)
    assert api.post("/v1/tasks", json=REMIND).status_code == 201


def test_a_lost_answer_is_asked_for_again(make_api: MakeApi, redis_server: PrivateRedis) -> None:
    """When the connection is lost before Redis answers, the page is sent again, and stored once."""
    with LosesReply(redis_server.port, b":sender:") as proxy:
        api = make_api(shop(proxy.url))
        api.post("/v1/tasks", json=REMIND)
        proxy.arm()
        answer = api.post("/v1/tasks", json=REMIND)
        assert proxy.lost == 1
    assert answer.status_code == 201
    assert redis_server.client().zcard("delayq:{celery}:due") == 2


def test_a_queue_that_redis_refuses_harms_no_other(make_api: MakeApi, redis_server: PrivateRedis) -> None:
    """Of a batch, those tasks fail whose queue has a key of another type."""
    api = make_api()
    redis_server.client().set("delayq:{broken}:due", "x")
    tasks = [REMIND, {**REMIND, "queue": "broken"}, {**REMIND, "queue": "fine"}]
    found = api.post("/v1/tasks:batch", json={"tasks": tasks}).json()
    assert [item["outcome"] for item in found["results"]] == ["delayed", "refused", "delayed"]


def test_requests_at_once_share_a_page(make_api: MakeApi, redis_server: PrivateRedis) -> None:
    """What many callers send at once is stored in few calls, and each gets the answer to its own task."""
    app = shop(redis_server.url)
    made: Any = asgi(app, allow_write=True, identify=lambda request: ALL)
    redis_server.client().config_resetstat()

    async def send() -> list[Any]:
        transport = httpx.ASGITransport(app=made)
        async with httpx.AsyncClient(transport=transport, base_url=ORIGIN, headers={"Origin": ORIGIN}) as client:
            await client.post("/v1/tasks", json=REMIND)
            bodies = [{**REMIND, "id": str(number), "args": [number]} for number in range(300)]
            bodies[7]["args"] = [1, 2, 3]
            return list(await asyncio.gather(*(client.post("/v1/tasks", json=body) for body in bodies)))

    try:
        answers = asyncio.run(send())
        wrong = answers.pop(7)
        assert wrong.status_code == 422
        assert [answer.json()["id"] for answer in answers] == [str(number) for number in range(300) if number != 7]
        assert redis_server.client().zcard("delayq:{celery}:due") == 300
        assert redis_server.client().info("commandstats")["cmdstat_eval"]["calls"] < 500  # two for each page, or 602
    finally:
        with suppress(Exception):
            made.state.serve.broker.close()
        app.close()


def test_a_change_whose_answer_is_lost_is_unknown(make_api: MakeApi, redis_server: PrivateRedis) -> None:
    """A cancel that Redis may have done is neither a success nor a refusal."""
    with LosesReply(redis_server.port, scripts.load("cancel", "hash").sha.encode()) as proxy:
        api = make_api(shop(proxy.url))
        for task_id in ("one", "another"):
            api.post("/v1/tasks", json={**REMIND, "id": task_id})
        api.delete("/v1/tasks/another")  # Redis knows the script from then on
        proxy.arm()
        answer = api.delete("/v1/tasks/one")
        assert proxy.lost == 1
    assert (answer.status_code, answer.json()["outcome"]) == (503, "unknown"), answer.text
    assert redis_server.client().zcard("delayq:{celery}:due") == 0


def test_a_path_names_all_its_methods(make_api: MakeApi) -> None:
    """405 says which methods a path has, also where several routes share it."""
    answer = make_api().put("/v1/tasks")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD, POST")
    assert answer.headers["content-type"] == "application/problem+json"
