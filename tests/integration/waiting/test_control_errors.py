"""What goes wrong when an app looks at its waiting tasks, cancels or moves them, and when Redis's answer is lost."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import islice
from math import inf, nan
from threading import Thread
from typing import Any
from uuid import UUID

import pytest
import redis
from celery import Celery
from celery.exceptions import TaskRevokedError
from kombu.exceptions import OperationalError

from celery_ext import cancel, get, reschedule, run_now, select
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq import DelayTooLong, OtherTransport
from kombu_delayq.errors import AnswerLost
from kombu_delayq.redis import scripts
from kombu_delayq.store.lookup import Lookup
from kombu_delayq.store.types import Waiting
from tests.support.conditions import DEADLINE_S
from tests.support.servers.proxies import LosesReply
from tests.support.workers.harness import TRANSPORT, MakeProj, Proj

NOBODY = "redis://127.0.0.1:1/0"


#: Each thing that an app can do with waiting tasks.
EVERYTHING: list[Callable[[Celery], Any]] = [
    lambda app: cancel(app, "i"),
    lambda app: cancel(app, ["i", "j"]),
    lambda app: reschedule(app, "i", countdown=1),
    lambda app: run_now(app, "i"),
    lambda app: get(app, "i"),
    lambda app: select(app).count(),
    lambda app: select(app, task="x").count(),
    lambda app: list(select(app)),
    lambda app: select(app).cancel(),
]


NAMES = [
    *("cancel", "cancel several", "reschedule", "run_now", "get", "count", "count by task"),
    *("select", "cancel selected"),
]


@pytest.mark.parametrize("act", EVERYTHING, ids=NAMES)
def test_an_app_on_another_transport_is_told_what_to_set(redis_server: PrivateRedis, act: Callable[..., Any]) -> None:
    """An app on stock Redis, where nothing waits in the broker, gets an error that names the setting."""
    with Celery(broker=redis_server.url, set_as_current=False) as app, pytest.raises(OtherTransport) as error:
        act(app)
    assert f":{redis_server.port}/0 does not use kombu-delayq" in str(error.value)
    assert 'broker_transport = "kombu_delayq.transport:Transport"' in str(error.value)


@pytest.mark.parametrize("act", EVERYTHING, ids=NAMES)
def test_a_broker_that_is_down_is_an_operational_error(act: Callable[..., Any]) -> None:
    """With nobody at the broker's address, callers get kombu's error as soon as those of ``apply_async``, about."""
    with Celery(broker=NOBODY, set_as_current=False) as app:
        app.conf.broker_transport = TRANSPORT
        started = time.monotonic()
        with pytest.raises(OperationalError, match="refused"):
            act(app)
        assert time.monotonic() - started < DEADLINE_S


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hangs"])
def test_a_connection_that_is_lost_is_an_operational_error(
    make_proj: MakeProj, own_server: PrivateRedis, how: signal.Signals
) -> None:
    """Over a connection of the pool that worked before, it is the same error, and it has redis-py's as its cause."""
    proj = make_proj(own_server, broker_transport_options={"socket_timeout": 1.5, "socket_connect_timeout": 1.5})
    proj.app.conf.task_publish_retry_policy = {"max_retries": 1, "interval_start": 0.01}
    for act, name in zip(EVERYTHING, NAMES, strict=True):
        proj.send("record", countdown=300)
        act(proj.app)
        os.kill(own_server.pid, how)
        try:
            with pytest.raises(OperationalError) as error:
                act(proj.app)
        finally:
            if how == signal.SIGSTOP:
                os.kill(own_server.pid, signal.SIGCONT)
            else:
                own_server.stop(how)
                own_server.start()
        assert isinstance(error.value.__cause__, (redis.ConnectionError, redis.TimeoutError)), name


def test_ids_that_are_no_texts_are_refused(proj: Proj) -> None:
    """What cannot be task ids is an error before anything is changed."""
    task = proj.send("record", countdown=300, task_id="a")
    refused: list[Any] = [5, None, b"abc", [UUID(int=7)], ["a", None], [b"a"], [["a"]]]
    for ids in refused:
        for act in (cancel, run_now, get):
            with pytest.raises(TypeError, match="a task id is a text or an AsyncResult, not "):
                act(proj.app, ids)
        with pytest.raises(TypeError, match="a task id is a text or an AsyncResult, not "):
            reschedule(proj.app, ids, countdown=1)
    for act in (cancel, run_now, get):
        with pytest.raises(TypeError, match="the app comes first"):
            act("a", proj.app)
        with pytest.raises(TypeError, match="the first argument is the Celery app, not 'app'"):
            act("app", "a")
    assert get(proj.app, task.id) is not None
    assert not proj.server.client().exists("{delayq}:cancelled")


#: What names no moment.
NO_TIMES: list[dict[str, Any]] = [
    {},
    {"eta": datetime(2100, 1, 1, tzinfo=UTC), "countdown": 5},
    {"countdown": nan},
    {"countdown": inf},
    {"countdown": -inf},
    {"countdown": 1e300},
    {"countdown": 10**400},
    {"countdown": 9000 * 366 * 86400},
    {"countdown": "soon"},
    {"countdown": "5"},
    {"countdown": timedelta(seconds=5)},
    {"countdown": [5]},
    {"eta": "2100-01-01T00:00:00+00:00"},
    {"eta": date(2100, 1, 1)},
    {"eta": 4102444800},
    {"eta": True},
]


def test_a_time_that_is_none_is_refused(proj: Proj) -> None:
    """A countdown or an eta that names no moment is a ValueError in words, and the task keeps its due time."""
    task = proj.send("record", eta=datetime(2099, 1, 1, tzinfo=UTC))
    for when in NO_TIMES:
        with pytest.raises(ValueError, match=r"eta=|countdown=|one of eta, countdown and by"):
            reschedule(proj.app, task.id, **when)
    waiting = get(proj.app, task.id)
    assert waiting is not None
    assert waiting.due == datetime(2099, 1, 1, tzinfo=UTC)


def test_the_last_moment_of_all_is_one(proj: Proj) -> None:
    """A task can be put off to the end of time, in any zone, and is still listed, found and cancelled."""
    for zone in (None, UTC, timezone(timedelta(hours=-12))):
        task = proj.send("record", countdown=300)
        assert reschedule(proj.app, task.id, eta=datetime.max.replace(tzinfo=zone)) == "rescheduled"
        [waiting] = select(proj.app, queues="celery", due_from=datetime(9999, 12, 31, tzinfo=UTC))
        assert (waiting.id, waiting.due) == (task.id, datetime.max.replace(tzinfo=UTC))
        assert cancel(proj.app, task.id) == "cancelled"


def test_the_first_moment_of_all_is_past(proj: Proj) -> None:
    """An eta in the year 1, in any zone, runs the task now."""
    for eta in (datetime.min, datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))):
        assert reschedule(proj.app, proj.send("record", countdown=300).id, eta=eta) == "transferred"


def test_an_id_that_is_given_twice_has_one_word(proj: Proj) -> None:
    """Of an id that comes again far behind, the word is what became of its task, not what it was the second time."""
    for act, word in ((run_now, "transferred"), (cancel, "cancelled")):
        task = proj.send("record", countdown=300)
        unknown = [str(number) for number in range(1000)]
        outcomes = act(proj.app, [task.id, *unknown, task.id])
        assert outcomes == {task.id: word, **dict.fromkeys(unknown, "not_delayed")}
    assert cancel(proj.app, []) == {}


@pytest.mark.both_layouts
def test_one_connection_is_enough_for_everything(make_proj: MakeProj) -> None:
    """With a pool of one connection, a caller can cancel, and can publish while it iterates."""
    proj = make_proj(broker_pool_limit=1, task_send_sent_event=True)
    ids = [proj.send("record", countdown=300).id for _ in range(3)]
    done: list[str] = []

    def work() -> None:
        done.append(cancel(proj.app, ids[0]))
        for task in islice(select(proj.app), 2):
            done.append(task.id)
            proj.send("record")
            run_now(proj.app, task.id)
            next(iter(select(proj.app)), None)  # a generator that is left alone holds nothing

    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(DEADLINE_S)
    assert done == ["cancelled", *ids[1:]], "it waits for a connection that it holds itself"


def test_a_task_is_not_put_off_beyond_max_delay(make_proj: MakeProj) -> None:
    """What ``max_delay`` forbids to publish cannot be had by rescheduling either."""
    proj = make_proj(broker_transport_options={"max_delay": 3600})
    task = proj.send("record", countdown=300)
    with pytest.raises(DelayTooLong, match="max_delay allows, 3600 s"):
        reschedule(proj.app, task.id, countdown=4000)
    assert reschedule(proj.app, task.id, countdown=3000) == "rescheduled"


#: The client repeats once what has not been answered.
REPEATING = {"retry_on_timeout": True, "socket_timeout": 5.0}


def loses(proj: Proj, operation: str) -> LosesReply:
    return LosesReply(proj.server.port, scripts.load(operation, proj.layout).sha.encode(), silent=True)


def through(make_proj: MakeProj, proxy: LosesReply) -> Proj:
    """Makes an app whose client repeats a command that it does not hear of, as `retry_on_timeout` says."""
    return make_proj(broker_url=proxy.url, broker_transport_options=REPEATING)


@pytest.mark.both_layouts
def test_a_cancel_that_was_not_answered_is_an_error_and_no_wrong_answer(make_proj: MakeProj) -> None:
    """The error names the tasks that may have been cancelled, not that they did not wait; asking again is safe."""
    with loses(make_proj(), "cancel") as proxy:
        proj = through(make_proj, proxy)
        ids = [proj.send("record", countdown=600).id for _ in range(3)]
        assert cancel(proj.app, "unknown") == "not_delayed"
        proxy.arm()
        with pytest.raises(AnswerLost, match=rf"2 tasks may have been cancelled, or still wait: '{ids[0]}'") as lost:
            cancel(proj.app, ids[:2])
        assert lost.value.ids == ids[:2]
        assert proxy.lost == 1
        assert proj.delayed() == 1
        assert cancel(proj.app, ids) == {ids[0]: "not_delayed", ids[1]: "not_delayed", ids[2]: "cancelled"}


@pytest.mark.both_layouts
def test_what_was_removed_before_the_connection_was_lost_is_told(
    make_proj: MakeProj, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of tasks that are removed in several calls, those of which Redis has told become REVOKED, and only they."""
    proj = make_proj()
    told, lost = proj.send("record", countdown=600), proj.send("record", countdown=600)
    whole = Lookup.cancel

    def cut(
        self: Lookup, queues: Sequence[str], ids: Sequence[str], found: dict[str, list[Waiting]], **job: str
    ) -> Any:
        whole(self, queues, ids[:1], found, **job)
        whole(self, queues, ids[1:], **job)
        raise redis.ConnectionError("lost after the first call")

    with monkeypatch.context() as patch:
        patch.setattr(Lookup, "cancel", cut)
        with pytest.raises(AnswerLost):
            cancel(proj.app, [told.id, lost.id])
    with pytest.raises(TaskRevokedError):
        told.get(timeout=30)
    assert lost.state == "PENDING"


@pytest.mark.both_layouts
def test_a_task_that_is_run_now_without_an_answer_is_sent_once(make_proj: MakeProj) -> None:
    """The error says that the task may have been sent, and not that it did not wait."""
    with loses(make_proj(), "run_now") as proxy:
        proj = through(make_proj, proxy)
        sent, other = (proj.send("record", countdown=600) for _ in range(2))
        assert run_now(proj.app, other.id) == "transferred"
        proxy.arm()
        with pytest.raises(AnswerLost, match=f"1 task may have been sent to their queues, or still wait: '{sent.id}'"):
            run_now(proj.app, sent.id)
        assert (proj.delayed(), proj.server.client().llen("celery")) == (0, 2)
        assert run_now(proj.app, sent.id) == "not_delayed"


@pytest.mark.both_layouts
def test_a_reschedule_that_was_not_answered_is_repeated(make_proj: MakeProj) -> None:
    """The second time it changes nothing more, so that its answer is true."""
    with loses(make_proj(), "reschedule") as proxy:
        proj = through(make_proj, proxy)
        sent, other = (proj.send("record", countdown=600) for _ in range(2))
        assert reschedule(proj.app, other.id, countdown=60) == "rescheduled"
        proxy.arm()
        assert reschedule(proj.app, sent.id, countdown=3600) == "rescheduled"
        assert proxy.lost == 1
        task = get(proj.app, sent.id)
        assert task is not None
        assert task.due.timestamp() * 1000 > 600_000 + proj.server.client().time()[0] * 1000
        assert proj.delayed() == 2
