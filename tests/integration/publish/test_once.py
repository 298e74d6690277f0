"""One task once while it waits: one by one with a worker, and many at once."""

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from celery import Celery
from celery.app.task import Context
from kombu.common import Broadcast

from celery_ext import Call, cancel, get, install, reschedule, select, send_many
from celery_ext.dead_letters.burying import bury
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.errors import InvalidIfWaiting
from kombu_delayq.message.letter_record import Reason
from tests.support import ROOT
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


@pytest.mark.wide
def test_a_key_is_not_dead_with_one_of_its_tasks(make_proj: MakeProj) -> None:
    """After a task of a key has expired in a worker, or was revoked, the next one runs, also after a restart.

    So does a task whose id was used before, once that has expired.
    """
    proj = make_proj()
    install(proj.app)
    worker, other = proj.worker(gossip=True), proj.worker("-Q", "none", gossip=True)
    proj.await_answers()  # before, nobody may hear what is revoked
    expired = [
        proj.send("record", 1, waiting_key="a", expires=-1),
        proj.send("record", 1, task_id="used", if_waiting="keep", expires=-1),
    ]
    until(lambda: [result.state for result in expired] == ["REVOKED"] * 2, 30)
    waiting = proj.send("record", 2, countdown=3600, waiting_key="b")
    assert cancel(proj.app, "b") == "cancelled"
    waiting.revoke()
    until(lambda: waiting.id in worker.log and waiting.id in other.log, 30)
    assert proj.send("record", 3, waiting_key="a").if_waiting == "added"
    assert proj.send("record", 3, waiting_key="b").if_waiting == "added"
    proj.send("record", 3, task_id="used", if_waiting="keep")
    proj.await_runs(3, value=3)
    worker.stop()
    worker = proj.worker(gossip=True)  # which asks the other one what is revoked
    proj.send("record", 4, waiting_key="b")
    proj.send("record", 4, task_id="used")
    proj.await_runs(2, value=4)
    assert not proj.runs(value=1)
    assert not proj.runs(value=2)


@pytest.fixture
def app(redis_server: PrivateRedis) -> Celery:
    """An app with a task that has a key."""
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
    """A key of the task is read for each call; a call without an id or a key is an error."""
    found, index = list[tuple[str, str]](), app.tasks["index"]
    [first] = {index.apply_async((1,), countdown=60).id}
    calls = [Call((), {"order": 1, "reason": "edited"}), Call((2,))]
    send_many(app, index, calls, countdown=60, on_outcomes=found.extend)
    assert [outcome for _, outcome in found] == ["kept", "added"]
    assert found[0][0] == first
    assert index.apply_async((1,), countdown=60, if_waiting="add").if_waiting == "added"
    send_many(app, index, calls, countdown=60, if_waiting="add", on_outcomes=found.extend)
    assert [outcome for _, outcome in found[2:]] == ["added", "added"]
    assert first not in dict(found[2:])
    for task, mode in (("some.task", "keep"), ("some.task", "kep"), (index, "kep")):
        with pytest.raises(InvalidIfWaiting):
            send_many(app, task, [Call((1,))], if_waiting=mode)  # type: ignore[arg-type]  # a wrong one


def test_a_key_names_what_waits_under_it(app: Celery) -> None:
    """A call may bring its own key, by which what waits is found, moved and cancelled; each task has its own id."""
    call = partial(app.send_task, "some.task", countdown=60, waiting_key="order-7")
    first, second = call((1,)), call((2,))
    assert (first.if_waiting, second.if_waiting, second.id) == ("added", "kept", first.id)
    newest, beside = call((3,), if_waiting="replace"), call((4,), if_waiting="add")
    assert (newest.if_waiting, beside.if_waiting, len({first.id, newest.id, beside.id})) == ("replaced", "added", 3)
    assert {result.waiting_key for result in (first, second, newest, beside)} == {"order-7"}
    assert cancel(app, [first, beside]) == {first.id: "not_delayed", beside.id: "cancelled"}
    assert reschedule(app, "order-7", countdown=90) == "rescheduled"
    found = get(app, "order-7")
    assert found is not None
    assert (found.id, found.args) == (newest.id, [3])
    assert get(app, newest) == found
    assert cancel(app, newest.waiting_key) == "cancelled"
    assert call((5,), task_id="mine").id == "mine"
    with pytest.raises(InvalidIfWaiting, match="is a text, such as"):
        call(waiting_key=7)


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (UUID(int=7), UUID(int=8)),
        (Decimal("1.10"), Decimal("1.1")),
        (datetime(2026, 12, 24, tzinfo=UTC), datetime(2026, 12, 25, tzinfo=UTC)),
    ],
)
def test_a_key_is_made_of_what_celery_writes(app: Celery, value: Any, other: Any) -> None:
    """Arguments that Celery's JSON takes may be in a key."""
    index = app.tasks["index"]
    outcomes = [index.apply_async((each,), countdown=60).if_waiting for each in (value, value, other)]
    assert outcomes == ["added", "kept", "added"]


def test_nothing_waits_for_a_broadcast(app: Celery) -> None:
    """A call that asks and goes to all consumers is refused, and so is a key that the app does not read."""
    app.conf.task_queues = [Broadcast("headlines")]
    to: dict[str, Any] = {"queue": "headlines", "declare": [app.amqp.queues["headlines"].exchange], "countdown": 60}
    for send in (partial(app.tasks["index"].apply_async, (1,)), partial(app.send_task, "a", waiting_key="b")):
        with pytest.raises(InvalidIfWaiting, match="to the exchange 'headlines' has no effect"):
            send(**to)
    app.send_task("a", task_id="a", if_waiting="add", **to)
    plain = Celery(broker=app.conf.broker_url, set_as_current=False)
    plain.conf.broker_transport = TRANSPORT
    with pytest.raises(InvalidIfWaiting, match="waiting_key='b' of a call was not read"):
        plain.send_task("a", waiting_key="b")


#: Calls within a transaction of Django's, in a process with Django settings of its own.
ON_COMMIT = """
import sys

from celery import Celery
from django.conf import settings

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
import django
from django.db import transaction

django.setup()

from celery_ext import get, install

app = Celery(broker=sys.argv[1], set_as_current=False)
app.conf.update(broker_transport=sys.argv[2], delayq_send_on_commit=True)
install(app)
with transaction.atomic():
    results = [app.send_task("a", (n,), countdown=60, waiting_key="k") for n in range(2)]
    assert [result.waiting_key for result in results] == ["k"] * 2
    assert len({result.id for result in results}) == 2
assert [result.if_waiting for result in results] == ["added", "kept"]
assert {result.id for result in results} == {get(app, "k").id}
"""


@pytest.mark.wide
def test_the_commit_says_what_waits(redis_server: PrivateRedis) -> None:
    """With send on commit a result has the key at once, and on commit the id of the task that waits under it."""
    command = [sys.executable, "-c", ON_COMMIT, redis_server.url, TRANSPORT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
