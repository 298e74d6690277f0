"""``send_many`` where each call has something that only ``apply_async`` sees to."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from celery import signals
from kombu import Exchange, Queue

from celery_ext import Call, select, send_many
from tests.support.workers.harness import MakeProj, Proj

RECORD = "proj.record"
CALLS = [Call((n,), countdown=600) for n in range(3)]


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fails the test unless the log says that calls were sent one by one."""
    caplog.set_level(logging.INFO, "celery_ext.publish.many")
    yield
    said = [record.getMessage() for record in caplog.get_records("call")]
    assert any(each.startswith("calls of task proj.record are sent one by one: ") for each in said)


def add_task(proj: Proj, **options: Any) -> Any:
    def record(value: Any = None) -> Any:
        return value

    return proj.app.task(name=RECORD, shared=False, **options)(record)


def waiting(proj: Proj, queue: str = "celery") -> list[Any]:
    return sorted(task.args[0] for task in select(proj.app, queues=queue))


def test_each_says_what_became_of_it(proj: Proj) -> None:
    """Also for an app without ``install``, whose results do not say it."""
    task, found = add_task(proj), list[Any]()

    def before(**_: Any) -> None:
        """Celery calls it for each."""

    signals.before_task_publish.connect(before)
    try:
        calls = [Call((n,), countdown=600, task_id="x") for n in range(3)]
        send_many(proj.app, task, calls, if_waiting="keep", on_outcomes=found.extend)
    finally:
        signals.before_task_publish.disconnect(before)
    assert found == [("x", "added"), ("x", "kept"), ("x", "kept")]


@pytest.mark.parametrize("sender", [None, RECORD])
def test_receivers_of_signals_hear_of_each(proj: Proj, sender: str | None) -> None:
    """What ``before_task_publish`` adds to a message is in it, and ``after_task_publish`` tells of each."""
    told: list[str] = []

    def stamp(headers: dict[str, Any], body: Any, **others: Any) -> None:
        headers["stamp"] = body[0][0]

    def tell(headers: dict[str, Any], **others: Any) -> None:
        told.append(headers["id"])

    signals.before_task_publish.connect(stamp, sender=sender)
    signals.after_task_publish.connect(tell, sender=sender)
    ids: list[str] = []
    try:
        assert send_many(proj.app, RECORD, CALLS, on_sent=ids.extend) == 3
    finally:
        signals.before_task_publish.disconnect(stamp, sender=sender)
        signals.after_task_publish.disconnect(tell, sender=sender)
    assert told == ids
    assert sorted((each.args[0], each.headers["stamp"]) for each in select(proj.app, queues="celery")) == [
        (n, n) for n in range(3)
    ]


def by_value(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **others: Any) -> Any:
    """Routes by an argument."""
    return {"queue": f"of{args[0]}"}


def test_routers_see_arguments(make_proj: MakeProj) -> None:
    """A function in ``task_routes`` decides on each call."""
    proj = make_proj(task_routes=[by_value])
    send_many(proj.app, RECORD, CALLS)
    assert [waiting(proj, f"of{n}") for n in range(3)] == [[0], [1], [2]]


def test_a_task_has_an_apply_async_of_its_own(proj: Proj) -> None:
    """A base class that changes ``apply_async``, or ``shadow_name``, is asked for each call."""

    class Doubling(proj.app.Task):  # type: ignore[name-defined]
        def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
            return super().apply_async([2 * args[0]], kwargs, **options)

        def shadow_name(self, args: Any, kwargs: Any, options: Any) -> str:
            return f"record {args[0]}"

    send_many(proj.app, add_task(proj, base=Doubling), CALLS)
    assert waiting(proj) == [0, 2, 4]
    assert sorted(each.headers["shadow"] for each in select(proj.app, queues="celery")) == [
        "record 0",
        "record 2",
        "record 4",
    ]


def test_an_app_has_a_send_task_of_its_own(proj: Proj) -> None:
    """Another's ``send_task`` gets each call."""
    before = proj.app.send_task
    proj.app.send_task = lambda name, args=None, **options: before(name, [f"own {args[0]}"], **options)
    send_many(proj.app, RECORD, CALLS)
    assert waiting(proj) == ["own 0", "own 1", "own 2"]


def test_an_exchange_decides_on_the_queues(make_proj: MakeProj) -> None:
    """A message to an exchange goes to all queues that are bound to it."""
    topic = Exchange("events", type="topic")
    queues = [Queue("all", topic, routing_key="#"), Queue("some", topic, routing_key="a.*")]
    proj = make_proj()
    proj.app.conf.task_queues = queues
    with proj.connection() as connection:
        for queue in queues:
            queue.bind(connection.default_channel).declare()
    send_many(proj.app, RECORD, CALLS, queue="some", routing_key="a.b")
    assert waiting(proj, "all") == waiting(proj, "some") == [0, 1, 2]


def test_tasks_that_run_at_once(make_proj: MakeProj) -> None:
    """With ``task_always_eager`` the tasks have run, and nothing is sent."""
    proj = make_proj(task_always_eager=True)
    ran: list[Any] = []

    def run(value: Any) -> None:
        ran.append(value)

    task = proj.app.task(name=RECORD, shared=False)(run)
    ids: list[str] = []
    assert send_many(proj.app, task, CALLS, on_sent=ids.extend) == 3
    assert ran == [0, 1, 2]
    assert len(set(ids)) == 3
    assert proj.server.client().dbsize() == 0


@pytest.mark.parametrize("conf", [{"broker_transport": ""}, {"task_protocol": 1}, {"task_send_sent_event": True}])
def test_other_transports_and_forms(make_proj: MakeProj, conf: dict[str, Any]) -> None:
    """With a stock transport, protocol 1, or events of what is sent, all calls go the way of ``apply_async``."""
    proj = make_proj(**conf)
    ids: list[str] = []
    assert send_many(proj.app, RECORD, [Call((n,)) for n in range(450)], on_sent=ids.extend) == 450
    bodies = [json.loads(each) for each in proj.server.client().lrange("celery", 0, -1)]
    assert [body["properties"]["correlation_id"] for body in reversed(bodies)] == ids


def test_what_is_before_a_bad_call_is_told(make_proj: MakeProj) -> None:
    """When a call cannot be sent, ``on_sent`` knows all that were."""
    proj = make_proj(task_send_sent_event=True)
    ids: list[str] = []
    with pytest.raises(Exception, match="not JSON serializable"):
        send_many(proj.app, RECORD, [*CALLS, Call((object(),))], on_sent=ids.extend)
    assert {each.id for each in select(proj.app, queues="celery")} == set(ids)
    assert len(ids) == 3
