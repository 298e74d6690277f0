"""The transport option ``countdown_by``: publishers whose clocks are an hour off."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import time
from typing import Any

import pytest
from celery import Celery, chain, group
from celery.exceptions import Retry
from kombu import Exchange, Queue

from celery_ext import Call, browse, install, send_many
from celery_ext.bulk.target import Target
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.errors import DelayTooLong
from kombu_delayq.message.countdown import COUNTDOWN
from tests.integration.bulk.test_send_many_golden import ETA, NOW, sent
from tests.support.messages import published
from tests.support.workers.harness import TRANSPORT, MakeProj

HOUR_S = 3600.0
#: The modules of a publisher that look at its clock themselves.
READ_CLOCK = (
    "kombu_delayq.channel",
    "celery_ext.fast.message",
    "celery_ext.bulk.messages",
)
COUNTDOWN_S = 600.5


def retried(task: Any) -> None:
    """Calls ``retry`` in a task that runs."""
    task.push_request(id="one", args=(1,), kwargs={}, retries=0, called_directly=False, delivery_info={})
    try:
        task.retry(countdown=COUNTDOWN_S)
    except Retry:
        pass
    finally:
        task.pop_request()


#: The ways in which a countdown comes to the transport.
WAYS: dict[str, Callable[[Any], object]] = {
    "apply_async": lambda task: task.apply_async((1,), countdown=COUNTDOWN_S),
    "with an id": lambda task: task.apply_async((1,), countdown=COUNTDOWN_S, task_id="one"),
    "send_task": lambda task: task.app.send_task(task.name, (1,), {}, COUNTDOWN_S),
    "a signature": lambda task: task.s(1).set(countdown=COUNTDOWN_S).apply_async(),
    "a chain": lambda task: chain(task.si(1).set(countdown=COUNTDOWN_S), task.si(2)).apply_async(),
    "a group": lambda task: group(task.s(1)).apply_async(countdown=COUNTDOWN_S),
    "both": lambda task: task.apply_async((1,), countdown=COUNTDOWN_S, eta=datetime(2090, 1, 1, tzinfo=UTC)),
    "a level": lambda task: task.apply_async((1,), delay_level=1),
    "retry": retried,
    "a step": lambda task: task.apply_async((1,), countdown=COUNTDOWN_S, delay_chain="1m", delay_chain_id="c"),
    "a priority": lambda task: task.apply_async((1,), countdown=COUNTDOWN_S, priority=5, expires=90_000),
    "parts": lambda task: task.apply_async((1,), countdown=COUNTDOWN_S, queue="parted"),
    "send_many": lambda task: send_many(task.app, task, [Call((1,), countdown=COUNTDOWN_S)]),
    "send_many with an id": lambda task: send_many(task.app, task, [Call((1,), task_id="one")], countdown=COUNTDOWN_S),
    "send_many, a level": lambda task: send_many(task.app, task, [Call((1,))], delay_level=1, queue="parted"),
}


def nothing(task: Any, *args: Any) -> None:
    """Takes anything."""


def make_app(
    server: PrivateRedis, countdown_by: str = "broker", *, fast: bool = False, installed: bool = True, **options: Any
) -> Celery:
    server.client().flushall()
    app = Celery("clocks", broker=server.url, set_as_current=False)
    app.conf.update(
        broker_transport=TRANSPORT,
        broker_transport_options={"countdown_by": countdown_by, "queue_parts": {"parted": 2}, **options},
        delayq_levels=f"{COUNTDOWN_S}s",
    )
    if installed:
        install(app, fast_publish=fast)
    return app


def task_of(app: Celery) -> Any:
    return app.task(name="clocks.task", bind=True, shared=False)(nothing)


def set_clock(app: Celery, monkeypatch: pytest.MonkeyPatch, off_s: float) -> None:
    """Sets the clock of a publisher wrong."""
    for module in READ_CLOCK:
        monkeypatch.setattr(f"{module}.time", lambda: time() + off_s)
    monkeypatch.setattr(app, "now", lambda: datetime.now(UTC) + timedelta(seconds=off_s))


def waiting(app: Celery) -> list[Any]:
    return [*browse(app, "celery"), *browse(app, "parted")]


@pytest.mark.parametrize("off_s", [-HOUR_S, HOUR_S])
@pytest.mark.parametrize("fast", [False, True])
def test_a_countdown_counts_from_arrival(
    redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch, fast: bool, off_s: float
) -> None:
    """By all ways, with and without templates, a task is due by Redis's clock, and has nothing of the publisher's."""
    app = make_app(redis_server, fast=fast)
    set_clock(app, monkeypatch, off_s)
    task = task_of(app)
    for way, publish in WAYS.items():
        for _ in range(3 if fast else 1):  # the first call is Celery's, the second makes the template
            redis_server.client().flushall()
            before = time()
            publish(task)
            [found] = waiting(app)
            assert before <= found.due.timestamp() - COUNTDOWN_S + 0.01 <= time() + 0.02, way
            assert found.headers["eta"] is None, way
            assert COUNTDOWN not in found.properties, way
    if fast:
        assert any(app.send_task.fast._recipes.values())  # type: ignore[attr-defined]  # ours


@pytest.mark.parametrize("off_s", [-HOUR_S, HOUR_S])
def test_calls_that_are_sent_one_by_one(
    redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch, off_s: float
) -> None:
    """``send_many`` does the same where Celery makes every message, in an app without ``install``."""
    app = make_app(redis_server, installed=False)
    set_clock(app, monkeypatch, off_s)
    monkeypatch.setattr(Target, "why_one_by_one", lambda _: "a test wants it so")
    before = time()
    assert send_many(app, task_of(app), [Call((1,), countdown=COUNTDOWN_S), Call((2,), eta=ETA)]) == 2
    near, far = waiting(app)
    assert before <= near.due.timestamp() - COUNTDOWN_S + 0.01 <= time() + 0.02
    assert near.headers["eta"] is None
    assert far.due == ETA


@pytest.mark.parametrize("off_s", [-HOUR_S, HOUR_S])
@pytest.mark.parametrize("way", ["apply_async", "send_task", "retry", "a priority"])
def test_a_publisher_counts_by_its_own_clock_by_default(
    redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch, way: str, off_s: float
) -> None:
    """Without the option a clock that is ahead makes a task late, and one that is behind lets it run at once."""
    app = make_app(redis_server, "publisher")
    set_clock(app, monkeypatch, off_s)
    WAYS[way](task_of(app))
    if off_s < 0:
        # The publisher itself takes it for later, and Redis knows better.
        [found] = waiting(app)
        assert found.due < datetime.now(UTC)
    else:
        [found] = waiting(app)
        assert found.due > datetime.now(UTC) + timedelta(seconds=HOUR_S)
    assert found.headers["eta"] is not None
    assert COUNTDOWN not in found.properties


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("options", [{"eta": ETA}, {"eta": ETA.isoformat()}, {}, {"countdown": 0}, {"countdown": None}])
def test_all_others_stay(redis_server: PrivateRedis, fast: bool, options: dict[str, Any]) -> None:
    """An eta is an eta, and what is due at once is, with the bytes that they have without the option."""
    found = []
    for countdown_by in ("publisher", "broker"):
        app = make_app(redis_server, countdown_by, fast=fast)
        app.now = lambda: NOW
        task, shared = task_of(app), {"task_id": "one", **options}
        for _ in range(2):
            task.apply_async((1,), reply_to="there", **shared)
        found.append(sent(redis_server, app, lambda: task.apply_async((1,), reply_to="there", **shared)))  # noqa: B023
        many = [Call((1,), **shared)]
        found.append(sent(redis_server, app, lambda: send_many(app, task, many, reply_to="there")))  # noqa: B023
    assert found[0] == found[1] == found[2] == found[3]


@pytest.mark.parametrize("off_s", [-HOUR_S, HOUR_S])
@pytest.mark.parametrize("fast", [False, True])
def test_a_countdown_that_is_past(
    redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch, fast: bool, off_s: float
) -> None:
    """By all ways such a task goes to its queue at once, and has no eta that would make a worker wait."""
    app = make_app(redis_server, fast=fast)
    set_clock(app, monkeypatch, off_s)
    monkeypatch.setattr(f"{__name__}.COUNTDOWN_S", -5)
    task = task_of(app)
    for way in WAYS.keys() - {"a level", "send_many, a level", "both"}:
        for _ in range(3 if fast else 1):
            redis_server.client().flushall()
            WAYS[way](task)
            if way == "a step":  # each goes through Redis's memory of its chain
                [found] = waiting(app)
                assert found.due.timestamp() <= time(), way
                assert found.headers["eta"] is None, way
                continue
            assert waiting(app) == [], way
            [message] = ready(redis_server)
            assert message["headers"]["eta"] is None, way
            assert COUNTDOWN not in message["properties"], way


def ready(server: PrivateRedis) -> list[dict[str, Any]]:
    """Returns the messages that are ready for a consumer, of all queues."""
    client = server.client()
    lists = list(client.scan_iter(_type="list"))
    return [json.loads(message) for key in lists for message in client.lrange(key, 0, -1)]


def test_templates_make_the_messages_of_celery(redis_server: PrivateRedis) -> None:
    """``apply_async``, ``fast_publish`` and ``send_many`` make the same message, but for the delivery tag."""
    app = make_app(redis_server, fast=True)
    task = task_of(app)
    found = []
    for _ in range(4):
        redis_server.client().flushall()
        task.apply_async((1,), task_id="one", countdown=COUNTDOWN_S)
        found.append(waiting(app)[0])
    redis_server.client().flushall()
    send_many(app, task, [Call((1,), task_id="one", countdown=COUNTDOWN_S)])
    found.append(waiting(app)[0])
    first = found[0]
    for other in found[1:]:
        assert other.headers == first.headers
        assert {**other.properties, "delivery_tag": ""} == {**first.properties, "delivery_tag": ""}
        assert other.body["body"] == first.body["body"]


@pytest.mark.parametrize("publish", ["apply_async", "fast", "send_many"])
def test_calls_with_one_id_stay_calls(redis_server: PrivateRedis, publish: str) -> None:
    """Three calls of one id, arguments and countdown are three tasks, as they are without the option."""
    app = make_app(redis_server, fast=publish == "fast")
    task = task_of(app)
    for _ in range(3):
        if publish == "send_many":
            send_many(app, task, [Call((1,), task_id="one", countdown=COUNTDOWN_S)])
        else:
            task.apply_async((1,), task_id="one", countdown=COUNTDOWN_S)
    assert [found.id for found in waiting(app)] == ["one"] * 3


@pytest.mark.parametrize("publish", ["apply_async", "fast", "send_many"])
def test_a_countdown_may_be_too_long(redis_server: PrivateRedis, publish: str) -> None:
    """``max_delay`` holds for a countdown that the broker counts, and Celery refuses one that no datetime can name."""
    app = make_app(redis_server, fast=publish == "fast", max_delay=60)
    task = task_of(app)

    def send(countdown: float) -> object:
        return (
            send_many(app, task, [Call(countdown=countdown)])
            if publish == "send_many"
            else task.apply_async(countdown=countdown)
        )

    for countdown, error in ((61, DelayTooLong), (3e11, OverflowError)):
        for _ in range(3):
            with pytest.raises(error):
                send(countdown)
    task.apply_async(countdown=59)
    assert len(waiting(app)) == 1


def test_a_task_for_all_workers_keeps_its_eta(redis_server: PrivateRedis) -> None:
    """A fanout is never delayed by the broker: each worker holds the task until its eta, as without the option."""
    app = make_app(redis_server)
    app.conf.task_queues = [Queue("all", Exchange("all", type="fanout"))]
    with app.connection_for_write() as connection:
        consumer = connection.SimpleQueue(app.amqp.queues["all"], no_ack=True)
        with consumer:
            consumer.consumer.consume()
            with pytest.raises(consumer.Empty):
                consumer.get(timeout=0.1)  # subscribes
            task_of(app).apply_async((1,), countdown=COUNTDOWN_S, queue="all")
            message = consumer.get(timeout=30)
    assert message.headers["eta"] is not None
    assert COUNTDOWN not in message.properties


def test_another_transport_gets_a_countdown_as_ever() -> None:
    """Where another transport has the option, a task has its eta."""
    app = Celery("other", broker="memory://", set_as_current=False)
    app.conf.broker_transport_options = {"countdown_by": "broker"}
    install(app)
    app.send_task("some.task", countdown=COUNTDOWN_S, queue="of another transport")
    assert published(app, "of another transport")["headers"]["eta"] is not None


@pytest.mark.both_forms
@pytest.mark.parametrize("off_s", [-HOUR_S, HOUR_S])
def test_workers_run_the_tasks_in_time(make_proj: MakeProj, monkeypatch: pytest.MonkeyPatch, off_s: float) -> None:
    """A worker runs each task once, when its countdown has passed, and neither holds it nor puts it back."""
    proj = make_proj(broker_transport_options={"countdown_by": "broker"})
    install(proj.app, fast_publish=True)
    set_clock(proj.app, monkeypatch, off_s)
    proj.worker(pool="solo")
    sent_at = {}
    for _ in range(3):
        begun = time()
        sent_at[proj.send("record", countdown=1, ignore_result=True).id] = begun
    begun = time()
    send_many(proj.app, "proj.record", [Call(task_id="of many", countdown=1)])
    sent_at["of many"] = begun
    proj.send("flaky", 1, 0.5, countdown=1, ignore_result=True)
    runs = proj.await_runs(4, name="record")
    assert {run["id"] for run in runs} == sent_at.keys()
    for run in runs:
        assert run["at"] >= sent_at[run["id"]] + 1
        assert run["eta"] is None
    proj.await_runs(2, name="flaky")
    assert proj.delayed() == 0
    assert len(proj.runs()) == 6
