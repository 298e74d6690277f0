"""The key of a limit in what a worker gets: in each step of a delay chain, in a workflow, and after a replay."""

from typing import Any

import pytest
from celery import chain

from celery_ext import DeadLetters, install
from celery_ext.limits import LIMIT_HEADER, Backoff
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


def limit(shop: Shop, **limits: dict[str, Any]) -> None:
    """Declares limits, and lets tasks note the key and the number of their calls."""
    install(shop.app)
    shop.app.conf.broker_transport_options = {"limits": limits}

    @shop.app.task(shared=False, name="shop.work", limit=("account", "account"))
    def work(account: str, number: int) -> None:
        shop.done.append((account, number))


def test_keys_take_turns(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """A call of a small account runs after one of a big one; messages without a key are one key, and weights count."""
    limit(shop, account={}, big={"weight": 2})
    work = shop.app.tasks["shop.work"]
    for number in range(4):
        work.apply_async(("a", number), limit="big")
    for account in ("b", "b", "c"):
        work.delay(account, 0)
    work.apply_async(("none", 0), limit="")
    ran = delayed_tasks.run_due()
    assert [account for account, _ in shop.done] == ["a", "b", "c", "none", "a", "a", "b", "a"]
    assert [one.limit for one in ran[:4]] == ["big", "account:b", "account:c", ""]


def test_a_rate_holds_by_the_clock_of_the_test(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """The burst runs at once, and then each task at its time, delayed or not; another key has a rate of its own."""
    limit(shop, account={"rate": [0.5, 2]})
    work = shop.app.tasks["shop.work"]
    for number in range(4):
        work.delay("a", number)
    work.apply_async(("a", 4), countdown=1)
    work.apply_async(("b", 0), countdown=1)
    delayed_tasks.run_due()
    assert shop.done == [("a", 0), ("a", 1)]
    assert "held back by limits:\n  shop.work (account:a), shop.work (account:a)\n" in delayed_tasks.describe()
    delayed_tasks.advance(1.9)
    assert shop.done[2:] == [("b", 0)]
    delayed_tasks.advance(0.1)
    assert shop.done[3:] == [("a", 2)]
    ran = delayed_tasks.advance(4)
    assert shop.done[4:] == [("a", 3), ("a", 4)]
    assert len(ran) == 2
    assert "held back" not in delayed_tasks.describe()


def test_a_burst_is_whole_again_after_a_pause(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """A number as rate has the burst of a second."""
    limit(shop, account={"rate": 3})
    for number in range(10):
        shop.app.tasks["shop.work"].delay("a", number)
    assert [len(delayed_tasks.advance(0)), len(delayed_tasks.advance(1)), len(delayed_tasks.advance(2))] == [3, 3, 4]
    delayed_tasks.advance("1m")
    for number in range(10):
        shop.app.tasks["shop.work"].delay("a", number)
    assert len(delayed_tasks.run_due()) == 3


def test_a_key_that_is_paused_waits(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """Its tasks run once the app has another limit, and ``clear`` removes them."""
    limit(shop, account={"running": 0})
    work = shop.app.tasks["shop.work"]
    work.delay("a", 0)
    work.apply_async(("a", 1), countdown=60)
    shop.remind.delay(1)
    assert len(delayed_tasks.advance("1d")) == 1
    shop.app.conf.broker_transport_options = {"limits": {"account": {"running": 1}}}
    assert len(delayed_tasks.run_due()) == 2
    shop.app.conf.broker_transport_options = {"limits": {"account": {"running": 0}}}
    work.delay("a", 2)
    delayed_tasks.run_due()
    delayed_tasks.clear()
    shop.app.conf.broker_transport_options = {}
    assert delayed_tasks.run_due() == []


def test_a_key_rests_after_a_backoff(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """The task is the next one of its key after the rest, and counts no retry; another key does not wait."""
    limit(shop, account={}, busy={"running": 2})
    answers = [429, 200, 200]

    @shop.app.task(shared=False, name="shop.charge", bind=True, limit="busy")
    def charge(task: Any, order: int) -> None:
        shop.done.append((order, task.request.retries))
        if answers.pop(0) == 429:
            raise Backoff(30)

    charge.delay(1)
    charge.delay(2)
    shop.app.tasks["shop.work"].delay("a", 0)
    assert [ran.state for ran in delayed_tasks.advance("29s")] == ["RETRY", "SUCCESS"]
    assert shop.done == [(1, 0), ("a", 0)]
    assert [ran.state for ran in delayed_tasks.advance("1s")] == ["SUCCESS", "SUCCESS"]
    assert shop.done[2:] == [(1, 0), (2, 0)]


def test_a_task_without_a_key_waits_alone_after_a_backoff(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """It is a delayed task then; one that backs off for ever is noticed."""
    install(shop.app)
    tries = [1, 2]

    @shop.app.task(shared=False, name="shop.charge")
    def charge(*, for_ever: bool = False) -> None:
        if for_ever or tries.pop():
            raise Backoff(0 if for_ever else 30)

    tries[:] = [0, 1]
    charge.delay()
    shop.remind.delay(1)
    delayed_tasks.run_due()
    assert shop.done == [1]
    assert delayed_tasks.has(charge, in_="30s", limit=None)
    delayed_tasks.advance("30s")
    assert [ran.state for ran in delayed_tasks.ran] == ["RETRY", "SUCCESS", "SUCCESS"]
    charge.apply_async(kwargs={"for_ever": True}, limit="busy")
    with pytest.raises(RuntimeError, match="requeued more than"):
        delayed_tasks.run_due()


def test_waiting_tasks_are_found_by_their_key(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """``waiting`` and ``has`` take the key."""
    limit(shop)
    for account in ("a", "b"):
        shop.app.tasks["shop.work"].apply_async((account, 0), countdown=60)
    assert delayed_tasks.has("shop.work", limit="account:b", count=1)
    assert not delayed_tasks.has(limit="account:c")
