"""Hostile bodies that wait or are ready: every route answers, and decodes nothing in the server's event loop."""

import asyncio
import base64
import json
from typing import Any

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.message import bodies
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.integration.serve.api.conftest import MakeApi
from tests.support.messages import ETA

LAUGHS = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    + ["task: t", "args: *a11", f"eta: '{ETA}'"]
)


def hostile(**headers: Any) -> str:
    """Returns a message of 1 kB whose arguments would take terabytes as text."""
    body = LAUGHS if not headers else f"- &r {{{', '.join(LAUGHS.splitlines()[:12])}}}\n- {{}}\n- {{}}"
    properties = {"delivery_tag": "t", "delivery_info": {}, "body_encoding": "base64", "correlation_id": "i"}
    message = {
        "body": base64.b64encode(body.encode()).decode(),
        "content-type": bodies.YAML,
        "content-encoding": "utf-8",
        "headers": headers,
        "properties": properties,
    }
    return json.dumps(message)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("headers", [{}, {"task": "t", "id": "i"}], ids=["protocol 1", "protocol 2"])
def test_every_route_answers(
    make_api: MakeApi, redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch, headers: dict[str, Any]
) -> None:
    """Tasks are shown without arguments, and handed out with their body as it is; the loop stays free."""
    in_loop, unpacked = list[str](), bodies.unpacked

    def noting(message: Any) -> bytes:
        try:
            asyncio.get_running_loop()
            in_loop.append("a body is read in the event loop")
        except RuntimeError:
            pass
        return unpacked(message)

    monkeypatch.setattr(bodies, "unpacked", noting)
    api = make_api()
    store = DelayStore(redis_server.client())
    store.delivery.offer("orders", Offer("i", "4102444800000", 0, hostile(**headers)))
    redis_server.client().lpush("orders", hostile(**headers))
    [task] = api.get("/v1/tasks").json()["tasks"]
    assert task["id"] == "i"
    shown = api.get("/v1/tasks/i").json()
    assert (shown["id"], shown["args"]) == ("i", None)
    assert api.get("/v1/tasks", params={"q": "x"}).json()["tasks"] == []
    for page in ("/", "/queues/orders", "/tasks/i"):
        assert api.get(page).status_code in (200, 404)
    taken = api.post("/v1/queues/orders:take").json()
    assert [len(message["body"]) > 100 for message in taken["messages"]] == [True]
    assert in_loop == []
