"""The key of a limit in what a worker gets: in each step of a delay chain, in a workflow, and after a replay."""

from typing import Any

import pytest
from celery import chain

from celery_ext import DeadLetters, install
from celery_ext.limits import LIMIT_HEADER
from celery_ext.testing.delayed_tasks import DelayedTasks
from tests.integration.testing.conftest import Shop

BURIED = {"delay_chain": "1m,1h", "dead_letter_queue": "undelivered"}


@pytest.fixture
def seen(shop: Shop, delayed_tasks: DelayedTasks) -> list[tuple[str, Any]]:
    """The runs of tasks with a limit, each with its key."""
    runs = list[tuple[str, Any]]()
    install(shop.app)

    def see(task: Any) -> None:
        runs.append((task.request.id, (task.request.headers or {}).get(LIMIT_HEADER)))

    @shop.app.task(shared=False, name="shop.export", bind=True, limit=("account", "account"), **BURIED)
    def export(task: Any, account: int) -> None:
        see(task)
        raise task.retry()

    @shop.app.task(shared=False, name="shop.charge", bind=True, limit="stripe")
    def charge(task: Any, account: int) -> int:
        see(task)
        return account

    return runs


def test_each_step_of_a_chain_keeps_the_key(
    delayed_tasks: DelayedTasks, shop: Shop, seen: list[tuple[str, Any]]
) -> None:
    """A step has the key of the first run, also one of the call, and none if the call had none; so has a replay."""
    export = shop.app.tasks["shop.export"]
    calls = {limit: export.apply_async((7,), limit=limit).id for limit in (None, "account:8", "")}
    delayed_tasks.advance("2h", propagate=False)
    keys = {identity: [key for one, key in seen if one == identity] for identity in calls.values()}
    assert [keys[calls[limit]] for limit in calls] == [["account:7"] * 3, ["account:8"] * 3, [None] * 3]
    seen.clear()
    assert DeadLetters(shop.app).replay(queue="undelivered") == {"replayed": 3, "unroutable": 0}
    delayed_tasks.run_due()
    assert [key for _, key in seen] == ["account:7", "account:8", None]


def test_each_task_of_a_workflow_has_its_key(
    delayed_tasks: DelayedTasks, shop: Shop, seen: list[tuple[str, Any]]
) -> None:
    """The second task has the key of the result of the first one, and the third the one that was set."""
    charge, export = shop.app.tasks["shop.charge"], shop.app.tasks["shop.export"]
    chain(charge.s(7), export.s()).apply_async()
    chain(charge.s(7), charge.s().set(limit="account:x", countdown=60)).apply_async()
    delayed_tasks.advance("1m")
    assert sorted({key for _, key in seen}) == ["account:7", "account:x", "stripe"]
