"""The async forms: what they do is what the functions do that they call, and the event loop goes on meanwhile."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
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
    """Tasks sent one by one and in bulk run, and their results come under the ids that the caller got."""
    ids: list[str] = []

    async def work() -> Any:
        result = await asend(proj.app, RECORD, ("one",), countdown=1)
        assert await asend_many(proj.app, RECORD, [Call((n,), countdown=1) for n in range(5)], on_sent=ids.extend) == 5
        return result

    result = asyncio.run(work())
    proj.worker()
    assert {run["value"] for run in proj.await_runs(6)} == {"one", *range(5)}
    assert result.get(timeout=30) == "one"
    assert proj.app.AsyncResult(ids[3]).get(timeout=30) == 3


def test_what_is_no_task_is_named() -> None:
    """What is neither a task nor a signature nor a name is refused by the name of its type, as by ``send_many``."""
    with pytest.raises(TypeError, match="the name of a task, not int"):
        asyncio.run(asend(Celery(set_as_current=False), 5))


def test_calls_come_from_an_async_iterable(proj: Proj) -> None:
    """The caller's task reads the iterable, and calls ``on_sent`` for each page before it reads the next one."""
    read: list[int] = []
    sent: list[int] = []
    tasks: set[Any] = set()

    async def calls() -> AsyncIterator[Call]:
        for n in range(450):
            tasks.add(asyncio.current_task())
            read.append(n)
            yield Call((n,), countdown=HOUR_S)

    async def on_sent(ids: list[str]) -> None:
        tasks.add(asyncio.current_task())
        sent.append(len(ids))
        assert len(read) <= sum(sent) + 201

    async def work() -> None:
        tasks.add(asyncio.current_task())
        assert await asend_many(proj.app, RECORD, calls(), on_sent=on_sent) == 450

    asyncio.run(work())
    assert sum(sent) == 450
    assert len(sent) >= 3
    assert len(tasks) == 1
    assert celery_ext.select(proj.app).count() == 450


def test_what_asend_many_waits_for_may_send(make_proj: MakeProj) -> None:
    """Callbacks and async iterables await further calls of the app, even if its pool has a single connection."""
    proj = make_proj(broker_pool_limit=1)

    async def progress(ids: list[str]) -> None:
        await asend(proj.app, RECORD, ("progress",), countdown=HOUR_S)

    async def calls() -> AsyncIterator[Call]:
        await asend_many(proj.app, RECORD, [Call(("begin",), countdown=HOUR_S)], on_sent=progress)
        yield Call((1,), countdown=HOUR_S)

    async def work() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*(asend_many(proj.app, RECORD, calls(), on_sent=progress) for _ in range(3)))

    asyncio.run(work())
    assert celery_ext.select(proj.app).count() == 12


def test_the_pool_of_an_app_is_there_before_its_threads(make_proj: MakeProj) -> None:
    """Threads that began together would set its limit while one of them uses it already, which kombu refuses."""
    app = make_proj(broker_pool_limit=1).app
    pool: Any = asyncio.run(threads.in_thread(app, lambda: app.amqp._producer_pool))
    assert pool is not None
    assert pool.limit == 1


def test_an_async_iterable_is_read_in_one_task(proj: Proj) -> None:
    """On each page it has the context variables and the timeout that it has set, as in ``async for``."""
    tenant: ContextVar[str] = ContextVar("tenant", default="none")
    ended: list[str] = []

    async def calls() -> AsyncIterator[Call]:
        token = tenant.set("shop")
        try:
            async with asyncio.timeout(None) as timeout:
                for n in range(450):
                    assert tenant.get() == "shop"
                    yield Call((n,), countdown=HOUR_S)
                timeout.reschedule(0)
                await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=DEADLINE_S)
        except TimeoutError:
            ended.append("timeout")
        tenant.reset(token)

    assert asyncio.run(asend_many(proj.app, RECORD, calls())) == 450
    assert ended == ["timeout"]


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
    """Errors of the call, of an async iterable and of ``on_sent`` are raised where the call is awaited."""
    proj = make_proj(broker_transport_options={"max_delay": 60})

    async def broken(error: BaseException) -> AsyncIterator[Call]:
        yield Call((1,), countdown=30)
        raise error

    async def refuse(ids: list[str]) -> None:
        raise KeyError("no room")

    async def work() -> None:
        with pytest.raises(DelayTooLong):
            await asend(proj.app, RECORD, (1,), countdown=HOUR_S)
        with pytest.raises(KeyError, match="a row is missing"):
            await asend_many(proj.app, RECORD, broken(KeyError("a row is missing")))
        assert celery_ext.select(proj.app).count() == 1  # the call before the error, as by send_many
        with pytest.raises(asyncio.CancelledError):
            await asend_many(proj.app, RECORD, broken(asyncio.CancelledError()))
        with pytest.raises(KeyError, match="no room"):
            await asend_many(proj.app, RECORD, [Call((1,), countdown=1)], on_sent=refuse)

    asyncio.run(work())


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


def test_a_cancelled_asend_many_ends_soon(proj: Proj) -> None:
    """It sends what it read before the cancel, at most two pages, reads no further call, and calls no ``on_sent``."""

    async def endless() -> AsyncIterator[Call]:
        while True:
            yield Call((1,), countdown=HOUR_S)

    def endless_in_thread() -> Iterator[Call]:
        while True:
            yield Call((1,), countdown=HOUR_S)

    async def work(calls: Any) -> None:
        sent: list[str] = []
        sending = asyncio.create_task(asend_many(proj.app, RECORD, calls, on_sent=sent.extend))
        await asyncio.to_thread(until, lambda: len(sent) > 400, what="two pages are sent")
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        told = len(sent)
        await aclose(proj.app)
        assert told <= celery_ext.select(proj.app).count() <= told + 400
        assert len(sent) == told

    for calls in (endless(), endless_in_thread()):
        proj.server.client().flushall()
        asyncio.run(work(calls))


def test_a_cancelled_asend_many_does_not_wait_for_its_source(proj: Proj, caplog: pytest.LogCaptureFixture) -> None:
    """The source of the calls is cancelled as well, even if it waits for something that never comes."""
    ended: list[str] = []
    reached = asyncio.Event()

    async def stuck() -> AsyncIterator[Call]:
        yield Call((1,), countdown=HOUR_S)
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("source")

    async def work() -> None:
        sending = asyncio.create_task(asend_many(proj.app, RECORD, stuck()))
        await asyncio.wait_for(reached.wait(), DEADLINE_S)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await asyncio.wait_for(aclose(proj.app), DEADLINE_S)

    asyncio.run(work())
    assert ended == ["source"]
    assert not [record for record in caplog.records if "await was cancelled" in record.getMessage()]


@pytest.mark.parametrize("alone", [False, True])
def test_a_failure_that_nobody_awaits_is_logged(
    proj: Proj, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, alone: bool
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
        call = asyncio.create_task(threads.in_thread(proj.app, fail, threads.Caller() if alone else None))
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


def test_a_loop_that_is_closed_leaves_no_thread(proj: Proj, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that waits for its event loop ends when somebody closes that, and holds ``aclose`` up no longer."""
    monkeypatch.setattr(threads, "LOOK_S", 0.05)
    reading = asyncio.Event()

    async def endless() -> AsyncIterator[Call]:
        reading.set()
        await asyncio.Event().wait()
        yield Call()

    loop = asyncio.new_event_loop()
    task = loop.create_task(asend_many(proj.app, RECORD, endless()))
    loop.run_until_complete(asyncio.wait_for(reading.wait(), DEADLINE_S))
    loop.close()
    asyncio.run(asyncio.wait_for(aclose(proj.app), DEADLINE_S))
    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # nobody can end it


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
