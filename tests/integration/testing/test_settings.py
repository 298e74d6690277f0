"""What the fixture does to apps: to eager ones, to those with other brokers, and that it takes everything back."""

from typing import Any

import pytest
from celery import Celery, chain, chord
from celery.app.control import Control
from celery.app.task import Task
from celery.canvas import _chain, _chord
from celery.exceptions import Retry
from kombu import Exchange, Queue

from celery_ext import install
from celery_ext.testing.delayed_tasks import DelayedTasks
from celery_ext.testing.delayed_tasks import delayed_tasks as make
from tests.integration.testing.conftest import Shop


@pytest.fixture
def eager(shop: Shop) -> Shop:
    """An eager app."""
    shop.app.conf.task_always_eager = True
    return shop


def test_an_eager_app_waits_for_delays_alone(eager: Shop, delayed_tasks: DelayedTasks) -> None:
    """Calls without a delay run at once, as Celery lets them; calls with one wait."""
    assert eager.remind.delay(1).get() == (1,)
    result = eager.remind.apply_async((2,), countdown=60)
    assert (eager.done, result.state) == ([1], "PENDING")
    assert delayed_tasks.has("shop.remind", in_="1m", args=(2,))
    delayed_tasks.advance("1m")
    assert (eager.done, result.get()) == ([1, 2], [2])
    assert eager.app.conf.task_always_eager is True


def test_an_eager_task_waits_for_its_retry(eager: Shop, delayed_tasks: DelayedTasks) -> None:
    """A retry of an eager task waits for its countdown; without the fixture Celery runs it at once."""
    eager.flaky.delay(2)
    assert eager.done == [0]
    assert delayed_tasks.has("shop.flaky", in_="1m")
    delayed_tasks.advance("1m")
    assert eager.done == [0, 1]
    delayed_tasks.advance("1m")
    assert (eager.done, delayed_tasks.ran[-1].result) == ([0, 1, 2], "works")


def test_retries_in_an_eager_canvas_run_at_once(eager: Shop, delayed_tasks: DelayedTasks) -> None:
    """A chain and a chord await their tasks, but not what these call."""

    @eager.app.task(shared=False, name="shop.calls")
    def calls() -> None:
        eager.flaky.delay(1, countdown=600)

    assert chain(eager.flaky.si(2), eager.remind.s())().get() == ("works",)
    assert eager.done == [0, 1, 2, "works"]
    assert chord([eager.flaky.si(1), eager.flaky.si(0)], app=eager.app)(eager.remind.s()).get() == (["works"] * 2,)
    assert delayed_tasks.waiting() == []
    chain(calls.si(), eager.remind.si(1))()
    assert delayed_tasks.has(eager.flaky, in_="10m", count=1)
    eager.flaky.delay(1)
    assert delayed_tasks.has(eager.flaky, in_="1m", count=1)


@pytest.mark.parametrize("installed", [True, False])
def test_an_eager_task_waits_as_its_delay_chain_says(eager: Shop, delayed_tasks: DelayedTasks, installed: bool) -> None:
    """Whether the app calls ``install``, or only its workers do."""
    if installed:
        install(eager.app)

    @eager.app.task(shared=False, name="shop.notify", bind=True, delay_chain="4m,10m", autoretry_for=(OSError,))
    def notify(task: Any) -> None:
        eager.done.append(task.request.retries)
        raise OSError("not reached")

    notify.delay()
    assert delayed_tasks.has("shop.notify", in_="4m")
    delayed_tasks.advance("4m")
    assert delayed_tasks.has("shop.notify", in_="10m")
    delayed_tasks.advance("10m", propagate=False)
    assert (eager.done, delayed_tasks.waiting()) == ([0, 1, 2], [])


def test_an_eager_call_with_a_level_waits(eager: Shop, delayed_tasks: DelayedTasks) -> None:
    """A level is a delay, too."""
    install(eager.app)
    eager.remind.apply_async((1,), delay_level=5)
    assert eager.done == []
    assert delayed_tasks.has("shop.remind", in_="1m")


def test_tasks_that_are_routed_by_an_exchange_come(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """The queues of the app are bound as its workers would bind them; a type of RabbitMQ's does not matter."""
    direct, odd = Exchange("shop"), Exchange("odd", type="headers")
    shop.app.conf.task_queues = [Queue("mail", direct, routing_key="soon"), Queue("odd", odd)]
    shop.app.conf.task_routes = {"shop.remind": {"exchange": "shop", "routing_key": "soon"}}
    shop.remind.apply_async((1,), countdown=60)
    shop.remind.delay(2)
    assert delayed_tasks.has(shop.remind, queue="mail", in_="1m")
    delayed_tasks.advance("1m")
    assert shop.done == [2, 1]


def test_errors_of_eager_tasks_are_as_celery_has_them(eager: Shop, delayed_tasks: DelayedTasks) -> None:
    """``task_eager_propagates`` still decides about tasks that run at once."""
    eager.app.conf.task_eager_propagates = True
    with pytest.raises((Retry, ValueError)):
        eager.flaky.apply_async((9,), retries=3)


@pytest.mark.parametrize(
    "settings",
    [
        {"broker_url": "redis://nowhere.invalid/0", "result_backend": "redis://nowhere.invalid/1"},
        {"broker_url": "delayq://nowhere.invalid/0", "broker_transport": "kombu_delayq.transport:Transport"},
        {"broker_url": "amqp://nowhere.invalid//", "result_backend": "rpc://"},
        {"broker_url": "memory://", "result_backend": "cache+memory://"},
        {},
    ],
    ids=lambda settings: settings.get("broker_url", "none"),
)
def test_any_broker_will_do_and_stays_set(settings: dict[str, Any]) -> None:
    """Whatever broker and result backend an app has, neither is used, and all is as before at the end."""
    shop = Shop()
    shop.app.conf.update(settings)
    shop.app.conf.broker_transport_options = {"visibility_timeout": 7}
    shared = {kind: dict(vars(kind)) for kind in (Celery, Task, Control, _chain, _chord)}
    before = (dict(shop.app.conf.items()), shop.app._pool, type(shop.remind))
    with make("memory") as delayed_tasks:
        result = shop.remind.apply_async((1,), countdown=60)
        delayed_tasks.advance("1m")
        assert result.get() == [1]
    assert (dict(shop.app.conf.items()), shop.app._pool, type(shop.remind)) == before
    assert {kind: dict(vars(kind)) for kind in shared} == shared
    with shop.app.connection_for_write() as connection:
        assert "delayed-tasks" not in repr(connection)
    assert not shop.app.amqp._producer_pool


def test_an_app_that_is_made_in_the_test_is_pointed_there_too(delayed_tasks: DelayedTasks) -> None:
    """An app that a factory makes in the test waits in the same place; several apps keep their own tasks."""
    shops = [Shop("one"), Shop("two")]
    for shop in shops:
        shop.remind.apply_async((shop.app.main,), countdown=60)
    assert delayed_tasks.has("shop.remind", count=2)
    delayed_tasks.advance("1m")
    assert [shop.done for shop in shops] == [["one"], ["two"]]


def test_nothing_is_left_for_the_next_test(shop: Shop) -> None:
    """What one test leaves waiting or in queues, the next one does not see."""
    for _ in range(2):
        with make("memory") as delayed_tasks:
            assert not delayed_tasks.waiting()
            assert delayed_tasks.run_due() == []
            shop.remind.delay(1)
            shop.remind.apply_async((2,), countdown=60)
    assert shop.done == []


def test_the_page_needs_a_redis(shop: Shop, delayed_tasks: DelayedTasks, delayed_tasks_broker: str) -> None:
    """The page and the API of an app in a test work on a Redis, and say over memory what they need."""
    testclient = pytest.importorskip("starlette.testclient", reason="the extra `serve` brings it")
    from celery_ext.serve import asgi

    client = testclient.TestClient(asgi(shop.app, anonymous=True))
    shop.remind.apply_async((1,), countdown=60)
    for path, accept in (("/", "text/html"), ("/v1/queues", "application/json"), ("/healthz", "*/*")):
        answer = client.get(path, headers={"Accept": accept})
        if delayed_tasks_broker == "redis":
            assert answer.status_code == 200, answer.text
        else:
            assert answer.status_code == 422, answer.text
            assert "let the fixture delayed_tasks_broker return" in answer.text
