"""What a worker does with a message by our strategy and by Celery's, side by side, without a broker."""

import logging
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from threading import get_ident
from time import time
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, signals
from celery.app import trace
from celery.concurrency.solo import TaskPool as SoloPool
from celery.events.dispatcher import EventDispatcher
from celery.exceptions import Ignore, Reject, TaskRevokedError
from celery.worker import state, strategy
from celery.worker.consumer import Consumer
from celery.worker.request import Request
from kombu import serialization
from kombu.transport.virtual.base import Base64
from kombu.utils import json
from vine import promise

from celery_ext.worker.bootstrap import install
from celery_ext.worker.plain import Ack, plain
from kombu_delayq.consume.fetched import FetchedMessage, FetchedPayload

NOW = datetime.now(UTC)
ID = "0b1c0a4e-7f1b-4b62-9e1c-6f6f5d1f3a11"
#: What differs with each run: times, and objects of this run.
_OF_THE_RUN = {
    *("runtime", "time_start", "timestamp", "clock"),
    *("_message", "_eventer", "_on_ack", "_on_reject", "_eta_timer_entry", "_tzlocal"),
}
SIGNALS = ("received", "prerun", "postrun", "success", "failure", "retry", "revoked", "rejected", "internal_error")


class Noted:
    """What a user could see of a worker: events, signals, logs, acks, states, requests."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def add(self, kind: str, *found: Any) -> None:
        """Notes something."""
        self.seen.append((kind, *map(_shown, found)))


def _shown(value: Any) -> Any:
    """Returns a value without what differs with each run."""
    if isinstance(value, Request):
        slots = {name for each in type(value).__mro__ for name in getattr(each, "__slots__", ())}
        names = (slots | {*vars(value)}) - {"__weakref__", "__dict__", "__payload", "_app", "_task", *_OF_THE_RUN}
        return {name: _shown(getattr(value, name, "missing")) for name in sorted(names)}
    if isinstance(value, dict):
        return {name: _shown(each) for name, each in value.items() if name not in _OF_THE_RUN}
    if isinstance(value, list | tuple):
        return type(value)(map(_shown, value)) if type(value) in (list, tuple) else repr(value)
    return value if isinstance(value, str | int | float | bool | bytes | type(None)) else type(value).__name__


@pytest.fixture(params=["stock", "installed"])
def app(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Celery]:
    """An app of a worker, with tasks that end in each way."""
    app = Celery("plain", broker="memory://", set_as_current=False)
    app.conf.update(task_ignore_result=True, task_store_eager_result=False)

    @app.task(bind=True, shared=False, name="see")
    def see(self: Any, *args: Any, **kwargs: Any) -> Any:
        signals.task_prerun.send(sender="see", request=dict(vars(self.request)))
        for each in (*args, *kwargs.values()):
            if isinstance(each, list):
                each.append("changed in place")
        return args, kwargs

    @app.task(shared=False, name="late", acks_late=True)
    def late(*args: Any) -> Any:
        return args

    @app.task(bind=True, shared=False, name="end")
    def end(self: Any, how: str) -> None:
        if how == "retry":
            raise self.retry(countdown=1, exc=OSError("again"))
        raise {"reject": Reject("no"), "requeue": Reject("no", requeue=True), "ignore": Ignore()}.get(how, OSError(how))

    if request.param == "installed":  # as in a worker: its tasks have requests of ours
        install(app)
    app.finalize()
    app.use_fast_trace_task = True
    monkeypatch.setattr(trace, "_localized", [app._tasks, {"application/json"}, "w@x"])
    yield app
    app.close()


class Stub(SimpleNamespace):
    """Has attributes, and can send signals."""

    __hash__ = object.__hash__


def _worker(app: Celery, noted: Noted, groups: set[str], pool: Any) -> Stub:
    """What of a consumer a strategy uses."""
    eventer = EventDispatcher(enabled=False, app=app, groups=groups, hostname="w@x")
    eventer.enabled = True
    eventer._publish = lambda event, *_, **__: noted.add("event", event)
    consumer = Stub(
        hostname="w@x",
        connection_errors=(OSError,),
        event_dispatcher=eventer,
        timer=SimpleNamespace(call_at=lambda *args, **kwargs: noted.add("timer", args[0] > time(), kwargs)),
        apply_eta_task=print,
        disable_rate_limits=False,
        task_buckets=defaultdict(lambda: None),
        pool=pool,
        controller=SimpleNamespace(state=state),
        qos=SimpleNamespace(increment_eventually=lambda: noted.add("qos")),
        app=app,
    )
    consumer._limit_task = lambda request, bucket, tokens: noted.add("limited", request, bucket)
    consumer._limit_post_eta = print

    def run(request: Any) -> None:
        noted.add("reserved", len(state.reserved_requests), len(state.requests))
        try:
            request.execute_using_pool(pool)
        except TaskRevokedError:
            noted.add("revoked")

    consumer.on_task_request = run
    return consumer


def _message(headers: dict[str, Any], body: Any) -> FetchedMessage:
    properties = {
        "correlation_id": ID,
        "reply_to": "r",
        "delivery_info": {"exchange": "", "routing_key": "celery"},
        "delivery_tag": "published",
        "body_encoding": "base64",
        "priority": 3,
    }
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    payload = {
        "body": b64encode(raw).decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"lang": "py", "id": ID, "root_id": ID, "parent_id": None, "retries": 0, **headers},
        "properties": properties,
    }
    counting = SimpleNamespace(count=lambda queue, outcome: None)
    channel: Any = SimpleNamespace(decode_body=lambda text, encoding: Base64().decode(text), consumer=counting)
    message = FetchedMessage(FetchedPayload(payload, "tag", "celery"), channel=channel)
    message.accept = {"application/json"}
    return message


EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "plain": ({"task": "see", "argsrepr": "(1, 'x')", "timelimit": [3, 2]}, [[1, "x"], {"a": None}, EMBED]),
    "shadowed": ({"task": "see", "shadow": "other", "own": "header"}, [[], {}, EMBED]),
    "changed in place": ({"task": "see"}, [[[1]], {"a": [2]}, EMBED]),
    "callbacks": ({"task": "see"}, [[1], {}, {**EMBED, "callbacks": []}]),
    "late": ({"task": "late"}, [[1], {}, EMBED]),
    "fails": ({"task": "end"}, [["fails"], {}, EMBED]),
    "rejects": ({"task": "end"}, [["reject"], {}, EMBED]),
    "requeues": ({"task": "end"}, [["requeue"], {}, EMBED]),
    "is ignored": ({"task": "end"}, [["ignore"], {}, EMBED]),
    "has wrong arguments": ({"task": "end"}, [[1, 2], {}, EMBED]),
    "expired": ({"task": "see", "expires": (NOW - timedelta(days=1)).isoformat()}, [[], {}, EMBED]),
    "expires later": ({"task": "see", "expires": (NOW + timedelta(days=1)).isoformat()}, [[], {}, EMBED]),
    "cannot expire": ({"task": "see", "expires": "never"}, [[], {}, EMBED]),
    "revoked": ({"task": "see", "id": "revoked"}, [[], {}, EMBED]),
    "stamp is revoked": ({"task": "see", "stamped_headers": ["s"], "stamps": {"s": ["v"]}}, [[], {}, EMBED]),
    "eta": ({"task": "see", "eta": (NOW + timedelta(days=1)).isoformat()}, [[], {}, EMBED]),
    "eta without a zone": ({"task": "see", "eta": NOW.replace(tzinfo=None).isoformat()}, [[], {}, EMBED]),
    "no eta": ({"task": "see", "eta": "soon"}, [[], {}, EMBED]),
    "eta of another type": ({"task": "see", "eta": 5}, [[], {}, EMBED]),
    "limited": ({"task": "limited"}, [[], {}, EMBED]),
    "no JSON": ({"task": "see"}, b"{"),
    "no task": ({"task": "see"}, [[], {}]),
    "arguments are no mapping": ({"task": "see"}, [[], 1, EMBED]),
    "hybrid": ({"task": "see"}, {"task": "see", "id": ID, "args": [1], "kwargs": {}}),
}

#: Cases in which the strategy raises, as Celery's consumer expects.
RAISES = {"cannot expire", "no eta", "eta of another type", "no JSON", "no task"}


def _run(app: Celery, caplog: Any, case: str, make: Any, *, groups: set[str], debug: bool) -> list[Any]:
    """Lets a worker receive a message, and returns what there was to see."""
    caplog.clear()
    noted, pool = Noted(), SoloPool(1)
    pool.start()
    pool._does_debug = debug
    headers, body = CASES[case]
    name = "see" if headers["task"] == "limited" else headers["task"]
    headers = {**headers, "task": name}
    consumer = _worker(app, noted, groups, pool)
    if case == "limited":
        consumer.task_buckets["see"] = "bucket"
    state.reset_state()
    state.revoked.add("revoked")
    state.revoked_stamps["s"] = ["v"] if case == "stamp is revoked" else []
    task = app.tasks[name]
    task.__trace__ = trace.build_tracer(name, task, app.loader, "w@x", app=app)
    of_celery = strategy.default(task, app, consumer)
    receive, message = make(task, app, consumer, of_celery), _message(headers, body)
    receivers = []
    for each in SIGNALS:
        signal = getattr(signals, f"task_{each}")

        def on_signal(signal: Any = None, each: str = each, **kwargs: Any) -> None:
            noted.add(each, {key: value for key, value in kwargs.items() if key not in ("traceback", "einfo")})

        signal.connect(on_signal, weak=False, dispatch_uid=f"plain-{each}")
        receivers.append((signal, f"plain-{each}"))
    call = lambda name: lambda *args, **kwargs: noted.add(name, kwargs)  # noqa: E731
    try:
        receive(message, None, promise(call("ack")), promise(call("reject")), [call("callback")])
    except Exception as error:
        noted.add("raised", repr(error))
    finally:
        for signal, uid in receivers:
            signal.disconnect(dispatch_uid=uid)
    noted.add("counts", dict(state.total_count), state.all_total_count, list(state.successful_requests._data))
    noted.add("left", list(state.requests), len(state.reserved_requests), len(state.active_requests))
    noted.add("still revoked", sorted(state.revoked._data))
    for record in caplog.records:
        if record.thread != get_ident():  # of a server or worker that an earlier test has left
            continue
        data = record.args if isinstance(record.args, dict) else {}
        line = record.msg % {**_shown(data), "runtime": 0} if data and "runtime" in data else record.getMessage()
        noted.add("log", record.name, record.levelname, line.split("Traceback")[0])
    pool.stop()
    return noted.seen


@pytest.mark.contract
@pytest.mark.filterwarnings("ignore:Exception raised outside body")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("groups", "debug"), [({"worker"}, False), (set(), False), (set(), True)])
def test_everything_is_as_with_celery(
    app: Celery, caplog: pytest.LogCaptureFixture, case: str, groups: set[str], debug: bool
) -> None:
    """Events, signals, log lines, acknowledgements, states, requests and what the task sees are those of Celery."""
    caplog.set_level(logging.DEBUG if debug else logging.INFO)
    celerys = _run(app, caplog, case, lambda *args: args[-1], groups=groups, debug=debug)
    ours = _run(app, caplog, case, plain, groups=groups, debug=debug)
    assert ours == celerys
    assert ("raised" in [kind for kind, *_ in ours]) == (case in RAISES)
    assert ("event" in [kind for kind, *_ in ours]) == (not groups and case not in RAISES)


@pytest.mark.contract
@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=-3, minutes=-30))])
def test_a_task_that_is_due_does_not_go_through_the_timer(
    app: Celery, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, zone: tzinfo
) -> None:
    """All that Celery does for it when its timer calls is done at once."""
    made, timed = _worker, list[Any]()

    def worker(*args: Any) -> Stub:
        consumer = made(*args)
        consumer.timer.call_at = lambda due, func, args, **_: timed.append(args)
        consumer.qos = SimpleNamespace(increment_eventually=int, decrement_eventually=int)
        return consumer

    def celerys_own(_task: Any, _app: Any, consumer: Any, receive: Any) -> Any:
        def receive_and_wait(*args: Any) -> None:
            receive(*args)
            Consumer.apply_eta_task(consumer, *timed.pop())

        return receive_and_wait

    begun: list[Any] = []
    monkeypatch.setitem(globals(), "_worker", worker)
    monkeypatch.setattr(FetchedMessage, "note_begun", lambda message: begun.append(message))
    due = (NOW - timedelta(seconds=1)).astimezone(zone).isoformat()
    monkeypatch.setitem(CASES, "due", ({"task": "see", "eta": due, "retries": 2}, [[1], {}, EMBED]))
    celerys = _run(app, caplog, "due", celerys_own, groups=set(), debug=False)
    assert not begun
    ours = _run(app, caplog, "due", plain, groups=set(), debug=False)
    assert len(begun) == 1
    assert not timed
    assert ours == celerys
    assert {"received", "reserved", "ack", "success"} <= {kind for kind, *_ in ours}


@pytest.mark.parametrize(("case", "times"), [("plain", 1), ("changed in place", 2)])
def test_arguments_that_cannot_change_are_decoded_once(
    app: Celery, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, case: str, times: int
) -> None:
    """A task gets them in containers of its own, and what it could change in place is decoded for it again."""
    decoded: list[Any] = []

    def loads(data: Any) -> Any:
        decoded.append(data)
        return json.loads(data)

    monkeypatch.setitem(serialization.registry._decoders, "application/json", loads)
    _run(app, caplog, case, plain, groups={"worker"}, debug=False)
    assert len(decoded) == times


def test_a_request_of_the_users_own_is_told_of_each_event(app: Celery, caplog: pytest.LogCaptureFixture) -> None:
    """Also of those to which nobody listens."""
    told: list[str] = []

    class OwnRequest(Request):
        """A request that hears of its events."""

        def send_event(self, type: str, **fields: Any) -> None:  # noqa: A002 (Celery's name)
            told.append(type)

    type(app.tasks["see"]).Request = OwnRequest
    _run(app, caplog, "plain", plain, groups={"worker"}, debug=False)
    assert told == ["task-started", "task-succeeded"]


def test_a_task_with_a_strategy_of_its_own_is_received_by_it(app: Celery) -> None:
    """What Celery documents for such tasks holds."""
    app.tasks["see"].Strategy = f"{__name__}:Noted"
    assert plain(app.tasks["see"], app, None, print) is print


def test_a_promise_of_an_ack_is_one_of_vines() -> None:
    """It calls with all arguments, then its callbacks; an error goes to who asked for it, and is raised otherwise."""
    seen: list[Any] = []

    def fail(*args: Any) -> None:
        raise OSError(*args)

    Ack(lambda *args: seen.append(args), ("message",))("logger")
    with_callback = Ack(lambda *args: seen.append(args), ("message",))
    with_callback.then(lambda _: seen.append("then"))
    with_callback("logger")
    Ack(fail, (1,), on_error=lambda *args: seen.append(repr(args)))()
    assert seen == [("message", "logger"), ("message", "logger"), "then", "(1, OSError(1))"]
    with pytest.raises(OSError, match="2"):
        Ack(fail, (2,))()
