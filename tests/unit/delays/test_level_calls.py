"""Calls with ``delay_level``; their messages go to kombu's in-memory broker."""

from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery import Celery, chain, group, signature
from kombu.utils.json import dumps, loads

from celery_ext import DelayChain, DelayLevels, install
from kombu_delayq import InvalidDelayLevel
from tests.support.messages import published

START = datetime(2030, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def installed(app: Celery) -> None:
    """Lets the app use levels, and declares a task."""
    install(app)
    app.task(name="task")(nothing)


def nothing(*args: Any) -> None: ...


def at(app: Celery, now: datetime) -> None:
    """Sets the app's clock."""
    app.now = lambda: now.astimezone(app.timezone)


def delay_s(app: Celery, now: datetime = START) -> float | None:
    """Returns how long the message waits that was published last; None for not at all."""
    eta = published(app)["headers"]["eta"]
    return None if eta is None else (datetime.fromisoformat(eta) - now).total_seconds()


CALLS: list[Callable[..., Any]] = [
    lambda app, **options: app.tasks["task"].apply_async((1,), **options),
    lambda app, **options: app.send_task("task", (1,), **options),
    lambda app, **options: app.tasks["task"].s(1).apply_async(**options),
    lambda app, **options: app.tasks["task"].s(1).set(**options).delay(),
    lambda app, **options: app.signature("unknown", options=options).apply_async(),
    lambda app, **options: chain(app.tasks["task"].si(), app.tasks["task"].si(), app=app).apply_async(**options),
    lambda app, **options: group([app.tasks["task"].s()], app=app).apply_async(**options),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_level_is_a_delay(app: Celery, call: Callable[..., Any]) -> None:
    """In every kind of call level 3 is 10 s, 18 and all above are two hours, 0 is no delay, None is none asked for."""
    at(app, START)
    for level, delay in ((3, 10), (1, 1), (18, 7200), (19, 7200), (10**9, 7200), (0, None), (None, None)):
        call(app, delay_level=level)
        assert delay_s(app) == delay
    call(app, delay_level=None, countdown=5)
    assert delay_s(app) == 5


def test_a_level_within_a_chain(app: Celery) -> None:
    """A task further on in a chain takes its level along, as the number."""
    at(app, START)
    task = app.tasks["task"]
    chain(task.si(), task.si().set(delay_level=2), app=app).delay()
    message = published(app)
    assert message["headers"]["eta"] is None
    (_, _, embed) = loads(b64decode(message["body"]))
    app.signature(embed["chain"][0]).apply_async()
    assert delay_s(app) == 5


@pytest.mark.parametrize("other", [{"countdown": 5}, {"countdown": 0}, {"eta": START}])
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("eager", [False, True])
def test_a_level_that_is_none_or_not_alone_is_an_error(
    app: Celery, other: dict[str, Any], level: int, eager: bool
) -> None:
    """A level that is none, or goes together with a countdown or an eta, is refused, in a call or in a signature."""
    app.conf.task_always_eager = eager
    (name,) = other
    task = app.tasks["task"]
    with pytest.raises(InvalidDelayLevel, match="whole number from 0"):
        task.apply_async(delay_level=-1 - level)
    for call in (task.apply_async, task.s().set(**other).apply_async):
        with pytest.raises(InvalidDelayLevel, match=f"delay_level={level} cannot go together with {name}"):
            call(delay_level=level, **(other if call == task.apply_async else {}))


def test_a_level_of_an_eager_task_waits_for_nothing(app: Celery) -> None:
    """With ``task_always_eager`` a task with a level runs at once."""
    app.conf.task_always_eager = True
    assert app.tasks["task"].apply_async(delay_level=18).successful()


class Config:
    """Settings as Django projects have them."""

    CELERY_DELAYQ_LEVELS = "7s 8s"
    CELERY_TASK_DEFAULT_QUEUE = "published"


class Lower:
    delayq_levels = "7s 8s"
    task_default_queue = "published"


def test_the_table_is_a_setting(app: Celery) -> None:
    """``delayq_levels`` by ``conf``, by an object, with a namespace, or as a value, takes the place of RocketMQ's."""
    at(app, START)
    for table in ("7s 8s", "7s,8000ms", DelayLevels.parse("7s 8s")):
        app.conf.update(delayq_levels=table)
        for level, delay in ((1, 7), (2, 8), (3, 8)):
            app.send_task("task", delay_level=level)
            assert delay_s(app) == delay
    app.conf.delayq_levels = None
    app.send_task("task", delay_level=2)
    assert delay_s(app) == 5


@pytest.mark.parametrize(("config", "namespace"), [(Config, "CELERY"), (Lower, None)])
@pytest.mark.parametrize("before", [True, False])
def test_the_table_from_a_config_object(config: type, namespace: str | None, before: bool) -> None:
    """A table from ``config_from_object``, with a namespace or without, is found, before ``install`` or after."""
    with Celery("configured", broker="memory://", set_as_current=False) as app:
        if before:
            install(app)
        app.config_from_object(config, namespace=namespace)
        install(app)
        at(app, START)
        app.send_task("task", delay_level=2)
        assert delay_s(app) == 8


@pytest.mark.parametrize("table", ["1s 5x", "5", 7, ["1s"]])
def test_a_bad_table_is_an_error(app: Celery, table: Any) -> None:
    """A setting that is no table is refused by each call with a level, and by no other."""
    app.conf.delayq_levels = table
    with pytest.raises(InvalidDelayLevel):
        app.send_task("task", delay_level=1)
    app.send_task("task")
    assert delay_s(app) is None


def test_a_clock_that_is_set_back_keeps_the_order(app: Celery) -> None:
    """While a clock that was set back catches up, messages of a level are due with the one before; others are not."""
    etas = []
    for seconds in (0, 1, -3600, -1, 2):
        at(app, START + timedelta(seconds=seconds))
        app.send_task("task", delay_level=3)
        etas.append(delay_s(app))
    assert etas == [10, 11, 11, 11, 12]
    at(app, START - timedelta(seconds=3600))
    app.send_task("task", delay_level=2)
    assert delay_s(app) == 5 - 3600


@pytest.mark.parametrize(
    "start", [datetime(2030, 3, 31, 0, 59, 55, tzinfo=UTC), datetime(2030, 10, 27, 0, 59, 55, tzinfo=UTC)]
)
def test_levels_across_a_change_of_the_local_time(app: Celery, start: datetime) -> None:
    """Where summer time begins or ends, a level is as long as ever, and the order is kept."""
    app.conf.timezone = "Europe/Berlin"
    assert (
        start.astimezone(ZoneInfo("Europe/Berlin")).utcoffset()
        != (start + timedelta(hours=1)).astimezone(ZoneInfo("Europe/Berlin")).utcoffset()
    )
    for seconds in (0, 4, 6, 1800, 3700):
        now = start + timedelta(seconds=seconds)
        at(app, now)
        for level, delay in ((3, 10), (17, 3600)):
            app.send_task("task", delay_level=level)
            assert delay_s(app, now) == delay


def test_signatures_keep_levels_and_chains_through_json(app: Celery) -> None:
    """A signature with a level and a chain, the latter as a text or a value, means the same when it was JSON."""
    at(app, START)
    for given in ("4m,10m", DelayChain.parse("4m,10m")):
        sent = app.tasks["task"].s(1).set(delay_level=3, delay_chain=given)
        signature(loads(dumps(sent)), app=app).apply_async()
        message = published(app)
        assert message["properties"]["delay_chain"] == "4m,10m"
        assert datetime.fromisoformat(message["headers"]["eta"]) == START + timedelta(seconds=10)
