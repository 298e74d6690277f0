"""Either side removes, moves and runs what the other one has delayed."""

import time

import redis

from celery_ext import cancel, get, reschedule, run_now, select
from tests.support.conditions import stays
from tests.support.jvm.redisson import Jvm
from tests.support.jvm.shared import known, nothing_left, shared, transferring
from tests.support.workers.harness import MakeProj, Proj

LISTED = "redisson_delay_queue:{celery}"
FAR_S = 3600


def _body(proj: Proj, task_id: str) -> str:
    """Returns the message of a waiting task, as Redis has it."""
    with proj.connection() as connection:
        [message] = connection.default_channel.store.lookup.get(["celery"], [task_id])[task_id]
        return str(message.body.decode())


def test_java_removes_what_celery_has_delayed(jvm: Jvm, make_proj: MakeProj) -> None:
    """Redisson's remove finds a task with a countdown by its message; Celery knows that it waits no more."""
    proj = shared(make_proj)
    sent, other = (proj.send("record", n, countdown=FAR_S) for n in range(2))
    message = _body(proj, sent.id)
    assert jvm.ask("size", queue="celery") == 2
    assert jvm.ask("contains", queue="celery", message=message)
    assert jvm.ask("remove", queue="celery", message=message)
    assert not jvm.ask("contains", queue="celery", message=message)
    assert cancel(proj.app, [sent.id, other.id]) == {sent.id: "not_delayed", other.id: "cancelled"}
    nothing_left(proj)


def test_celery_cancels_what_java_has_delayed_among_thousands(jvm: Jvm, make_proj: MakeProj) -> None:
    """Tasks that Java has offered are found by their ids, wherever they wait among thousands of either side's."""
    proj = shared(make_proj)
    jvm.offer_tasks("celery", [f"java {n}" for n in range(3000)], FAR_S, 60)
    ours = [proj.send("record", countdown=FAR_S + n) for n in range(60)]
    jvm.offer_tasks("celery", ["late"], FAR_S - 10)
    wanted = ["java 0", "java 1517", "java 2999", "late", ours[30].id]
    assert cancel(proj.app, wanted) == dict.fromkeys(wanted, "cancelled")
    assert cancel(proj.app, wanted) == dict.fromkeys(wanted, "not_delayed")
    assert select(proj.app).count() == 3056
    # What is left of them in the list, Redisson does not deliver.
    waiting = proj.server.client().zcard("redisson_delay_queue_timeout:{celery}")
    assert waiting == 3056 <= jvm.ask("size", queue="celery") <= 3061


def test_celery_moves_and_runs_what_java_has_delayed(jvm: Jvm, make_proj: MakeProj) -> None:
    """A task that Java has offered runs at the time for which it is rescheduled, or at once with run_now, and once."""
    proj = shared(make_proj)
    for name in ("moved", "run"):
        jvm.offer("celery", jvm.message("celery", name), FAR_S)
    proj.worker(pool="solo")
    known(proj)
    with transferring(jvm, "celery"):
        due = time.time() + 1
        assert reschedule(proj.app, "moved", countdown=1) == "rescheduled"
        assert run_now(proj.app, "run") == "transferred"
        runs = {run["id"]: run["at"] for run in proj.await_runs(2)}
        assert runs["moved"] >= due
        stays(lambda: len(proj.runs()) == 2, 0.3)
    assert get(proj.app, "moved") is None
    nothing_left(proj)


def test_what_redisson_makes_of_garbage_in_the_list(jvm: Jvm, make_proj: MakeProj) -> None:
    """Redisson's transfer never delivers what is left in the list, but size, contains, remove and poll see it."""
    proj = shared(make_proj)
    ids = [f"task {n}" for n in range(300)]
    jvm.offer_tasks("celery", ids, FAR_S)
    proj.send("record", countdown=2 * FAR_S)  # from now on the queue is known
    message = _body(proj, "task 0")
    assert set(cancel(proj.app, ids[:200]).values()) == {"cancelled"}
    client = redis.Redis(port=proj.server.port, decode_responses=True)
    assert client.llen(LISTED) > 100
    assert jvm.ask("size", queue="celery") == client.llen(LISTED)
    assert jvm.ask("contains", queue="celery", message=message)
    assert jvm.ask("remove", queue="celery", message=message)
    assert not jvm.ask("contains", queue="celery", message=message)
    polled = jvm.ask("poll_delayed", queue="celery")
    assert jvm.ask("read", message=polled)["id"] in ids[:200]
    assert select(proj.app).count() == 101
