"""Messages of ``fast_publish`` and ``send_many`` are those of Celery, byte for byte, also with ``compact``."""

import json
import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from celery import Celery, _state
from celery.app.defaults import NAMESPACES

from celery_ext import Call, install, send_many
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.publish.fast import FastPublisher
from kombu_delayq.message.outgoing import DEFAULTS
from tests.integration.publish.golden_cases import ARGUMENTS, CASES, ETA, Case, app_of, record, sent

#: What Celery makes itself, because a template would not say the same, or would say more than it knows.
OF_CELERY = {
    "expires in the past",
    "expires at a time",
    "expires at a time without a zone",
    "expires as text",
    "link",
    "link_error",
    "ids of others",
    "stamps",
    "headers in pairs",
    "repr that is no text",
}
MORE = {
    "headers in pairs": Case(Call(eta=ETA), {"headers": [("x", 1)]}),
    "origin": Case(Call(eta=ETA), {"origin": "gen1@there"}),
    "no origin": Case(Call(eta=ETA), {"origin": None}),
    "root and parent": Case(Call(eta=ETA), {"root_id": "r", "parent_id": 'p"'}),
    "retries": Case(Call(eta=ETA), {"retries": 3, "replaced_task_nesting": 0}),
    "retries as a float": Case(Call(eta=ETA), {"retries": 3.0}),
    "retries, True": Case(Call(eta=ETA), {"retries": True}),
    "a step of a chain": Case(Call(eta=ETA), {"delay_chain": "1m,1h", "delay_chain_id": 'it\'s %s "one"'}),
    "a retry": Case(Call(eta=ETA), {"retries": 1, "last_error": 'KeyError: "%s"\nü'}),
    "a step that is late": Case(Call(countdown=-1e9), {"delay_chain_id": "one", "priority": 3, "delay_chain": "1m"}),
    "expires and countdown": Case(Call(countdown=5.25), {"expires": 60}),
    "headers and compression": Case(Call(eta=ETA), {"headers": {"x": 1}, "compression": "zlib"}),
    "expiration": Case(Call(), {"expiration": 5}),
    "expiration and expires": Case(Call(eta=ETA), {"expiration": 5, "expires": 60}),
    "no shadow": Case(Call(eta=ETA), {"shadow": ""}),
    "shadow": Case(Call(eta=ETA), {"shadow": "other"}),
    "repr that is no text": Case(Call((1,), {"b": 2}, eta=ETA), {"argsrepr": "(***)", "kwargsrepr": 5}),
    "repr and no delay": Case(Call((1,)), {"argsrepr": '%s "x"', "kwargsrepr": "ü"}),
}
ALL = {**CASES, **MORE}


class Both:
    """Sends each call in both ways."""

    def __init__(self, server: PrivateRedis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        self._server = server
        self._caplog = caplog
        caplog.set_level(logging.INFO, "celery_ext.publish.many")
        self._published: list[Any] = []
        publish = FastPublisher._publish

        def noting(publisher: FastPublisher, noted: Any, recipe: Any, offer: Any, *more: Any) -> None:
            self._published.append(offer)
            publish(publisher, noted, recipe, offer, *more)

        monkeypatch.setattr(FastPublisher, "_publish", noting)

    def compare(
        self,
        app: Celery,
        send: Callable[[], Any],
        *,
        fast: bool = True,
        many: Callable[[], Any] | None = None,
        is_relative: bool = False,
    ) -> None:
        """Fails the test unless Redis has the same after all ways, and the fast one was taken if it should be.

        ``many`` sends the call by ``send_many``, and not one by one.
        """
        sender: Any = app.send_task
        publisher, sender.fast = sender.fast, None
        theirs = sent(self._server, app, send, is_relative=is_relative)
        sender.fast = publisher
        for _ in range(2):  # the first call is Celery's; with the second, the recipe is made
            send()
        self._published.clear()
        ours = sent(self._server, app, send, is_relative=is_relative)
        assert ours == theirs
        assert len(self._published) == int(fast)
        if many is not None:
            assert sent(self._server, app, many, is_relative=is_relative) == theirs
            assert "one by one" not in self._caplog.text


@pytest.fixture
def both(redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Both:
    return Both(redis_server, monkeypatch, caplog)


def fast_app_of(server: PrivateRedis, case: Case, *, compact: bool = False) -> Celery:
    app = app_of(server, case)
    app.conf.broker_transport_options = {"compact": compact}
    install(app, fast_publish=True)
    return app


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_all_ways_to_publish_make_the_same(redis_server: PrivateRedis, both: Both, name: str, compact: bool) -> None:
    """``apply_async``, ``fast_publish`` and ``send_many`` make the same bytes in the same place."""
    case = ALL[name]
    if "task_repr_maxlevels" in case.conf and "repr_maxlevels" not in NAMESPACES["task"]:
        pytest.skip("this Celery has no such setting")
    app = fast_app_of(redis_server, case, compact=compact)
    task = app.task(name="bulk.record", shared=False, **case.of_task)(record)
    call = case.call._replace(task_id="ü\"' %s")
    given = {field: value for field, value in call._asdict().items() if value is not None}
    both.compare(
        app,
        lambda: task.apply_async(**given, **case.options),
        fast=name not in OF_CELERY,
        many=(lambda: send_many(app, task, [call], **case.options)) if name in CASES else None,
        is_relative=case.is_relative,
    )


def test_arguments_are_those_of_celery(redis_server: PrivateRedis, both: Both) -> None:
    """Arguments of all kinds are written and shown as Celery writes and shows them."""
    app = fast_app_of(redis_server, Case())
    task = app.task(name="bulk.record", shared=False)(record)
    for args in ARGUMENTS:
        named = {f"a'{at}": value for at, value in enumerate(args)}
        for given in ((args, None), (None, named), (args, named)):
            call = Call(*given, eta=ETA, task_id="one")
            both.compare(
                app,
                lambda call=call: task.apply_async(call.args, call.kwargs, eta=ETA, task_id="one"),  # type: ignore[misc]
                many=lambda call=call: send_many(app, task, [call]),  # type: ignore[misc]
            )


@pytest.mark.parametrize(
    ("options", "of_task"),
    [
        ({}, None),
        ({"queue": "q", "ignore_result": True}, None),
        ({}, {}),
        ({}, {"priority": 3, "queue": "own"}),
        ({"priority": 5}, {"priority": 3}),
        ({"expires": None}, {"expires": 60}),
    ],
)
def test_a_name_is_enough(
    redis_server: PrivateRedis, both: Both, options: dict[str, Any], of_task: dict[str, Any] | None
) -> None:
    """``send_task`` sends what it would send otherwise, whether or not the app has the task."""
    app = fast_app_of(redis_server, Case())
    if of_task is not None:
        app.task(name="some.where", shared=False, **of_task)(record)
        app.finalize()
    both.compare(app, lambda: app.send_task("some.where", (1,), {"a": 2}, eta=ETA, task_id="one", **options))
    both.compare(app, lambda: app.send_task("some.where", [1], task_id="one", **options))


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("inherit", [False, True])
def test_calls_of_a_task_are_its_children(redis_server: PrivateRedis, both: Both, inherit: bool, compact: bool) -> None:
    """Within a task, calls have its root and its id as their parent; an inherited priority is left to Celery."""
    app = fast_app_of(redis_server, Case(conf={"task_inherit_parent_priority": inherit}), compact=compact)
    task = app.task(name="bulk.record", shared=False)(record)
    _state._task_stack.push(task)
    task.push_request(id="the parent", root_id="the root", delivery_info={"priority": 7}, called_directly=False)
    try:
        both.compare(
            app,
            lambda: task.apply_async((1,), eta=ETA, task_id="one"),
            fast=not inherit,
            many=lambda: send_many(app, task, [Call((1,), eta=ETA, task_id="one")]),
        )
        assert [child.id for child in task.request.children] == ["one"] * 4
        [body] = redis_server.client().hvals("delayq:{celery}:bodies")
        assert DEFAULTS.keys() & json.loads(body.lstrip("\x7f0123456789"))["headers"].keys() == (
            {"parent_id"} if compact else DEFAULTS.keys()
        )
    finally:
        task.pop_request()
        _state._task_stack.pop()


def test_a_retry_is_that_of_celery(redis_server: PrivateRedis, both: Both) -> None:
    """What ``retry`` sends has the request's ids, headers, expiry and origin, and its own count."""
    app = fast_app_of(redis_server, Case())
    task: Any = app.task(name="bulk.record", shared=False, bind=True)(record)
    for chain in (None, "1m,1h"):
        task.push_request(
            id="one",
            root_id="the root",
            parent_id="the parent",
            args=(1,),
            kwargs={"a": 2},
            retries=1,
            origin="gen1@there",
            reply_to="somebody",
            timelimit=[None, None],
            headers={"of": "mine"},
            properties={"delay_chain": chain, "delay_chain_id": "the chain"} if chain else {},
            delivery_info={"exchange": "", "routing_key": "orders", "priority": 4},
            called_directly=False,
        )
        try:
            both.compare(app, lambda: task.retry(eta=ETA, throw=False))
        finally:
            task.pop_request()


def test_a_step_that_is_due_at_once_is_that_of_celery(redis_server: PrivateRedis, both: Both) -> None:
    """A step of a chain without an eta is stored, due when it arrives, with the bytes that Celery gives it."""
    app = fast_app_of(redis_server, Case())
    stored = []
    for _ in range(3):
        redis_server.client().flushall()
        app.send_task("some.where", (1,), task_id="one", delay_chain="1m", delay_chain_id="the chain")
        stored.append(redis_server.client().hgetall("delayq:{celery}:bodies"))
    assert stored[0]
    assert stored[2] == stored[1] == stored[0]


def test_results_are_those_of_celery(redis_server: PrivateRedis, both: Both) -> None:
    """A result has the id, class and ``ignored`` that Celery gives it, and a random id is a UUID of version 4."""
    app = fast_app_of(redis_server, Case())
    task = app.task(name="bulk.record", shared=False, ignore_result=True)(record)
    results = [task.delay(1) for _ in range(4)]
    assert len({result.id for result in results}) == 4
    for result in results:
        assert (type(result), result.ignored) == (type(results[0]), True)
        assert UUID(result.id).version == 4
    assert app.send_task("bulk.record").ignored is app.send_task("bulk.record").ignored
