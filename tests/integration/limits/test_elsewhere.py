"""A task that is due and waits for the turn of its key is found and cancelled by its id."""

import json
from collections.abc import Iterator

import pytest
from celery import states

from celery_ext import cancel
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve.access.identity import Action, Caller
from tests.integration.serve.api.conftest import MakeApi, make_api
from tests.support.commands.shell import Audit, run
from tests.support.limits.keyed import QUEUE, Keyed, keyed

__all__ = ["make_api"]


@pytest.fixture
def shop(redis_server: PrivateRedis) -> Iterator[Keyed]:
    with keyed(redis_server, result_backend=redis_server.url) as made:
        made.declare()
        yield made


def parked(shop: Keyed, count: int = 3) -> list[str]:
    """Sends tasks of one key, of which one goes. Returns the ids of those that wait."""
    ids = shop.send(*["account:7"] * (count + 1))
    [fetched] = shop.sort()
    gone = json.loads(fetched.body)["headers"]["id"]
    return [each for each in ids if each != gone]


def test_a_cancelled_task_never_runs(shop: Keyed, audit: Audit) -> None:
    """It goes from its sub-queue, its result is REVOKED, and the next of its key takes its turn."""
    first, second, third = parked(shop)
    assert cancel(shop.app, first) == "cancelled"
    assert cancel(shop.app, first) == "not_delayed"
    assert shop.app.AsyncResult(first).state == states.REVOKED
    assert shop.keys()["account:7"] == (2, 1)
    shop.limits.declare({}, [QUEUE])
    shop.limits.refresh(QUEUE)
    left = {json.loads(one.body)["headers"]["id"] for one in shop.fetch(9)}
    assert left == {second, third}
    assert audit()[0]["what"]["ids"] == [first]


def test_many_are_cancelled_at_once(shop: Keyed, redis_server: PrivateRedis) -> None:
    """Whatever their number, those that are asked for go, and no other one."""
    waiting = parked(shop, 300)
    gone, left = waiting[:250], waiting[250:]
    done = run(redis_server, "cancel", "-y", "-", stdin="\n".join([*gone, "unknown"])).stdout
    assert "250 cancelled, 1 not waiting" in done
    assert {json.loads(each.message)["headers"]["id"] for each in shop.limits.parked(QUEUE)} == {*left}
    assert shop.keys()["account:7"] == (50, 1)


def test_it_is_shown_where_it_waits(shop: Keyed, redis_server: PrivateRedis) -> None:
    """The command names its queue and its key, and that of a task in hand does not."""
    [first] = parked(shop, 1)
    said = run(redis_server, "show", first, code=1).stderr
    assert "due, and waiting for its turn in queue 'orders', by key account:7" in said
    assert run(redis_server, "cancel", "-y", first).stdout == f"{first}: cancelled\n"
    assert "turn" not in run(redis_server, "show", first, code=1).stderr


@pytest.mark.parametrize("caller", [("*",), ("orders",)], ids=["all", "some"])
def test_a_caller_cancels_it_over_http_and_on_the_page(
    make_api: MakeApi, redis_server: PrivateRedis, caller: tuple[str, ...]
) -> None:
    """A caller of its queue finds and cancels it; one of other queues sees nothing of it."""
    with keyed(redis_server) as shop:
        shop.declare()
        first, second = parked(shop, 2)
        api = make_api(shop.app, Caller("c", frozenset(Action), caller))
        other = make_api(shop.app, Caller("o", frozenset(Action), ("mails",)))
        problem = api.get(f"/v1/tasks/{first}").json()
        assert (problem["outcome"], problem["queue"]) == ("ready", QUEUE)
        assert other.get(f"/v1/tasks/{first}").json()["outcome"] == "not_delayed"
        assert other.delete(f"/v1/tasks/{first}").status_code == 404
        assert other.post("/do/cancel", data={"id": first}).status_code == 404
        shown = api.get(f"/tasks/{first}", headers={"Accept": "text/html"}).text
        assert "This task waits for its turn" in shown
        assert api.patch(f"/v1/tasks/{first}", json={"countdown": 5}).json()["outcome"] == "ready"
        assert api.delete(f"/v1/tasks/{first}").json() == {"id": first, "outcome": "cancelled"}
        assert api.delete(f"/v1/tasks/{first}").status_code == 404
        done = api.post("/do/cancel", data={"id": second}, headers={"Accept": "text/html"})
        assert "Cancelled: it will never run." in done.text
        assert shop.keys()["account:7"] == (0, 1)
