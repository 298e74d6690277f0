"""The async forms: what they do is what the functions do that they call, and the event loop goes on meanwhile."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event
from typing import Any

import pytest
from celery import Celery
from kombu.exceptions import OperationalError

import celery_ext
from celery_ext import Call, aclose, asend, asend_many
from celery_ext.publish import asynchronous as threads
from kombu_delayq import DelayTooLong
from tests.support.conditions import DEADLINE_S, stays, until, until_equal
from tests.support.workers.harness import MakeProj, Proj

pytestmark = pytest.mark.both_layouts

RECORD = "proj.record"
HOUR_S = 3600.0


@contextmanager
def paused(proj: Proj) -> Iterator[Callable[[], int]]:
    """Lets each write of Redis wait until the end. Yields a function that returns how many clients wait."""
    client = proj.server.client()
    client.client_pause(60_000, all=False)
    try:
        yield lambda: int(client.info("clients")["blocked_clients"])
    finally:
        client.client_unpause()


@pytest.mark.journey
def test_workers_run_what_async_functions_send(proj: Proj) -> None:
    """Tasks sent one by one and in bulk run, and a result comes under the id that the caller got."""

    async def work() -> Any:
        result = await asend(proj.app, RECORD, ("one",), countdown=1)
        assert await asend_many(proj.app, RECORD, [Call((n,), countdown=1) for n in range(5)]) == 5
        return result

    result = asyncio.run(work())
    proj.worker()
    assert {run["value"] for run in proj.await_runs(6)} == {"one", *range(5)}
    assert result.get(timeout=30) == "one"


def test_what_is_no_task_is_named() -> None:
    """What is neither a task nor a signature nor a name is refused by the name of its type, as by ``send_many``."""
    with pytest.raises(TypeError, match="the name of a task, not int"):
        asyncio.run(asend(Celery(set_as_current=False), 5))


def test_the_pool_of_an_app_is_there_before_its_threads(make_proj: MakeProj) -> None:
    """Threads that began together would set its limit while one of them uses it already, which kombu refuses."""
    app = make_proj(broker_pool_limit=1).app
    pool: Any = asyncio.run(threads.in_thread(app, lambda: app.amqp._producer_pool))
    assert pool is not None
    assert pool.limit == 1


def test_what_a_task_sends_is_its_child(proj: Proj) -> None:
    """Within a task, messages and the trail of children are as after ``apply_async`` and ``send_many``."""
    app = proj.app

    def parent(task: Any) -> None:
        async def work() -> None:
            await asend(app, RECORD, (1,), countdown=HOUR_S, task_id="one")
            await asend(app, RECORD, (2,), countdown=HOUR_S, task_id="two", add_to_parent=False)
            await asend_many(app, RECORD, [Call((3,), countdown=HOUR_S, task_id="three")])

        asyncio.run(work())
        assert [child.id for child in task.request.children] == ["one"]

    app.task(parent, name="parent", bind=True, shared=False).apply(task_id="the parent", throw=True)
    heads = [json.loads(task.message.body or "")["headers"] for task in celery_ext.select(app)]
    assert {head["id"] for head in heads} == {"one", "two", "three"}
    assert {(head["root_id"], head["parent_id"]) for head in heads} == {("the parent", "the parent")}


def test_errors_of_callers_reach_them(make_proj: MakeProj) -> None:
    """Errors of the call and of an iterable are raised where the call is awaited."""
    proj = make_proj(broker_transport_options={"max_delay": 60})

    def broken() -> Iterator[Call]:
        yield Call((1,), countdown=30)
        raise KeyError("a row is missing")

    async def work() -> None:
        with pytest.raises(DelayTooLong):
            await asend(proj.app, RECORD, (1,), countdown=HOUR_S)
        with pytest.raises(KeyError, match="a row is missing"):
            await asend_many(proj.app, RECORD, broken())

    asyncio.run(work())
    assert celery_ext.select(proj.app).count() == 1  # the call before the error, as by send_many


def test_the_loop_goes_on_while_calls_wait(proj: Proj) -> None:
    """As many calls as the pool has connections run at once, further ones wait, and the loop goes on all the while."""

    async def work() -> None:
        with paused(proj) as waiting:
            calls = [asyncio.create_task(asend(proj.app, RECORD, (n,), countdown=HOUR_S)) for n in range(40)]
            await asyncio.to_thread(until_equal, waiting, proj.app.conf.broker_pool_limit)
            assert not any(call.done() for call in calls)
        await asyncio.gather(*calls)

    asyncio.run(work())
    assert celery_ext.select(proj.app).count() == 40


def test_a_cancelled_call_that_has_begun_goes_on(proj: Proj) -> None:
    """Whoever gives up, such as by a timeout, gets the error at once; what Redis was asked is done all the same."""

    async def work() -> None:
        with paused(proj) as waiting:
            call = asyncio.create_task(asend(proj.app, RECORD, (1,), countdown=HOUR_S))
            await asyncio.to_thread(until_equal, waiting, 1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert waiting() == 1
        await aclose(proj.app)  # waits for what is under way

    asyncio.run(work())
    assert celery_ext.select(proj.app).count() == 1


def test_a_cancelled_call_that_has_not_begun_is_never_made(make_proj: MakeProj) -> None:
    """With one connection, the call behind another has no thread yet, and its cancel is final."""
    proj = make_proj(broker_pool_limit=1)

    async def work() -> None:
        with paused(proj) as waiting:
            first = asyncio.create_task(asend(proj.app, RECORD, (1,), countdown=HOUR_S))
            await asyncio.to_thread(until_equal, waiting, 1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await asend(proj.app, RECORD, (2,), countdown=HOUR_S)
        await first
        await aclose(proj.app)

    asyncio.run(work())
    assert [task.args for task in celery_ext.select(proj.app)] == [[1]]


def test_a_cancelled_asend_many_ends_soon(proj: Proj, caplog: pytest.LogCaptureFixture) -> None:
    """It sends what it read before the cancel, at most two pages, and reads no further call; that is no failure."""
    read = [0]

    def endless() -> Iterator[Call]:
        while True:
            read[0] += 1
            yield Call((1,), countdown=HOUR_S)

    async def work() -> None:
        sending = asyncio.create_task(asend_many(proj.app, RECORD, endless()))
        await asyncio.to_thread(until, lambda: read[0] > 600, what="two pages are sent")
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        cancelled_at = read[0]
        await aclose(proj.app)
        assert read[0] <= cancelled_at + 1
        assert read[0] - 400 <= celery_ext.select(proj.app).count() <= read[0]

    asyncio.run(work())
    assert not [record for record in caplog.records if "await was cancelled" in record.getMessage()]


def test_a_failure_that_nobody_awaits_is_logged(
    proj: Proj, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If the caller was cancelled and the call fails later, the log says so, and ``aclose`` waits for both."""
    begun, cancelled = Event(), Event()
    closing: list[asyncio.Task[None]] = []
    log = threads.logger.warning

    def fail() -> None:
        begun.set()
        cancelled.wait(DEADLINE_S)
        raise OperationalError("no broker")

    def log_late(*args: Any) -> None:
        stays(lambda: not closing[0].done(), 0.2)
        log(*args)

    async def work() -> None:
        call = asyncio.create_task(threads.in_thread(proj.app, fail))
        assert await asyncio.to_thread(begun.wait, DEADLINE_S)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        closing.append(asyncio.create_task(aclose(proj.app)))
        await asyncio.to_thread(stays, lambda: not closing[0].done(), 0.2)
        cancelled.set()
        await closing[0]

    monkeypatch.setattr(threads.logger, "warning", log_late)
    asyncio.run(work())
    [record] = [record for record in caplog.records if "whose await was cancelled" in record.getMessage()]
    assert "no broker" in record.getMessage()


def test_context_variables_come_along(proj: Proj) -> None:
    """A tracer's span or a request id of the caller is there where the message is made."""
    request: ContextVar[str] = ContextVar("request", default="none")

    async def work(name: str) -> str:
        request.set(name)
        return await threads.in_thread(proj.app, request.get)

    async def both() -> list[str]:
        return await asyncio.gather(work("a"), work("b"))

    assert asyncio.run(both()) == ["a", "b"]


def test_threads_begin_anew(proj: Proj) -> None:
    """Another event loop, and a call after ``aclose``, have threads."""

    async def work() -> int:
        return await threads.in_thread(proj.app, celery_ext.select(proj.app).count)

    assert asyncio.run(work()) == asyncio.run(work()) == 0
    asyncio.run(aclose(proj.app))
    asyncio.run(aclose(proj.app))  # nothing to close
    assert asyncio.run(work()) == 0


FORKING = """
import asyncio, os
from celery import Celery
from celery_ext.publish.asynchronous import in_thread

app = Celery("forked", set_as_current=False)
parent = os.getpid()
assert asyncio.run(in_thread(app, os.getpid)) == parent
child = os.fork()
if not child:
    os._exit(asyncio.run(asyncio.wait_for(in_thread(app, os.getpid), 20)) == parent)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.wide
def test_a_process_that_was_forked_has_threads_of_its_own() -> None:
    """A server may load the app, use it, and fork its processes then."""
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_an_app_may_be_a_proxy(proj: Proj) -> None:
    """``current_app`` and its like are the app behind them, with the same threads."""
    from celery.local import Proxy

    proxy: Any = Proxy(lambda: proj.app)

    async def work() -> None:
        await threads.in_thread(proj.app, celery_ext.select(proj.app).count)
        made = threads._threads[proj.app]
        assert await threads.in_thread(proxy, celery_ext.select(proxy).count) == 0
        assert threads._threads[proj.app] is made
        assert not any(type(app) is Proxy for app in threads._threads)
        await aclose(proxy)
        assert proj.app not in threads._threads

    asyncio.run(work())
