"""``advance`` and ``run_due``: what runs, when, and in which order, periodic tasks among it."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.exceptions import Reject, Retry
from celery.schedules import crontab

from celery_ext import install
from celery_ext.testing.delayed_tasks import DelayedTasks
from celery_ext.testing.running import UnknownTask
from tests.integration.testing.conftest import Shop


def test_a_task_runs_when_its_countdown_is_over(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """A task waits until the clock has moved on by its countdown, and runs in this process then."""
    result = shop.remind.apply_async((1,), countdown=1800)
    assert delayed_tasks.has("shop.remind", in_="30m", args=(1,))
    assert delayed_tasks.advance("29m59s") == []
    assert shop.done == []
    [ran] = delayed_tasks.advance("1s")
    assert (ran.name, ran.id, ran.args, ran.state) == ("shop.remind", result.id, (1,), "SUCCESS")
    assert (shop.done, result.get()) == ([1], [1])
    assert not delayed_tasks.waiting()


def test_tasks_run_in_the_order_of_their_due_times(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """Tasks of several queues run in the order of their due times, those of one due time in the order of sending."""
    for number, (countdown, queue) in enumerate([(60, "a"), (30, "b"), (60, "c"), (45, "a"), (60, "a"), (30, "b")]):
        shop.remind.apply_async((number,), countdown=countdown, queue=queue)
    assert [task.args for task in delayed_tasks.waiting()] == [[1], [5], [3], [0], [2], [4]]
    delayed_tasks.advance("1h")
    assert shop.done == [1, 5, 3, 0, 2, 4]


@pytest.mark.parametrize("minutes", [(3,), (1, 1, 1), (2.5, 0.5)])
def test_what_a_task_sends_runs_at_its_time(delayed_tasks: DelayedTasks, shop: Shop, minutes: list[float]) -> None:
    """A task that sends itself again each minute runs three times in three minutes, in however many steps."""
    shop.follow.apply_async((9,), countdown=60)
    for part in minutes:
        delayed_tasks.advance(timedelta(minutes=part))
    assert shop.done == [9, 8, 7]
    assert delayed_tasks.has(shop.follow, in_=60, count=1)


def test_a_countdown_is_over_after_as_long_from_the_begin_of_the_test(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """``run_due`` until an hour after the test has begun runs what was sent a moment later for in an hour."""
    begun = datetime.now(UTC)
    shop.remind.apply_async((1,), countdown=3600)
    shop.remind.apply_async((2,), countdown=3720)
    delayed_tasks.run_due(begun + timedelta(hours=1))
    assert shop.done == [1]


def test_calls_without_a_delay_run_with_the_next_step(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """A call without a delay waits in its queue, and so does what it sends without one; ``run_due`` runs both."""
    shop.follow.delay(2, None)
    assert (shop.done, delayed_tasks.waiting()) == ([], [])
    assert len(delayed_tasks.run_due()) == 3
    assert shop.done == [2, 1, 0]


def test_a_retry_waits_as_long_as_it_says(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """Each retry waits for its countdown, and ``ran`` says how each try ended."""
    shop.flaky.delay(2)
    assert [ran.state for ran in delayed_tasks.run_due()] == ["RETRY"]
    assert isinstance(delayed_tasks.ran[0].result, Retry)
    assert delayed_tasks.has("shop.flaky", in_="1m")
    delayed_tasks.advance("1m")
    assert shop.done == [0, 1]
    assert [ran.result for ran in delayed_tasks.advance("1m")] == ["works"]
    assert [ran.state for ran in delayed_tasks.ran] == ["RETRY", "RETRY", "SUCCESS"]


def test_the_error_of_a_task_is_raised(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """A task that fails for good fails the test, and what is due later waits; without ``propagate`` it is noted."""
    shop.flaky.delay()
    shop.remind.apply_async((1,), countdown=600)
    with pytest.raises(ValueError, match="still broken"):
        delayed_tasks.advance("1h")
    assert shop.done == [0, 1, 2, 3]
    assert delayed_tasks.has("shop.remind", in_="7m")
    delayed_tasks.advance("7m")
    assert shop.done[-1] == 1
    shop.flaky.delay()
    *_, last = delayed_tasks.advance("3m", propagate=False)
    assert (last.state, repr(last.result)) == ("FAILURE", "ValueError('still broken')")


def test_an_eta_in_any_zone(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """An eta is a moment, in whatever zone, and ``run_due`` runs all that is due by another."""
    for hours, zone in ((3, "Asia/Tokyo"), (1, "Europe/Berlin"), (2, "UTC")):
        moment = (datetime.now(UTC) + timedelta(hours=hours)).astimezone(ZoneInfo(zone))
        shop.remind.apply_async((hours,), eta=moment)
        assert delayed_tasks.has(at=moment, in_=timedelta(hours=hours), args=[hours])
    without_zone = datetime.now(UTC).replace(tzinfo=None) + timedelta(hours=4)
    shop.remind.apply_async((4,), eta=without_zone)
    second = delayed_tasks.waiting()[1].due
    delayed_tasks.run_due(second - timedelta(seconds=1))
    assert shop.done == [1]
    delayed_tasks.run_due(second.astimezone(ZoneInfo("America/New_York")))
    assert shop.done == [1, 2]
    assert delayed_tasks.now >= second
    delayed_tasks.run_due(without_zone)
    assert shop.done == [1, 2, 3, 4]


def test_an_eta_that_a_task_makes_counts_from_its_run(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """A task that runs later than the process's clock says may take its eta from that clock: it waits as long."""

    @shop.app.task(shared=False, name="shop.plan")
    def plan() -> None:
        shop.remind.apply_async(("planned",), eta=datetime.now(UTC) + timedelta(hours=1))

    plan.apply_async(countdown=7200)
    delayed_tasks.advance("2h")
    assert delayed_tasks.has("shop.remind", in_="1h")
    delayed_tasks.advance("59m")
    assert shop.done == []
    delayed_tasks.advance("1m")
    assert shop.done == ["planned"]


@pytest.mark.parametrize("late", [False, True])
def test_a_task_expires_by_the_clock_of_the_test(delayed_tasks: DelayedTasks, shop: Shop, late: bool) -> None:
    """A task that is due after its expiry does not run, and one that is due before runs."""
    countdown = 3600 if late else 60
    as_number = shop.remind.apply_async((1,), countdown=countdown, expires=1800)
    as_moment = shop.remind.apply_async((2,), countdown=countdown, expires=datetime.now(UTC) + timedelta(minutes=30))
    delayed_tasks.advance("2h")
    assert shop.done == ([] if late else [1, 2])
    state = "REVOKED" if late else "SUCCESS"
    assert [ran.state for ran in delayed_tasks.ran] == [state, state]
    assert (as_number.state, as_moment.state) == (state, state)


def test_a_task_that_nobody_knows_is_named(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """A task of another service waits like any other; when it is due, the error says that no app here has it."""
    shop.app.send_task("shop.remnd", (1,), countdown=60)
    assert delayed_tasks.has("shop.remnd", in_=60)
    with pytest.raises(UnknownTask, match=r"'shop\.remnd'.*did you mean 'shop\.remind'"):
        delayed_tasks.advance(60)


@pytest.mark.parametrize("wrong", ["soon", -1, timedelta(-1), "", float("nan"), float("inf"), timedelta.max])
def test_a_wrong_duration_is_refused(delayed_tasks: DelayedTasks, wrong: Any) -> None:
    """What is no duration is refused."""
    with pytest.raises(ValueError, match="duration"):
        delayed_tasks.advance(wrong)


def test_a_duration_is_no_moment(delayed_tasks: DelayedTasks) -> None:
    """Whoever takes ``run_due`` for ``advance``, or one for the other, is told so."""
    wrong: Any = "2h"
    for call in (lambda: delayed_tasks.run_due(wrong), lambda: delayed_tasks.has(at=wrong)):
        with pytest.raises(TypeError, match=r"'2h' is no datetime.*advance"):
            call()
    wrong = datetime.now(UTC)
    for call in (lambda: delayed_tasks.advance(wrong), lambda: delayed_tasks.has(in_=wrong)):
        with pytest.raises(TypeError, match="is not a duration"):
            call()


@pytest.mark.parametrize("countdown", [0.001, None])
def test_a_task_that_calls_itself_for_ever_is_an_error(
    delayed_tasks: DelayedTasks, shop: Shop, monkeypatch: pytest.MonkeyPatch, countdown: float | None
) -> None:
    """A task that sends itself again without an end does not hang the test, and the error names it."""
    monkeypatch.setattr("celery_ext.testing.sending.MOST_SENT", 50)

    @shop.app.task(shared=False, name="shop.forever", bind=True)
    def forever(task: Any) -> None:
        task.apply_async(countdown=countdown)

    forever.delay()
    with pytest.raises(RuntimeError, match=r"shop\.forever.* for ever"):
        delayed_tasks.advance("1h")


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("countdown", [None, 60])
def test_a_rejected_task_goes_back_to_its_queue(
    delayed_tasks: DelayedTasks, shop: Shop, monkeypatch: pytest.MonkeyPatch, countdown: float | None, compact: bool
) -> None:
    """With ``requeue`` and ``acks_late`` it runs again, though not for ever; without ``acks_late`` it is lost."""
    shop.app.conf.broker_transport_options = {"compact": compact}

    @shop.app.task(shared=False, name="shop.rejects", acks_late=True)
    def rejects(most: int) -> None:
        shop.done.append(most)
        raise Reject("busy", requeue=len(shop.done) < most)

    rejects.apply_async((3,), countdown=countdown, queue="mail", priority=9)
    assert [ran.state for ran in delayed_tasks.advance("1m")] == ["REJECTED"] * 3
    monkeypatch.setattr("celery_ext.testing.sending.MOST_SENT", 50)
    rejects.apply_async((1000,), countdown=countdown)
    with pytest.raises(RuntimeError, match=r"requeued more than 50, shop\.rejects last"):
        delayed_tasks.advance("1m")
    delayed_tasks.clear()
    rejects.acks_late = False
    rejects.apply_async((1000,), countdown=countdown)
    assert len(delayed_tasks.advance("1m")) == 1


def test_a_retry_is_written_as_the_call_was(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """By the serializer of the call, as in a worker: the task's own may not know the arguments."""
    shop.app.conf.accept_content = ["json", "pickle"]

    @shop.app.task(shared=False, name="shop.picky", bind=True)
    def picky(task: Any, of: Any) -> None:
        if task.request.retries < 2:
            raise task.retry(countdown=1)
        shop.done.append(of)

    picky.apply_async(({1, 2},), serializer="pickle")
    delayed_tasks.advance(2)
    assert shop.done == [{1, 2}]


def test_a_test_may_send_as_much_as_it_likes(
    delayed_tasks: DelayedTasks, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what tasks send while the test runs them is taken for endless."""
    monkeypatch.setattr("celery_ext.testing.sending.MOST_SENT", 5)
    for number in range(20):
        shop.remind.apply_async((number,), countdown=number % 2)
    assert len(delayed_tasks.advance(1)) == 20


def test_a_day_of_periodic_tasks(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """In a day an entry of six hours runs four times, in several steps, and a crontab when it comes."""
    shop.app.conf.beat_schedule = {
        "each six hours": {"task": "shop.remind", "schedule": 6 * 3600.0, "args": ("interval",)},
        "at seven": {"task": "shop.remind", "schedule": crontab(hour=7, minute=0), "args": ("seven",)},
    }
    install(shop.app, periodic=True)
    delayed_tasks.advance("23h")
    assert shop.done.count("interval") == 3
    delayed_tasks.advance("1h")
    assert (shop.done.count("interval"), shop.done.count("seven")) == (4, 1)


def test_an_entry_of_a_certain_time_runs_once(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """The ``clocked`` of django-celery-beat runs at its time, however far the test goes beyond it."""
    clocked = pytest.importorskip("django_celery_beat.clockedschedule").clocked
    moment = delayed_tasks.now + timedelta(hours=1)
    shop.app.conf.beat_schedule = {
        "then": {"task": "shop.remind", "schedule": clocked(moment), "args": ("then",), "options": {"expires": "next"}}
    }
    install(shop.app, periodic=True)
    delayed_tasks.advance("50m")
    assert shop.done == []
    delayed_tasks.advance("1h")
    delayed_tasks.advance("1h")
    assert shop.done == ["then"]


def test_each_periodic_run_has_an_id_of_its_own(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """As with workers, a ``task_id`` in the options of an entry is none of its runs."""
    options = {"task_id": "fixed"}
    shop.app.conf.beat_schedule = {"often": {"task": "shop.remind", "schedule": 60.0, "args": (1,), "options": options}}
    install(shop.app, periodic=True)
    ids = [ran.id for ran in delayed_tasks.advance("3m")]
    assert len({*ids, "fixed"}) == len(ids) + 1 > 2


def test_without_periodic_nothing_runs(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """An app that keeps its beat has no periodic runs in a test."""
    shop.app.conf.beat_schedule = {"often": {"task": "shop.remind", "schedule": 1.0}}
    assert delayed_tasks.advance("1h") == []


def test_a_worker_of_a_test_arms_nothing() -> None:
    """The clock of the test says when periodic tasks run, not the worker that a test starts in its process."""
    app = Celery("shop", broker="memory://", set_as_current=False)
    install(app, periodic=True)
    before = {*threading.enumerate()}  # those of an earlier test may still be ending
    with start_worker(app, pool="solo", perform_ping_check=False):
        assert "delayq-periodic" not in {thread.name for thread in {*threading.enumerate()} - before}
    app.close()
