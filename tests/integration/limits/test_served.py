"""Limits and keys over HTTP and on the page: listed, set, paused and reset, within the rights of the caller."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve.access.identity import OPERATING, Action, Caller
from tests.integration.serve.api.conftest import MakeApi, make_api
from tests.support.commands.shell import Audit
from tests.support.limits.keyed import QUEUE, Keyed, keyed

__all__ = ["make_api"]

PAGE = {"Accept": "text/html"}


@pytest.fixture
def shop(redis_server: PrivateRedis, make_api: MakeApi) -> Iterator[Keyed]:
    """A queue with keys, behind ``make_api``, which empties the broker."""
    with keyed(redis_server) as made:
        made.declare()
        made.send("account:7", "account:7", "account:7", "account:8", "other:1")
        assert len(made.fetch(2)) == 2
        yield made


@pytest.fixture
def api(make_api: MakeApi, shop: Keyed) -> TestClient:
    return make_api(shop.app)


def test_limits_are_set_and_reset(api: TestClient, shop: Keyed, audit: Audit) -> None:
    """``PUT`` replaces the declared limit, and each answer shows the new one, until ``DELETE``."""
    assert api.put("/v1/limits/account%3A7", json={"running": 3}).json() == {"name": "account:7", "outcome": "set"}
    assert api.put("/v1/limits/account:7", json={"running": 3}).json()["outcome"] == "unchanged"
    assert api.put("/v1/limits/stripe", json={"rate": 5, "burst": 7, "weight": 2}).json()["outcome"] == "set"
    found = api.get("/v1/limits").json()
    rows = {row["name"]: row for row in found["limits"]}
    assert found["queues"] == [QUEUE]
    assert list(rows) == ["account", "account:7", "stripe"]
    assert rows["stripe"]["holds"] == {"running": 10, "rate": 5, "burst": 7, "weight": 2}
    assert rows["stripe"]["declared"]["rate"] == 50
    assert rows["account:7"]["declared"] is None
    assert len(shop.fetch(9)) == 3, "two of the key that was set, and the one that nobody declares"
    assert api.delete("/v1/limits/account:7").json()["outcome"] == "reset"
    assert api.delete("/v1/limits/account:7").json()["outcome"] == "unchanged"
    assert [row["name"] for row in api.get("/v1/limits").json()["limits"]] == ["account", "stripe"]
    assert [(line["who"], line["action"]) for line in audit()][-1] == ("tester", "set_limit")


def test_keys_are_listed_by_pages(api: TestClient, shop: Keyed) -> None:
    """All pages together have each key, with what waits and runs of it."""
    shop.send(*(f"account:{number}" for number in range(100, 1100)))
    shop.sort()
    keys, cursor = {}, "0"
    while cursor is not None:
        found = api.get("/v1/limits/keys", params={"queue": QUEUE, "cursor": cursor}).json()
        keys.update({row["key"]: row for row in found["keys"]})
        cursor = found["cursor"]
    assert len(keys) >= 1003
    assert (keys["account:7"]["running"], keys["account:7"]["limit"]["running"]) == (1, 1)
    assert keys["other:1"]["limit"] is None
    for wrong in ("x", "-1", "1" * 21, "²"):
        assert api.get("/v1/limits/keys", params={"queue": QUEUE, "cursor": wrong}).status_code == 400


def test_what_cannot_be_set_is_refused(api: TestClient, make_api: MakeApi, shop: Keyed) -> None:
    """An unknown limit is 404, a wrong or empty body 422; who may not act on all queues and tasks gets 403."""
    problem = api.put("/v1/limits/acount", json={"running": 1})
    assert (problem.status_code, problem.json()["type"]) == (404, "urn:delayq:problem:unknown-limit")
    assert "did you mean 'account'?" in problem.json()["detail"]
    for body in ({}, {"running": -1}, {"burst": 2}, {"rate": 0}, {"weights": 1}):
        assert api.put("/v1/limits/account", json=body).status_code == 422
    for caller in (
        Caller("few", frozenset(Action), ("orders",)),
        Caller("tasks", frozenset(Action), tasks=("shop.*",)),
        Caller("reader", frozenset({Action.READ})),
    ):
        limited = make_api(shop.app, caller)
        assert limited.put("/v1/limits/account", json={"running": 1}).status_code == 403
        assert limited.delete("/v1/limits/account").status_code == 403
    assert api.get("/v1/limits").json()["limits"][0]["set"] is None
    assert make_api(shop.app, allow_write=False).put("/v1/limits/account", json={"running": 1}).status_code == 403


def test_who_may_not_see_arguments_sees_no_keys(api: TestClient, make_api: MakeApi, shop: Keyed) -> None:
    """Keys are made of arguments: they are hidden with these, and from callers of some tasks or other queues."""
    assert api.put("/v1/limits/account:7", json={"running": 3}).status_code == 200
    tasks = make_api(shop.app, Caller("tasks", OPERATING, tasks=("shop.*",)))
    other = make_api(shop.app, Caller("other", OPERATING, ("mails",)))
    for client in (make_api(shop.app, hide_arguments=True), tasks, other):
        assert client.get("/v1/limits/keys", params={"queue": QUEUE}).status_code == 403
        assert client.get(f"/limits/{QUEUE}", headers=PAGE).status_code == 403
        assert [row["name"] for row in client.get("/v1/limits").json()["limits"]] == ["account", "stripe"]


def test_the_page_shows_and_changes_keys(api: TestClient, make_api: MakeApi, shop: Keyed) -> None:
    """Its pages lead from the queue to its keys, which forms set, pause and reset; wrong numbers are named."""
    assert 'href="../limits/orders"' in api.get(f"/queues/{QUEUE}", headers=PAGE).text
    assert "/limits/" not in api.get("/queues/mails", headers=PAGE).text
    shown = api.get(f"/limits/{QUEUE}", headers=PAGE).text
    assert shown.index("account:7") < shown.index("account:8")
    assert "nobody declares it" in shown
    done = api.post("/do/limits/pause", data={"limit": "account:7", "queue": QUEUE}, headers=PAGE)
    assert "account:7 is paused" in done.text
    assert ">paused</span>" in done.text
    assert [one.key for one in shop.limits.keys(QUEUE) if one.key == "account:7"]
    done = api.post("/do/limits/set", data={"limit": "account", "running": "4", "weight": "2"}, headers=PAGE)
    assert "4 at once, weight 2" in done.text
    for given in ({"running": "x"}, {}, {"running": "-1"}, {"burst": "4"}, {"limit": "acount", "running": "1"}):
        wrong = api.post("/do/limits/set", data={"limit": "account", "queue": QUEUE, **given}, headers=PAGE)
        assert wrong.status_code in (404, 422)
        assert "Nothing changed" in wrong.text
    for name in ("account", "account:7"):
        api.post("/do/limits/reset", data={"limit": name}, headers=PAGE)
    assert shop.limits.limits(QUEUE).set == {}
    only = api.get(f"/limits/{QUEUE}?key=account:8", headers=PAGE).text
    assert "account:8" in only
    assert "account:7</bdi>" not in only
    assert api.get("/limits/mails", headers=PAGE).status_code == 404
    read_only = make_api(shop.app, allow_write=False).get("/limits", headers=PAGE).text
    assert "This server is read-only" in read_only
    assert ">2</a>" in api.get("/", headers=PAGE).text, "the overview has the number of limits"
