"""A JVM service and a Celery app share one delayed queue: what one of them delays, the other one gets."""

import json
import time
from typing import Any

import pytest

from tests.support.conditions import DEADLINE_S, stays
from tests.support.jvm.redisson import Jvm
from tests.support.jvm.shared import nothing_left, shared, transferring
from tests.support.workers.harness import MakeProj, Proj


def _runs_once(proj: Proj, jvm: Jvm, queue: str = "celery", priority: int = 0) -> None:
    """Java offers a task with a delay; the app's worker runs it, once and not early."""
    due = time.time() + 1
    jvm.offer(queue, jvm.message(queue, "from Java", "x", priority=priority), 1)
    [run] = proj.await_runs(1)
    assert (run["id"], run["value"], run["queue"]) == ("from Java", "x", queue)
    assert due <= run["at"]
    stays(lambda: len(proj.runs()) == 1, 0.3)
    nothing_left(proj, queue)


def _is_taken_once(proj: Proj, jvm: Jvm, queue: str = "celery", **options: Any) -> dict[str, Any]:
    """The app delays a task; Java takes it, once and not early. Returns what Java reads in it."""
    due = time.time() + 1
    sent = proj.send("record", "y", countdown=1, queue=queue, **options)
    step = options.get("priority", 0) // 3 * 3
    ready = f"{queue}\x06\x16{step}" if step else queue
    message = jvm.poll(ready, DEADLINE_S)
    assert message is not None
    assert time.time() >= due
    read: dict[str, Any] = jvm.ask("read", message=message)
    assert read == {"id": sent.id, "task": "proj.record", "args": ["y"]}
    assert jvm.poll(ready, 0.3) is None
    nothing_left(proj, queue)
    return dict(json.loads(message))


@pytest.mark.parametrize("priority", [0, 5])
def test_a_worker_runs_what_java_has_delayed(jvm: Jvm, make_proj: MakeProj, priority: int) -> None:
    """A Celery message that a JVM service offers with a delay runs in a worker, once and not early."""
    proj = shared(make_proj)
    proj.worker(pool="solo")
    _runs_once(proj, jvm, priority=priority)


@pytest.mark.parametrize("priority", [0, 4, 9])
def test_java_takes_what_celery_has_delayed(jvm: Jvm, make_proj: MakeProj, priority: int) -> None:
    """Java takes a task with a countdown from the list of its priority, when only Redisson or ours transfers it."""
    proj = shared(make_proj)
    if priority:
        proj.worker("-Q", "another", pool="solo")  # for its transfer worker
        message = _is_taken_once(proj, jvm, priority=priority)
    else:
        with transferring(jvm, "celery"):
            message = _is_taken_once(proj, jvm)
    assert message["properties"]["priority"] == priority


def test_a_name_with_braces(jvm: Jvm, make_proj: MakeProj) -> None:
    """Redisson and ours agree on the keys of a queue whose name brings braces of its own."""
    queue = "orders-{eu}"
    proj = shared(make_proj)
    worker = proj.worker("-Q", queue, pool="solo")
    _runs_once(proj, jvm, queue)
    worker.stop()
    with transferring(jvm, queue):
        _is_taken_once(proj, jvm, queue)


def test_entries_as_redisson_packed_them_before_3_21_1(old_jvm: Jvm, make_proj: MakeProj) -> None:
    """An old Redisson, whose entries have a double in front, exchanges messages with a Celery app both ways."""
    proj = shared(make_proj)
    worker = proj.worker(pool="solo")
    _runs_once(proj, old_jvm)
    worker.stop()
    with transferring(old_jvm, "celery"):
        _is_taken_once(proj, old_jvm)


def test_an_earlier_message_of_java_wakes_the_leader(jvm: Jvm, make_proj: MakeProj) -> None:
    """A leader that sleeps until a far head learns of an earlier one of Java from Redisson's announcement."""
    proj = shared(make_proj, poll_interval=60.0)
    proj.send("record", "far", countdown=3600)
    proj.worker(pool="solo")
    due = time.time() + 1
    jvm.offer("celery", jvm.message("celery", "soon"), 1)
    [run] = proj.await_runs(1)
    assert run["id"] == "soon"
    assert due <= run["at"] <= due + DEADLINE_S
    assert proj.delayed() == 1
