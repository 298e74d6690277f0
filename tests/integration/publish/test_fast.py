"""``fast_publish``: what is left to Celery, when templates are forgotten, what goes wrong, and what workers get."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import pytest
from celery import Celery, signals
from celery.app import amqp
from celery.app.amqp import AMQP
from celery.app.defaults import NAMESPACES
from celery.app.task import Task
from kombu import Exchange, Queue
from kombu.exceptions import EncodeError, LimitExceeded, OperationalError
from kombu.messaging import Producer

from celery_ext import Call, ShardRouter, install, select, send_many
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.publish import fast as publisher
from celery_ext.publish import watch
from celery_ext.publish.fast import FastPublisher
from celery_ext.publish.recipe import recipe_of, why_of_celery
from kombu_delayq import DelayTooLong
from tests.support.conditions import until
from tests.support.servers.proxies import CountsRequests, Proxy
from tests.support.workers.harness import TRANSPORT, Proj


class Fast:
    """An app with ``fast_publish``, one of its tasks, and what was published fast."""

    def __init__(
        self,
        server: PrivateRedis,
        monkeypatch: pytest.MonkeyPatch,
        url: str | None = None,
        source: tuple[Any, str | None] | None = None,
        **conf: Any,
    ) -> None:
        server.client().flushall()
        self.app = app = Celery("fast", broker=url or server.url, set_as_current=False)
        if source is not None:
            app.config_from_object(source[0], namespace=source[1])
        app.conf.update(broker_transport=TRANSPORT, **conf)
        install(app, fast_publish=True)

        @app.task(name="some.task", shared=False)
        def task(*args: Any) -> None: ...

        self.task: Any = app.tasks["some.task"]
        self.published: list[str] = []
        publish = FastPublisher._publish

        def noting(publisher: FastPublisher, noted: Any, recipe: Any, offer: Any, *more: Any) -> None:
            publish(publisher, noted, recipe, offer, *more)
            self.published.append(str(offer.id))

        monkeypatch.setattr(FastPublisher, "_publish", noting)

    def is_fast(self, *args: Any, **options: Any) -> bool:
        """Calls the task. Returns whether the call was published fast."""
        before = len(self.published)
        self.task.apply_async(args, **options)
        return len(self.published) > before


@pytest.fixture
def fast(redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fast]:
    made = Fast(redis_server, monkeypatch, task_publish_retry_policy={"max_retries": 1, "interval_start": 0})
    yield made
    made.app.close()


class Above:
    """A class of settings that others are made from."""

    task_always_eager = False


def sources() -> dict[str, tuple[Any, Callable[[str, Any], object], str | None]]:
    """What settings stand in, how one is changed there, and the namespace."""

    class Own(Above):
        task_ignore_result = True

    module, table, own = ModuleType("settings_of_fast"), {"task_ignore_result": True}, Own()
    return {
        "a module": (module, partial(setattr, module), None),
        "a module with a namespace": (module, lambda name, to: setattr(module, f"CELERY_{name.upper()}", to), "CELERY"),
        "a dict": (table, table.__setitem__, None),
        "an object": (own, partial(setattr, own), None),
        "a class": (Own, partial(setattr, Own), None),
        "a class above": (Own(), partial(setattr, Above), None),
    }


@pytest.mark.parametrize("kind", sources())
def test_a_setting_that_changes_where_it_stands_is_seen(
    redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The next call after a change in a configuration module, or in whatever has the settings, goes by the change."""
    source, change, namespace = sources()[kind]
    monkeypatch.setattr(Above, "task_always_eager", False)
    monkeypatch.setattr(Above, "task_default_queue", "celery", raising=False)
    fast = primed(Fast(redis_server, monkeypatch, source=(source, namespace)))
    client = redis_server.client()
    change("task_default_queue", "other")
    fast.task.apply_async()
    assert client.llen("other") == 1
    assert [fast.is_fast() for _ in range(2)] == [True, True]
    change("task_always_eager", True)
    assert not fast.is_fast()
    assert client.llen("other") == 3
    fast.app.close()


def test_settings_that_django_overrides_are_seen(redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within ``override_settings(CELERY_TASK_ALWAYS_EAGER=True)`` no task is sent, and after that all are."""
    pytest.importorskip("django")
    from django.conf import UserSettingsHolder, global_settings, settings
    from django.test import override_settings

    kept, settings._wrapped = settings._wrapped, UserSettingsHolder(global_settings)
    try:
        fast = primed(Fast(redis_server, monkeypatch, source=(settings, "CELERY")))
        client = redis_server.client()
        for _ in range(2):
            before = client.llen("celery")
            with override_settings(CELERY_TASK_ALWAYS_EAGER=True):
                fast.task.delay()
                assert client.llen("celery") == before
            assert [fast.is_fast() for _ in range(3)][1:] == [True, True]
            assert client.llen("celery") == before + 3
        fast.app.close()
    finally:
        settings._wrapped = kept


@pytest.mark.parametrize("routed", [False, True])
def test_a_delay_of_the_broker_is_left_to_celery(
    redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch, routed: bool
) -> None:
    """A task with ``DelaySeconds``, from its call or its route, waits with each call, also in ``send_many``."""
    options = {"DelaySeconds": 600}
    fast = Fast(redis_server, monkeypatch, task_routes={"some.task": options} if routed else None)
    assert [fast.is_fast(**({} if routed else options)) for _ in range(4)] == [False] * 4
    if routed:
        send_many(fast.app, fast.task, [Call()])
    assert len(list(select(fast.app))) == 4 + routed
    assert redis_server.client().llen("celery") == 0
    fast.app.close()


@pytest.mark.both_layouts
def test_a_call_that_is_made_again_elsewhere_is_stored_once(
    fast: Fast, redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same id, arguments and eta from Celery, a template, ``send_many``, another thread or process are one task."""
    eta = datetime(2040, 1, 1, tzinfo=UTC)

    def call() -> None:
        fast.task.apply_async((1,), task_id="one", eta=eta)

    for _ in range(3):
        call()
    assert fast.published  # the later ones were fast
    with ThreadPoolExecutor(1) as thread:
        thread.submit(call).result()
    send_many(fast.app, fast.task, [Call((1,), task_id="one", eta=eta)])
    monkeypatch.setattr(amqp, "anon_nodename", lambda: "gen1@elsewhere")
    monkeypatch.setattr(os, "getpid", lambda: 1)
    call()
    assert len(list(select(fast.app))) == 1
    fast.task.apply_async((2,), task_id="one", eta=eta)
    assert len(list(select(fast.app))) == 2


def primed(fast: Fast, **options: Any) -> Fast:
    """Calls the task three times, after which it is published fast."""
    assert [fast.is_fast(**options) for _ in range(3)][1:] == [True, True]
    return fast


def test_the_first_call_is_that_of_celery(fast: Fast) -> None:
    """A task that is called once with some options costs no template; every other set of options has its own."""
    for options in ({}, {"priority": 3}, {"priority": True}, {"countdown": 60, "queue": "other"}):
        assert [fast.is_fast(**options) for _ in range(3)] == [False, True, True]
    assert fast.is_fast(countdown=60)


def test_a_call_that_is_left_to_celery_is_looked_at_once(fast: Fast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery hands a call of a task on to ``send_task``, which knows what the task has asked; a call by name asks."""
    send, looks = FastPublisher._send, list[str]()

    def noting(publisher: FastPublisher, noted: Any, name: str, *args: Any, **options: Any) -> Any:
        looks.append(name)
        return send(publisher, noted, name, *args, **options)

    monkeypatch.setattr(FastPublisher, "_send", noting)
    for calls, options in enumerate(({}, {"link": fast.task.s()}, {"stamped": ["list"]}), 1):
        assert not fast.is_fast(**options)
        assert looks == ["some.task"] * calls
    fast.app.send_task("some.task", ())
    assert looks == ["some.task"] * 4


@pytest.mark.parametrize("signal", [signals.before_task_publish, signals.after_task_publish])
def test_receivers_of_signals_are_called(fast: Fast, signal: Any) -> None:
    """While a signal of published tasks has a receiver for the task, Celery publishes it."""
    primed(fast)
    heard: list[Any] = []

    def hear(sender: Any, **kwargs: Any) -> None:
        heard.append(sender)

    signal.connect(hear, sender="another.task")
    assert fast.is_fast()
    signal.connect(hear, sender="some.task")
    try:
        assert not fast.is_fast()
        assert heard == ["some.task"]
    finally:
        signal.disconnect(hear, sender="some.task")
        signal.disconnect(hear, sender="another.task")
    assert fast.is_fast()


class Wrapped:
    """Wraps a function as wrapt does, whose objects claim to be functions and have all their attributes."""

    __class__ = property(lambda self: FunctionType)  # type: ignore[assignment]

    def __init__(self, function: Any, seen: list[str]) -> None:
        self._function, self._seen = function, seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __get__(self, instance: object, owner: type) -> Any:
        return self if instance is None else partial(self, instance)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Notes the call and makes it."""
        self._seen.append(self._function.__name__)
        return self._function(*args, **options)


def test_tracers_are_called(fast: Fast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who replaces a function through which Celery publishes sees all calls, also after calls were fast."""
    primed(fast)
    seen: list[str] = []
    for kind, name in ((Celery, "send_task"), (Producer, "publish")):
        original = getattr(kind, name)

        def traced(self: Any, *args: Any, _original: Any = original, **options: Any) -> Any:
            seen.append(_original.__name__)
            return _original(self, *args, **options)

        with monkeypatch.context() as patch:
            patch.setattr(kind, name, traced)
            assert [fast.is_fast() for _ in range(3)] == [False] * 3
        assert seen == [name] * 3
        seen.clear()
        primed(fast)
        with monkeypatch.context() as patch:
            patch.setattr(kind, name, Wrapped(original, seen))
            assert [fast.is_fast() for _ in range(3)] == [False] * 3
        assert seen == [name] * 3
        seen.clear()
        primed(fast)


def test_who_replaces_apply_async_is_called(fast: Fast, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracer of ``apply_async`` sees all calls, and so does an ``apply_async`` that is set on a task."""
    primed(fast)
    seen: list[str] = []
    original = Task.apply_async

    def traced(self: Any, *args: Any, **options: Any) -> Any:
        seen.append(self.name)
        return original(self, *args, **options)

    for replacement in (traced, Wrapped(original, seen)):
        with monkeypatch.context() as patch:
            patch.setattr(Task, "apply_async", replacement)
            for _ in range(3):
                fast.task.delay()
        assert len(seen) == 3
        seen.clear()
    primed(fast)
    with monkeypatch.context() as patch:
        patch.setattr(type(fast.task).__mro__[2], "apply_async", traced, raising=False)
        fast.task.delay()
    assert seen == ["some.task"]
    seen.clear()
    fast.task.apply_async = partial(traced, fast.task)
    fast.task.delay()
    assert seen == ["some.task"]


def takes_any(*args: Any) -> None: ...


def takes_two(one: Any, two: Any) -> None: ...


class OwnApply(Task):
    def apply_async(self, args: Any = None, kwargs: Any = None, *more: Any, **options: Any) -> Any:
        """Adds an argument."""
        return super().apply_async([*(args or ()), "own"], kwargs, *more, **options)


class OwnName(Task):
    def shadow_name(self, args: Any, kwargs: Any, options: dict[str, Any]) -> str:
        """Shows the task under the name of its first argument."""
        return f"about {args[0]}"


@pytest.mark.parametrize(
    ("base", "argsrepr", "shadow"), [(OwnApply, "('x', 'own')", None), (OwnName, "('x',)", "about x")]
)
def test_what_a_class_does_in_apply_async_is_done(
    fast: Fast, redis_server: PrivateRedis, base: type[Task], argsrepr: str, shadow: str | None
) -> None:
    """A class with an ``apply_async`` or a ``shadow_name`` of its own has them called for each message."""
    task = fast.app.task(name="own", base=base, shared=False)(takes_any)
    for _ in range(4):
        task.delay("x")
        headers = json.loads(redis_server.client().lindex("celery", 0))["headers"]
        assert (headers["argsrepr"].replace("[", "(").replace("]", ")"), headers["shadow"]) == (argsrepr, shadow)


def test_what_celery_refuses_is_refused(fast: Fast) -> None:
    """Arguments that a task does not take, and a soft limit above the hard one, are errors before anything is sent."""
    task = fast.app.task(name="strict", shared=False)(takes_two)
    for _ in range(3):
        task.delay(1, two=2)
    count = len(fast.published)
    assert count == 2
    for option in ("name", "result_cls", "task_type"):
        with pytest.raises(TypeError, match=option):
            task.apply_async((1, 2), **{option: "own"})
    with pytest.raises(TypeError, match="two"):
        task.delay(1)
    for options in ({}, {"expires": 60}):
        task.apply_async((1, 2), **options)
        with pytest.raises(ValueError, match="countdown is out of range"):
            task.apply_async((1, 2), countdown=-3e9, **options)
    count = len(fast.published)
    task.soft_time_limit, task.time_limit = 20, 10
    with pytest.raises(ValueError, match="soft_time_limit must be less"):
        task.delay(1, 2)
    assert len(fast.published) == count
    task.typing, task.soft_time_limit = False, 5
    for _ in range(3):
        task.delay(1)
    assert len(fast.published) > count


def test_routes_may_change(fast: Fast, redis_server: PrivateRedis) -> None:
    """A message goes where the routes of the moment say; a router that is a function is asked each time."""
    client = redis_server.client()
    primed(fast)
    fast.app.conf.update(task_routes={"some.*": {"queue": "routed"}})
    primed(fast)
    assert client.llen("routed") == 3
    asked: list[str] = []

    def route(name: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        asked.append(name)
        return {"queue": f"by_code_{len(asked)}"}

    fast.app.conf.update(task_routes=(route,))
    assert [fast.is_fast() for _ in range(3)] == [False] * 3
    assert len(asked) == 3
    assert client.llen("by_code_3") == 1


def test_queues_may_change(fast: Fast, redis_server: PrivateRedis) -> None:
    """A queue that is declared anew, now with an exchange of several queues, gets its messages in the new way."""
    primed(fast, queue="news")
    topic = Exchange("news", type="fanout")
    fast.app.amqp.queues.add(Queue("news", topic))
    assert [fast.is_fast(queue="news") for _ in range(3)] == [False] * 3
    assert redis_server.client().llen("news") == 3
    fast.app.amqp.queues.add(Queue("news"))
    for _ in range(3):
        fast.is_fast(queue="news")
    assert redis_server.client().llen("news") == 6


@pytest.mark.parametrize(
    "conf", [{"task_always_eager": True}, {"task_send_sent_event": True}, {"task_inherit_parent_priority": True}]
)
def test_settings_may_change(fast: Fast, conf: dict[str, bool]) -> None:
    """A setting with which messages or ways differ is heeded from the next call on, and so is its end."""
    primed(fast)
    for name, value in conf.items():
        setattr(fast.app.conf, name, value)
    assert [fast.is_fast() for _ in range(3)] == [False] * 3
    for name in conf:
        setattr(fast.app.conf, name, False)
    primed(fast)


@pytest.mark.skipif("repr_maxlevels" not in NAMESPACES["task"], reason="this Celery has no such setting")
def test_the_depth_of_reprs_may_change(fast: Fast, redis_server: PrivateRedis) -> None:
    """``task_repr_maxlevels`` is read when it is set."""
    primed(fast)
    fast.app.conf.task_repr_maxlevels = 1
    for _ in range(2):
        fast.task.delay([[[1]]])
        headers = json.loads(redis_server.client().lindex("celery", 0))["headers"]
        assert headers["argsrepr"] == "([...],)" or headers["argsrepr"].count("[") < 3


def test_a_part_of_the_app_may_be_made_anew(fast: Fast) -> None:
    """After the app's router or its whole ``amqp`` was reset, templates are made anew."""
    amqp = fast.app.amqp
    for reset in (lambda: delattr(amqp, "router"), lambda: delattr(fast.app, "amqp")):
        assert [fast.is_fast() for _ in range(3)] == [False, True, True]
        reset()
    assert fast.app.amqp is not amqp
    assert [fast.is_fast() for _ in range(3)] == [False, True, True]


def test_an_own_table_of_queues_is_celerys(monkeypatch: pytest.MonkeyPatch, redis_server: PrivateRedis) -> None:
    """Where a class makes the table of queues in its own way, nobody tells whether it changes."""

    class OwnQueues(AMQP):
        queues = property(lambda self: self.Queues({}))

    monkeypatch.setattr(Celery, "amqp_cls", OwnQueues)
    fast = Fast(redis_server, monkeypatch)
    assert [fast.is_fast() for _ in range(3)] == [False] * 3


def test_own_functions_are_called(fast: Fast) -> None:
    """A ``send_task`` that is set on the app after ``install`` is called, and so is an ``apply_async`` of the task."""
    primed(fast)
    sent: list[str] = []
    send_task = fast.app.send_task
    fast.app.send_task = lambda name, *args, **options: (sent.append(name), send_task(name, *args, **options))[1]
    assert [fast.is_fast() for _ in range(3)] == [False, True, True]  # its calls have a template of their own
    assert sent == ["some.task"] * 3


def test_other_transports_are_celerys(monkeypatch: pytest.MonkeyPatch) -> None:
    """With another broker the app works as without the option."""
    app = Celery("other", broker="memory://", set_as_current=False)
    install(app, fast_publish=True)
    results = [app.send_task("some.task") for _ in range(3)]
    assert len({result.id for result in results}) == 3


def test_errors_are_celerys(fast: Fast, caplog: pytest.LogCaptureFixture) -> None:
    """Arguments that cannot be written, and a delay that is too long, raise what they raise otherwise.

    The log has that ours failed, by the name of the error alone.
    """
    caplog.set_level("INFO", "celery_ext.publish")
    fast.app.conf.broker_transport_options = {"max_delay": 60}
    primed(fast)
    with pytest.raises(EncodeError):
        fast.task.delay(object())
    primed(fast, countdown=5)
    with pytest.raises(DelayTooLong, match="max_delay"):
        fast.task.apply_async(countdown=61)
    with pytest.raises(TypeError):
        fast.task.apply_async(args=5)
    with pytest.raises(TypeError, match="must be a mapping"):
        fast.app.send_task("some.task", (), [1])
    failed = [record.getMessage().rpartition(" ")[2] for record in caplog.records if "ours fails" in record.msg]
    assert failed == ["EncodeError", "DelayTooLong"]


@pytest.mark.parametrize("countdown", [None, 60])
def test_a_lost_connection_is_made_again(fast: Fast, redis_server: PrivateRedis, countdown: float | None) -> None:
    """A call whose connection was lost is published once more, over another one."""
    primed(fast, countdown=countdown)
    client = redis_server.client()
    client.client_kill_filter(_type="normal", skipme=True)
    assert fast.is_fast(countdown=countdown)
    assert client.llen("celery") + client.zcard("delayq:{celery}:due") == 4


@pytest.mark.parametrize("retry", [True, False])
def test_a_broker_that_is_away_is_an_operational_error(
    redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch, retry: bool
) -> None:
    """The error is that of Celery, after as many attempts as its policy says."""
    policy = {"max_retries": 2, "interval_start": 0, "interval_step": 0.01}
    with Proxy(redis_server.port) as proxy:
        fast = Fast(redis_server, monkeypatch, proxy.url, task_publish_retry=retry, task_publish_retry_policy=policy)
        primed(fast)
    errors = []
    for send in (fast.app.send_task.fast, None):
        fast.app.send_task.fast = send
        with pytest.raises(OperationalError) as raised:
            fast.task.delay()
        errors.append((type(raised.value), type(raised.value.__cause__)))
    assert errors[0] == errors[1]


def test_threads_share_templates(fast: Fast, redis_server: PrivateRedis) -> None:
    """Eight threads that begin at once send each of their calls once, with arguments and ids of its own."""

    def send(thread: int) -> list[str]:
        return [fast.task.apply_async((thread, at), countdown=60 if at % 2 else None).id for at in range(50)]

    with ThreadPoolExecutor(8) as threads:
        ids = [each for some in threads.map(send, range(8)) for each in some]
    client = redis_server.client()
    bodies = [json.loads(body) for body in client.lrange("celery", 0, -1) + client.hvals("delayq:{celery}:bodies")]
    assert sorted(body["headers"]["id"] for body in bodies) == sorted(ids)
    assert len({body["properties"]["delivery_tag"] for body in bodies}) == 400
    assert len({body["headers"]["argsrepr"] for body in bodies}) == 400
    assert len(fast.published) > 300


def test_threads_share_the_connections_of_celery(redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a pool of one connection, threads wait for each other and for Celery, and the connection is not lost."""
    fast = Fast(redis_server, monkeypatch, broker_pool_limit=1)
    primed(fast)
    before = redis_server.client().llen("celery"), len(fast.published)
    own = {"expires": "2100-01-01T00:00:00"}  # Celery sends these
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda at: fast.task.apply_async(**({} if at % 4 else own)), range(40)))
    with fast.app.pool.acquire(block=True, timeout=1) as connection:
        assert connection.connected
        with pytest.raises(LimitExceeded):
            fast.app.pool.acquire()
    assert redis_server.client().llen("celery") == before[0] + 40
    assert len(fast.published) == before[1] + 30


FORKING = """
import os, sys
from celery import Celery
from celery_ext import install

app = Celery("forked", broker=sys.argv[1], broker_transport=sys.argv[2], set_as_current=False)
app.conf.task_default_queue = "forked"
install(app, fast_publish=True)


@app.task(name="forked.task")
def task(): ...


for _ in range(3):
    print(task.delay().id, flush=True)
for _ in range(2):
    child = os.fork()
    if not child:
        print(task.delay().id, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
print(task.delay().id)
"""


def test_a_process_that_was_forked_draws_ids_of_its_own(redis_server: PrivateRedis) -> None:
    """A server may load the app, use it, and fork its processes then: no id and no delivery tag comes twice."""
    command = [sys.executable, "-c", FORKING, redis_server.url, TRANSPORT]
    drawn = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()
    messages = list(map(json.loads, redis_server.client().lrange("forked", 0, -1)))
    assert sorted(drawn) == sorted(message["headers"]["id"] for message in messages)
    assert len(drawn) == len(set(drawn)) == len({each["properties"]["delivery_tag"] for each in messages}) == 6


def test_no_thread_makes_a_template_before_it_may(
    fast: Fast, redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one thread asks whether an app allows templates, the calls of another go where their arguments say."""
    fast.app.conf.update(
        task_routes=(lambda name, args, *_, **options: {"queue": f"of_{args[0]}" if args else "none"},)
    )

    def ask_slowly(app: Any) -> Any:
        monkeypatch.setattr(watch, "why_of_celery", why_of_celery)
        with ThreadPoolExecutor(1) as other:
            for args in (("a",), ("b",), ("c",)):
                other.submit(fast.task.delay, *args).result()
        return why_of_celery(app)

    monkeypatch.setattr(watch, "why_of_celery", ask_slowly)
    fast.task.delay("d")
    assert sorted(redis_server.client().keys("of_*")) == ["of_a", "of_b", "of_c", "of_d"]


def test_a_template_that_was_made_meanwhile_is_forgotten(
    fast: Fast, redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a thread makes a template, the routes may change, and another thread may send a call by the new ones."""

    def make_slowly(*args: Any, **more: Any) -> Any:
        monkeypatch.setattr(publisher, "recipe_of", recipe_of)
        made = recipe_of(*args, **more)
        fast.app.conf.update(task_routes={"some.*": {"queue": "routed"}})
        with ThreadPoolExecutor(1) as other:
            other.submit(fast.task.delay).result()
        return made

    monkeypatch.setattr(publisher, "recipe_of", make_slowly)
    for _ in range(2):
        fast.task.delay()
    assert [fast.is_fast() for _ in range(3)] == [True] * 3
    assert redis_server.client().llen("routed") == 4


def test_a_call_is_one_round_trip(redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call sends once to Redis, with and without a delay."""
    with CountsRequests(redis_server.port) as proxy:
        fast = Fast(redis_server, monkeypatch, proxy.url)
        for countdown in (None, 60):
            primed(fast, countdown=countdown)
            before = proxy.requests
            for _ in range(50):
                fast.task.apply_async(countdown=countdown)
            assert proxy.requests - before == 50
        fast.app.close()


def test_shards(redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call goes to the shard of its key, as Celery sends it, also once a router is there that was not."""
    fast = Fast(redis_server, monkeypatch)
    primed(fast)
    orders = ShardRouter("orders", 2, key=lambda order: order)
    fast.app.conf.update(task_routes=[{"other.task": "others"}, orders])
    client = redis_server.client()
    for number in range(40):
        before = client.llen(orders.queue_of(number))
        is_fast = fast.is_fast(number)
        assert client.llen(orders.queue_of(number)) == before + 1
        assert is_fast or number < 20
    assert fast.is_fast(0, queue="celery") is False
    assert client.llen("celery") == 4
    fast.app.conf.update(task_routes=[orders, {"*": {"queue": "others", "priority": 5}}])
    for _ in range(4):
        client.delete(orders.queue_of(0))
        assert not fast.is_fast(0)
        assert '"priority": 0' in client.lindex(orders.queue_of(0), 0)


def test_far_messages_go_to_the_journal(
    redis_server: PrivateRedis, journal_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a journal, what is due late waits in the database, and what is due soon in Redis."""
    options = {"journal_url": journal_url, "journal_horizon": 3600}
    fast = Fast(redis_server, monkeypatch, broker_transport_options=options)
    primed(fast, countdown=60)
    for _ in range(4):
        assert fast.is_fast(countdown=7200)
    assert redis_server.client().zcard("delayq:{celery}:due") == 3
    assert len(list(select(fast.app, queues="celery"))) == 7
    fast.app.close()


@pytest.mark.journey
@pytest.mark.both_layouts
def test_workers_run_what_is_published_fast(proj: Proj) -> None:
    """Calls with and without a delay, and retries of a worker's own, run once, and results come back."""
    install(proj.app, fast_publish=True)
    results = [proj.send("record", at, countdown=1 if at % 2 else None) for at in range(20)]
    proj.worker()
    runs = proj.await_runs(20)
    assert {run["id"]: run["value"] for run in runs} == {result.id: at for at, result in enumerate(results)}
    assert results[7].get(timeout=30) == 7
    until(lambda: len(proj.runs()) == 20)
