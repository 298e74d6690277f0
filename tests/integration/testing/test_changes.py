"""Waiting tasks that are cancelled, rescheduled, revoked or run now, and delay chains, by the library's own API."""

from datetime import timedelta
from typing import Any

import pytest

import celery_ext
from celery_ext.testing.delayed_tasks import DelayedTasks
from celery_ext.testing.delayed_tasks import delayed_tasks as make
from kombu_delayq.errors import DelayTooLong, InvalidDelayLevel, InvalidIfWaiting
from tests.integration.testing.conftest import Shop


def test_a_cancelled_task_does_not_run(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """``cancel`` removes a task, also by its result, and by the ``revoke`` of the result."""
    first, second, third = (shop.remind.apply_async((n,), countdown=60) for n in range(3))
    assert celery_ext.cancel(shop.app, first) == "cancelled"
    second.revoke()
    delayed_tasks.advance("2m")
    assert shop.done == [2]
    assert [ran.id for ran in delayed_tasks.ran] == [third.id]
    assert (first.state, second.state, third.state) == ("REVOKED", "REVOKED", "SUCCESS")
    assert celery_ext.cancel(shop.app, third) == "not_delayed"


def test_a_revoked_task_does_not_run_when_it_comes(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """``revoke`` stops what was sent without a delay, and what is sent later, such as the next task of a chain."""
    ready = shop.remind.delay(1)
    ready.revoke()
    later = (shop.remind.si(2) | shop.remind.si(3).set(countdown=60))()
    shop.app.control.revoke([later.id])
    delayed_tasks.advance("1m")
    assert shop.done == [2]
    assert [ran.state for ran in delayed_tasks.ran] == ["REVOKED", "SUCCESS", "REVOKED"]
    assert (ready.state, later.state) == ("REVOKED", "REVOKED")
    with make("memory") as others:
        shop.remind.apply_async((4,), task_id=ready.id)
        others.run_due()
    assert shop.done == [2, 4]


def test_a_rescheduled_task_runs_at_its_new_time(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """``reschedule`` counts from the time by the clock of the test; ``run_now`` lets a task run with the next step."""
    late, now = (shop.remind.apply_async((n,), countdown=3600) for n in range(2))
    delayed_tasks.advance("30m")
    assert celery_ext.reschedule(shop.app, late, countdown=7200) == "rescheduled"
    assert delayed_tasks.has(task_id=late.id)
    assert celery_ext.run_now(shop.app, now) == "transferred"
    assert shop.done == []
    delayed_tasks.run_due()
    assert shop.done == [1]
    delayed_tasks.advance("1h59m")
    assert shop.done == [1]
    delayed_tasks.advance("1m")
    assert shop.done == [1, 0]


def test_an_eta_of_reschedule_is_by_the_clock_of_the_test(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """It is a moment by ``delayed_tasks.now``, as a due time is that was read: a task can be put off by an hour."""
    result = shop.remind.apply_async((1,), countdown=7200)
    delayed_tasks.advance("1h")
    task = celery_ext.get(shop.app, result)
    assert task is not None
    later = task.due + timedelta(hours=1)
    assert celery_ext.reschedule(shop.app, result, eta=later) == "rescheduled"
    assert delayed_tasks.has(at=later, count=1)
    [moved] = delayed_tasks.waiting()
    assert abs(moved.due - delayed_tasks.now - timedelta(hours=2)) < timedelta(minutes=5)
    eta = delayed_tasks.now + timedelta(hours=3)
    assert celery_ext.select(shop.app, task="shop.remind").reschedule(eta=eta)["rescheduled"] == 1
    assert delayed_tasks.has(at=eta, count=1)


def test_a_delay_chain_goes_on(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """A task with a delay chain is retried as its schedule says; when the last step has failed, its error is raised."""

    @shop.app.task(shared=False, name="shop.notify", bind=True, delay_chain="4m,10m,1h", autoretry_for=(OSError,))
    def notify(task: Any) -> None:
        shop.done.append(task.request.retries)
        raise OSError("not reached")

    notify.delay()
    delayed_tasks.run_due()
    assert delayed_tasks.has("shop.notify", in_="4m")
    delayed_tasks.advance("14m")
    assert shop.done == [0, 1, 2]
    assert delayed_tasks.has("shop.notify", in_="1h")
    with pytest.raises(OSError, match="not reached"):
        delayed_tasks.advance("1h")
    assert not delayed_tasks.waiting()


def test_dead_letters_do_not_run(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """A task that is buried after its last step stays in its queue of dead letters, and the test finds it there."""

    @shop.app.task(
        shared=False, name="shop.pay", delay_chain="1m", autoretry_for=(OSError,), dead_letter_queue="shop.dead"
    )
    def pay() -> None:
        shop.done.append("tried")
        raise OSError("declined")

    pay.delay()
    delayed_tasks.advance("30s", propagate=False)
    [waits] = delayed_tasks.waiting()
    assert waits.last_error == "OSError: declined"
    assert delayed_tasks.dead_letters() == []
    delayed_tasks.advance("1h", propagate=False)
    delayed_tasks.advance("1h")
    assert shop.done == ["tried", "tried"]
    [letter] = delayed_tasks.dead_letters(pay)
    assert (letter.name, letter.reason, letter.error) == ("shop.pay", "delay chain exhausted", "OSError: declined")
    assert delayed_tasks.dead_letters("shop.remind") == []
    assert celery_ext.cancel(shop.app, letter.id) == "dead_letter"
    pay.dead_letter_queue = "shop.other"  # a queue that no app names is that of an earlier test
    assert delayed_tasks.dead_letters() == []
    pay.dead_letter_queue = "shop.dead"
    delayed_tasks.clear()
    assert delayed_tasks.dead_letters() == []


def test_dead_letters_are_replayed_and_dropped(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """``DeadLetters`` lists and counts what a test has buried, sends it back to its queue, and drops it."""

    @shop.app.task(shared=False, name="shop.pay", dead_letter_queue="shop.dead", dead_letter_on="failure")
    def pay(order: int) -> None:
        shop.done.append(order)
        raise OSError("declined")

    results = [pay.apply_async((order,), countdown=60) for order in range(3)]
    delayed_tasks.advance("1m", propagate=False)
    letters = celery_ext.DeadLetters(shop.app)
    assert [letter.task.args for letter in letters.list()] == [[0], [1], [2]]
    assert letters.queues()["shop.dead"] == 3
    assert letters.get(results[1].id) is not None
    assert letters.replay(results[1].id) == {"replayed": 1, "unroutable": 0}
    assert [letter.task.args for letter in letters.list("shop.dead", limit=5)] == [[0], [2]]
    delayed_tasks.run_due(propagate=False)
    assert shop.done == [0, 1, 2, 1]
    assert letters.drop(results[2].id) == 1
    assert letters.replay(queue="shop.dead") == {"replayed": 2, "unroutable": 0}
    delayed_tasks.run_due(propagate=False)
    assert shop.done[4:] == [0, 1]
    assert letters.drop(task="shop.*", error="declined") == 2
    assert (delayed_tasks.dead_letters(), letters.replay(queue="shop.dead")["replayed"]) == ([], 0)


def test_one_task_of_an_id_waits(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """``if_waiting`` keeps the task that waits or replaces it, says which, and means those alone that wait."""
    celery_ext.install(shop.app)

    def remind(number: int, mode: str, **options: Any) -> str:
        result = shop.remind.apply_async((number,), task_id="one", if_waiting=mode, **options)
        assert result.id == "one"
        return str(result.if_waiting)

    assert [remind(number, "keep", countdown=60) for number in (1, 2)] == ["added", "kept"]
    assert delayed_tasks.has(args=(1,), in_="1m", count=1)
    assert [remind(number, "replace", countdown=120) for number in (3, 4)] == ["replaced", "replaced"]
    assert delayed_tasks.has(args=(4,), in_="2m", count=1)
    assert remind(5, "keep") == "kept"
    assert "sent without a delay" not in delayed_tasks.describe()
    assert delayed_tasks.advance(119.995) == []  # of what waits the delay still ends to the ms
    delayed_tasks.advance(0.005)
    assert shop.done == [4]
    assert remind(6, "keep") == "added"
    delayed_tasks.run_due()
    assert shop.done == [4, 6]
    assert delayed_tasks.waiting() == []


def test_a_key_of_arguments_names_the_task(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """``waiting_key`` makes the id of the named arguments, however they are given, and leaves retries alone."""
    celery_ext.install(shop.app)

    @shop.app.task(
        shared=False, name="shop.index", bind=True, waiting_key=("order_id",), autoretry_for=(OSError,), max_retries=1
    )
    def index(self: Any, order_id: int, reason: str = "") -> None:
        shop.done.append((order_id, reason, self.request.retries))
        if reason == "fails":
            raise OSError

    results = [index.apply_async((7, "first"), countdown=10), index.apply_async((7,), {"reason": "x"}, countdown=99)]
    results += [index.apply_async(kwargs={"order_id": 7}, countdown=10), index.apply_async((8, "fails"), countdown=10)]
    assert [result.if_waiting for result in results] == ["added", "kept", "kept", "added"]
    assert len({result.id for result in results[:3]}) == 1
    assert results[3].id != results[0].id
    newest = index.apply_async((7, "newest"), countdown=20, if_waiting="replace")
    assert (newest.waiting_key, newest.if_waiting) == (results[0].waiting_key, "replaced")
    assert newest.id != results[0].id
    delayed_tasks.advance("1h", propagate=False)
    assert shop.done == [(8, "fails", 0), (7, "newest", 0), (8, "fails", 1)]
    assert celery_ext.send_many(shop.app, index, [celery_ext.Call((9,), countdown=n) for n in (5, 6, 7)]) == 3
    assert delayed_tasks.has(index, args=(9,), count=1)


def test_what_waits_has_to_be_named(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """Without a task id, with another word, or with a key that the call has not, nothing is sent."""
    celery_ext.install(shop.app)

    @shop.app.task(shared=False, name="shop.keyed", waiting_key=("order_id",))
    def keyed(order: int) -> None:
        """Has no such argument."""

    for call in (
        lambda: shop.remind.apply_async((1,), countdown=9, if_waiting="keep"),
        lambda: shop.remind.apply_async((1,), countdown=9, task_id="one", if_waiting="kep"),
        lambda: keyed.apply_async((1,), countdown=9),
    ):
        with pytest.raises(InvalidIfWaiting):
            call()
    with pytest.raises(InvalidIfWaiting, match="list of argument names"):
        shop.app._task_from_fun(keyed.run, name="shop.wrong", waiting_key="order_id")
    assert delayed_tasks.waiting() == []


def test_delay_levels_need_install(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """A level waits as the table says, in an app for which ``install`` was called; any other app is told so."""
    with pytest.raises(InvalidDelayLevel, match="install"):
        shop.remind.apply_async((1,), delay_level=17)
    celery_ext.install(shop.app)
    shop.remind.apply_async((1,), delay_level=17)
    assert delayed_tasks.has("shop.remind", in_="1h")
    delayed_tasks.advance("1h")
    assert shop.done == [1]


def test_transport_options_of_the_app_hold(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """What the app's transport options refuse is refused in a test, too."""
    shop.app.conf.broker_transport_options = {"max_delay": 3600, "visibility_timeout": 9, "global_keyprefix": "prod:"}
    delayed_tasks.advance("2h")
    with pytest.raises(DelayTooLong):
        shop.remind.apply_async((1,), countdown=3601)
    shop.remind.apply_async((1,), countdown=60)
    delayed_tasks.advance(60)
    assert shop.done == [1]


def test_signatures_wait_and_go_on(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """A Celery chain goes on with the next task when the one before has run; a chord's callback gets all results."""
    (shop.remind.si(1).set(countdown=60) | shop.remind.si(2).set(countdown=60)).apply_async()
    delayed_tasks.advance("1m")
    assert shop.done == [1]
    delayed_tasks.advance("1m")
    assert shop.done == [1, 2]
    header = [shop.remind.si(n).set(countdown=60) for n in (3, 4)]
    from celery import chord

    chord(header, app=shop.app)(shop.remind.s())
    delayed_tasks.advance("2m")
    assert shop.done == [1, 2, 3, 4, [[3], [4]]]


def test_clear_removes_all(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """After ``clear`` neither delayed calls nor others run."""
    shop.remind.apply_async((1,), countdown=60)
    shop.remind.delay(2)
    delayed_tasks.clear()
    assert (delayed_tasks.waiting(), delayed_tasks.advance("1h"), shop.done) == ([], [], [])
