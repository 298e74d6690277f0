"""One task once while it waits: one by one with a worker, and many at once."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from celery import Celery
from celery.app.task import Context

from celery_ext import Call, asend_many, get, install, select, send_many
from celery_ext.delays.burying import bury
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.errors import InvalidIfWaiting
from kombu_delayq.message.dead_letters import Reason
from tests.support.conditions import until
from tests.support.workers.harness import TRANSPORT, MakeProj


@pytest.mark.journey
def test_of_many_calls_one_runs_until_it_has_left(make_proj: MakeProj) -> None:
    """Of ten calls that are kept or replace each other one runs, with the right arguments; the next call runs again."""
    proj = make_proj()
    install(proj.app)
    outcomes = [proj.send("record", n, countdown=2, task_id="keep", if_waiting="keep").if_waiting for n in range(10)]
    assert outcomes == ["added", *["kept"] * 9]
    outcomes = [proj.send("record", n, countdown=2, task_id="last", if_waiting="replace").if_waiting for n in range(10)]
    assert outcomes == ["added", *["replaced"] * 9]
    proj.worker(concurrency=1)  # now, however long the calls took
    until(lambda: proj.runs(id="keep") and proj.runs(id="last"), 30)
    assert proj.send("record", 10, task_id="keep", if_waiting="keep").if_waiting == "added"
    until(lambda: len(proj.runs(id="keep")) == 2, 30)
    assert [run["value"] for run in proj.runs(id="keep")] == [0, 10]
    assert [run["value"] for run in proj.runs(id="last")] == [9]


@pytest.fixture
def app(redis_server: PrivateRedis) -> Celery:
    """An app with a task that has a key."""
    redis_server.client().flushall()
    app = Celery("once", broker=redis_server.url, set_as_current=False)
    app.conf.broker_transport = TRANSPORT
    install(app)

    @app.task(name="index", shared=False, waiting_key=("order",))
    def index(order: int, reason: str = "") -> None: ...

    return app


@pytest.mark.parametrize(("mode", "outcome"), [("keep", "kept"), ("replace", "replaced")])
def test_a_call_that_is_sent_again_is_compared_again(
    app: Celery, redis_server: PrivateRedis, mode: str, outcome: str
) -> None:
    """Where Redis refuses, kombu publishes the same properties again, and the mode is one of them."""
    refused = list[BaseException]()

    def take_again(error: BaseException, interval: float) -> None:
        refused.append(error)
        redis_server.client().replicaof("NO", "ONE")

    def send(number: int) -> Any:
        options: dict[str, Any] = {"countdown": 60, "task_id": "a", "if_waiting": mode}
        return app.send_task("some.task", (number,), retry_policy={"errback": take_again}, **options)

    send(1)
    redis_server.client().config_set("replica-serve-stale-data", "no")
    redis_server.client().replicaof("127.0.0.1", "1")
    try:
        assert (send(2).if_waiting, len(refused)) == (outcome, 1)
    finally:
        redis_server.client().replicaof("NO", "ONE")


def test_each_failure_of_one_id_is_a_dead_letter(app: Celery, redis_server: PrivateRedis) -> None:
    """A dead letter of a task with a key is compared with nothing, and needs no transfer worker to reach its queue."""
    app.tasks["index"].dead_letter_queue = "dead"
    for _ in range(2):
        bury(app.tasks["index"], Context(id="a", args=[1], kwargs={}, retries=0), Reason.FAILED, ValueError())
    assert redis_server.client().llen("dead") == 2


def test_the_first_call_by_name_has_the_key_of_its_task(app: Celery) -> None:
    """A task is known by its name from the first call on, before anything else has finalized the app."""
    results = [app.send_task("index", (1,), countdown=60) for _ in range(2)]
    assert [vars(result).get("if_waiting") for result in results] == ["added", "kept"]


def test_a_fast_call_of_a_task_that_asks_is_compared(app: Celery) -> None:
    """With ``fast_publish``, too, ``if_waiting`` of a task holds for calls that do not name it."""
    install(app, fast_publish=True)

    @app.task(name="sync", if_waiting="keep", shared=False)
    def sync() -> None: ...

    results = [sync.apply_async(task_id="a", countdown=60) for _ in range(2)]
    assert [vars(result).get("if_waiting") for result in results] == ["added", "kept"]


def test_an_id_that_is_no_text_is_refused(app: Celery) -> None:
    """Under a UUID that is no text nothing is found, so a call that asks raises, and any other one is Celery's."""
    index = app.tasks["index"]
    with pytest.raises(InvalidIfWaiting, match="needs a task_id that is a text, not UUID"):
        app.send_task("some.task", task_id=UUID(int=5), countdown=60, if_waiting="keep")
    with pytest.raises(InvalidIfWaiting, match="needs a task_id that is a text, not UUID"):
        index.apply_async((1,), task_id=UUID(int=5), countdown=60)
    assert not list(select(app))
    assert index.apply_async((1,), task_id=UUID(int=5), countdown=60, if_waiting="add").if_waiting == "added"


def test_an_eager_call_is_added(app: Celery) -> None:
    """With ``task_always_eager`` nothing waits: a call that asks, or whose task asks, is added; a wrong one raises."""
    app.conf.task_always_eager = True
    index = app.tasks["index"]

    @app.task(name="plain", shared=False)
    def plain(text: str) -> None: ...

    results = [index.delay(1), index.s(1).apply_async(countdown=60, if_waiting="keep")]
    results += [plain.apply_async(("ab",), task_id="a", if_waiting=mode) for mode in ("add", "replace")]
    assert [(result.successful(), result.if_waiting) for result in results] == [(True, "added")] * 4
    assert "if_waiting" not in vars(plain.delay("ab"))
    with pytest.raises(InvalidIfWaiting):
        plain.apply_async(("ab",), task_id="a", if_waiting="kep")


def test_many_calls_are_compared_with_what_waits(app: Celery, redis_server: PrivateRedis) -> None:
    """A page goes to Redis at once, whatever waits, and each call has its outcome; one that is due leaves at once."""
    found = list[tuple[str, str]]()
    calls = [Call((n,), countdown=60, task_id=one) for n, one in enumerate(["a", "a", "b"])]
    assert send_many(app, "some.task", calls, if_waiting="keep", on_outcomes=found.extend) == 3
    calls = [Call((9,), countdown=90, task_id="a"), Call((9,), task_id="c"), Call((10,), task_id="c")]
    send_many(app, "some.task", calls, if_waiting="replace", on_outcomes=found.extend)
    assert found == [
        *(("a", "added"), ("a", "kept"), ("b", "added")),
        *(("a", "replaced"), ("c", "added"), ("c", "replaced")),
    ]
    waiting = get(app, ["a", "b", "c"])
    assert {one: task and task.args for one, task in waiting.items()} == {"a": [9], "b": [2], "c": [10]}
    assert sum(map(redis_server.client().zcard, redis_server.client().keys("*:due"))) == 3


def test_many_calls_are_compared_as_their_task_says(app: Celery) -> None:
    """A task's own mode holds for calls with a task id of their own; a mode of the whole goes before it."""
    found = list[tuple[str, str]]()

    @app.task(name="newest", shared=False, if_waiting="replace")
    def newest(number: int) -> None: ...

    send_many(app, newest, [Call((n,), task_id="a") for n in range(3)], countdown=60, on_outcomes=found.extend)
    assert found == [("a", "added"), ("a", "replaced"), ("a", "replaced")]
    task = get(app, "a")
    assert task is not None
    assert task.args == [2]
    send_many(app, newest, [Call((3,), task_id="a")], countdown=60, if_waiting="keep", on_outcomes=found.extend)
    assert found[3:] == [("a", "kept")]
    with pytest.raises(InvalidIfWaiting):
        send_many(app, newest, [Call((4,))], countdown=60)


def test_many_calls_have_ids_made_of_their_arguments(app: Celery) -> None:
    """A key of the task is read for each call, also by asyncio; a call without an id or a key is an error."""
    found, index = list[tuple[str, str]](), app.tasks["index"]
    [first] = {index.apply_async((1,), countdown=60).id}
    calls = [Call((), {"order": 1, "reason": "edited"}), Call((2,))]
    asyncio.run(asend_many(app, index, calls, countdown=60, on_outcomes=found.extend))
    assert [outcome for _, outcome in found] == ["kept", "added"]
    assert found[0][0] == first
    assert index.apply_async((1,), countdown=60, if_waiting="add").if_waiting == "added"
    send_many(app, index, calls, countdown=60, if_waiting="add", on_outcomes=found.extend)
    assert [outcome for _, outcome in found[2:]] == ["added", "added"]
    assert first not in dict(found[2:])
    for task, mode in (("some.task", "keep"), ("some.task", "kep"), (index, "kep")):
        with pytest.raises(InvalidIfWaiting):
            send_many(app, task, [Call((1,))], if_waiting=mode)  # type: ignore[arg-type]  # a wrong one
