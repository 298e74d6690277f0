"""The fixture with a worker of ``celery.contrib.pytest``, which runs what comes due."""

import threading
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from celery.contrib.testing.app import TestApp
from celery.contrib.testing.worker import start_worker
from celery.exceptions import Reject
from kombu.exceptions import EncodeError

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.testing.delayed_tasks import DelayedTasks
from celery_ext.testing.delayed_tasks import delayed_tasks as make
from celery_ext.testing.running import UnknownTask, WorkerSilent
from kombu_delayq.errors import OtherTransport

Done = list[tuple[Any, bool]]


class Works:
    """An app with a worker in another thread, and what its tasks have done, and whether there."""

    def __init__(self, app: Celery) -> None:
        self.app = app
        self.done: Done = []
        here = threading.current_thread()

        def note(what: Any) -> None:
            self.done.append((what, threading.current_thread() is not here))

        @app.task(shared=False, name="works.remind")
        def remind(number: int) -> int:
            note(number)
            return number

        @app.task(shared=False, name="works.both")
        def both() -> None:
            note("both")
            remind.delay(7)
            remind.apply_async((8,), countdown=600)

        @app.task(shared=False, name="works.chain", delay_chain="5m,10m", autoretry_for=(OSError,))
        def chain() -> None:
            note("chain")
            raise OSError("not reached")

        @app.task(shared=False, name="works.forever", bind=True)
        def forever(task: Any, left: int) -> None:
            if left:
                task.delay(left - 1)

        @app.task(shared=False, name="works.busy", acks_late=True)
        def busy() -> None:
            note("busy")
            if len(self.done) < 3:
                raise Reject("busy", requeue=True)

        self.remind, self.both, self.chain, self.forever, self.busy = remind, both, chain, forever, busy


@pytest.fixture(params=["memory", "redis"])
def works(request: pytest.FixtureRequest) -> Iterator[Works]:
    """A worker on kombu's own memory, and one on a Redis with our transport."""
    # What other tests have left in kombu's memory is not for this worker.
    config: dict[str, Any] = {"task_default_queue": f"works-{uuid4()}"}
    if request.param == "redis":
        server: PrivateRedis = request.getfixturevalue("own_server")
        config |= {"broker_url": server.url, "broker_transport": "kombu_delayq.transport:Transport"}
    app = TestApp(set_as_current=False, enable_logging=False, config=config)
    works = Works(app)
    app.finalize()
    with start_worker(app, pool="solo", perform_ping_check=False):
        yield works


@pytest.fixture
def delayed(works: Works) -> Iterator[DelayedTasks]:
    """The delayed tasks of the app."""

    class Worker:
        app = works.app

    with make("memory", Worker) as delayed_tasks:
        yield delayed_tasks


def test_the_worker_runs_what_comes_due(works: Works, delayed: DelayedTasks) -> None:
    """The worker runs each task when its time has come, in order, and ``advance`` waits for it."""
    late, early = works.remind.apply_async((1,), countdown=1800), works.remind.apply_async((2,), countdown=900)
    assert delayed.has(works.remind, in_="30m", args=(1,))
    delayed.advance("14m")
    assert works.done == []
    delayed.advance("20m")
    assert works.done == [(2, True), (1, True)]
    assert (early.get(timeout=30), late.get(timeout=30)) == (2, 1)


def test_what_a_task_sends_is_waited_for(works: Works, delayed: DelayedTasks) -> None:
    """``run_due`` waits for calls without a delay, also for those of tasks; their delayed calls wait."""
    works.both.delay()
    delayed.run_due()
    assert works.done == [("both", True), (7, True)]
    delayed.advance("10m")
    assert works.done[2:] == [(8, True)]


def test_a_rejected_task_is_waited_for(works: Works, delayed: DelayedTasks) -> None:
    """A task that goes back to its queue has not ended, whether it had a delay or not."""
    works.busy.apply_async(countdown=60)
    delayed.advance("1m")
    assert works.done == [("busy", True)] * 3
    works.done.clear()
    works.busy.delay()  # the worker may have it before the test waits for it
    delayed.run_due()
    assert [ran.state for ran in delayed.ran] == ["REJECTED", "REJECTED", "SUCCESS"] * 2


def test_a_queue_that_nobody_consumes_is_an_error(
    works: Works, delayed: DelayedTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task in a queue that the worker does not consume is named after a while."""
    monkeypatch.setattr("celery_ext.testing.running.WORKER_S", 0.5)
    result = works.remind.apply_async((1,), countdown=60, queue="elsewhere")
    with pytest.raises(WorkerSilent, match=result.id):
        delayed.advance("1m")


def test_tasks_that_call_each_other_for_ever_are_an_error(
    works: Works, delayed: DelayedTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test does not wait for a worker whose tasks have no end."""
    monkeypatch.setattr("celery_ext.testing.sending.MOST_SENT", 20)
    works.forever.delay(500)  # the worker runs some of them before the test begins to count
    with pytest.raises(RuntimeError, match=r"works\.forever.* for ever"):
        delayed.run_due()


def test_a_call_that_cannot_be_sent_is_not_waited_for(works: Works, delayed: DelayedTasks) -> None:
    """A test may show that its arguments are refused, and go on."""
    with pytest.raises(EncodeError):
        works.remind.delay(object())
    works.remind.delay(1)
    delayed.run_due()
    assert works.done == [(1, True)]


def test_a_task_that_the_worker_does_not_know_is_named(works: Works, delayed: DelayedTasks) -> None:
    """A task that the worker has not read is named at once, with what to do."""

    @works.app.task(shared=False, name="works.later")
    def later() -> None:
        pass

    later.apply_async(countdown=60)
    with pytest.raises(UnknownTask, match=r"'works\.later'.*reload"):
        delayed.advance("1m")


def test_a_worker_elsewhere_is_told_what_to_do() -> None:
    """A worker on a stock Redis is no use, and the error says what is."""

    class Worker:
        app = Celery(broker="redis://localhost:1/0", set_as_current=False)

    with pytest.raises(OtherTransport, match="memory://"), make("memory", Worker):
        pass
