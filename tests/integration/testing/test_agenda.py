"""``advance`` with many tasks that wait: it reads them as seldom as it can, and sees what changes meanwhile."""

from datetime import timedelta
from typing import Any

import pytest

import celery_ext
from celery_ext.testing.brokers import Broker
from celery_ext.testing.delayed_tasks import DelayedTasks
from celery_ext.waiting import DelayedTask
from tests.integration.testing.conftest import Shop


@pytest.mark.parametrize("delayed_tasks_broker", ["memory"], indirect=True)
def test_tasks_that_change_nothing_are_read_once(
    delayed_tasks: DelayedTasks, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits in memory is read once for all tasks that send and change nothing, and after each that does."""
    read, reads = Broker.waiting, 0

    def counted(broker: Broker) -> list[DelayedTask]:
        nonlocal reads
        reads += 1
        return read(broker)

    for number in range(100):
        shop.remind.apply_async((number,), countdown=60 + number % 7)
    monkeypatch.setattr(Broker, "waiting", counted)
    delayed_tasks.advance("1h")
    assert (len(shop.done), reads) == (100, 1)
    shop.follow.apply_async((9,), countdown=60)
    delayed_tasks.advance("1h")
    assert reads == 1 + 10


def test_a_task_that_changes_what_waits(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """A running task may cancel others, move them before or behind others, send them, or let them run with the next."""
    ids = [shop.remind.apply_async((n,), countdown=60 * (60 + n), queue=f"q{n % 3}").id for n in range(10)]

    @shop.app.task(shared=False, name="shop.change")
    def change() -> None:
        assert celery_ext.cancel(shop.app, ids[2]) == "cancelled"
        assert celery_ext.reschedule(shop.app, ids[9], countdown=90) == "rescheduled"
        assert celery_ext.reschedule(shop.app, ids[4], countdown=36_000) == "rescheduled"
        assert celery_ext.run_now(shop.app, ids[7]) == "transferred"
        shop.remind.apply_async(("sent",), countdown=132)

    change.apply_async(countdown=60 * 60.5)
    delayed_tasks.advance("70m")
    assert shop.done == [0, 7, 1, 9, "sent", 3, 5, 6, 8]
    delayed_tasks.advance("12h")
    assert shop.done[-1] == 4
    assert not delayed_tasks.waiting()


def test_countdowns_and_moments_run_in_one_order(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """Tasks with a countdown, and those with an eta, come due among each other; so do those that were rescheduled."""
    start, ids = delayed_tasks.now, []
    for n in range(20):
        after_s = 100 + 10 * n
        when: dict[str, Any] = {"countdown": after_s} if n % 2 else {"eta": start + timedelta(seconds=after_s)}
        ids.append(shop.remind.apply_async((n,), **when).id)
    celery_ext.reschedule(shop.app, ids[3], countdown=255)
    delayed_tasks.advance("1h")
    assert shop.done == [0, 1, 2, *range(4, 16), 3, *range(16, 20)]
