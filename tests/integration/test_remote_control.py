"""Remote control and events of workers whose delayed tasks wait in Redis."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

from tests.integration.harness import Proj
from tests.waiting import until


@contextmanager
def _events(proj: Proj) -> Iterator[list[dict[str, Any]]]:
    """Captures the events of all workers meanwhile."""
    seen: list[dict[str, Any]] = []
    with proj.app.connection_for_read() as connection:
        receiver = proj.app.events.Receiver(connection, handlers={"*": seen.append})

        def capture() -> None:
            receiver.capture(limit=None, timeout=None, wakeup=False)

        thread = Thread(target=capture, daemon=True)
        thread.start()
        try:
            yield seen
        finally:
            receiver.should_stop = True
            thread.join(10)
    assert not thread.is_alive()


def test_inspect_and_revoke_with_tasks_that_wait_in_redis(proj: Proj) -> None:
    """Workers answer ping and inspect; waiting tasks are not among theirs; revoked ones never run, running ones end."""
    workers = [proj.worker("-E", gossip=True, concurrency=1, wait=False) for _ in range(2)]
    for worker in workers:
        worker.ready()
    nodes, control = proj.await_answers(), proj.app.control
    assert "2 nodes online" in proj.celery("inspect", "ping", "-t", "10", "-d", ",".join(nodes))

    waiting = proj.send("record", "revoked", countdown=4)
    running = proj.send("busy", 60, countdown=1)
    proj.await_runs(1)
    inspect = control.inspect(destination=nodes, timeout=10)
    assert sorted(inspect.scheduled()) == nodes
    for held in (inspect.scheduled(), inspect.reserved()):
        assert all(tasks == [] for tasks in held.values())
    assert [task["id"] for tasks in inspect.active().values() for task in tasks] == [running.id]
    assert {queue["name"] for queues in inspect.active_queues().values() for queue in queues} == {"celery"}

    assert len(control.revoke(waiting.id, reply=True, destination=nodes, timeout=10)) == 2
    control.revoke(running.id, terminate=True, signal="SIGKILL")
    discarded = f"Discarding revoked task: proj.record[{waiting.id}]"
    until(lambda: any(discarded in worker.log for worker in workers))
    until(lambda: (waiting.state, running.state) == ("REVOKED", "REVOKED"))
    assert [run["name"] for run in proj.runs()] == ["busy"]
    assert proj.delayed() == 0


def test_events_of_a_delayed_task(proj: Proj) -> None:
    """A delayed task sends its events as any other, ``task-received`` when it is due; consumers can be added later.

    A queue that is added at run time gets its delayed tasks too, also those that waited before.
    """
    proj.app.conf.task_send_sent_event = True
    with _events(proj) as seen:
        worker = proj.worker("-E", concurrency=1)
        until(lambda: {"worker-online"} <= {event["type"] for event in seen})
        proj.await_answers()
        due = time.time() + 2
        delayed = proj.send("record", "x", countdown=2)
        before = proj.send("record", "late queue", countdown=2, queue="late")
        [reply] = proj.app.control.add_consumer("late", reply=True, destination=[worker.node], timeout=10)
        assert "ok" in reply[worker.node]
        assert (delayed.get(timeout=20), before.get(timeout=20)) == ("x", "late queue")

        def of_delayed() -> dict[str, dict[str, Any]]:
            return {event["type"]: event for event in seen if event.get("uuid") == delayed.id}

        types = {"task-sent", "task-received", "task-started", "task-succeeded"}
        until(lambda: of_delayed().keys() == types)
    assert all(of_delayed()[kind]["timestamp"] >= due for kind in types - {"task-sent"})
    assert of_delayed()["task-sent"]["timestamp"] < due
    assert of_delayed()["task-received"]["eta"] == proj.runs(id=delayed.id)[0]["eta"] is not None
    assert len(proj.runs()) == 2
    assert worker.stop() == 0
