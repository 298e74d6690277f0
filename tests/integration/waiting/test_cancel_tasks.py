"""``celery_ext.cancel`` with real workers: what is cancelled never runs, and all who look at it can see so."""

import logging
from typing import Any

import pytest
from celery import chord, group
from celery.exceptions import ChordError, TaskRevokedError
from celery.result import AsyncResult, GroupResult
from celery.signals import task_revoked

from celery_ext import cancel, get, reschedule, run_now
from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import stays, until
from tests.support.workers.events import captured
from tests.support.workers.harness import MakeProj, Proj
from tests.support.workers.transfers import Transfer

pytestmark = pytest.mark.both_layouts


def _is_revoked(result: AsyncResult) -> bool:
    """Whether whoever waits for a result is told at once that it will not come."""
    with pytest.raises(TaskRevokedError, match="cancelled while it was delayed"):
        result.get(timeout=30)
    return bool(result.state == "REVOKED")


@pytest.mark.journey
def test_a_cancelled_task_never_runs(proj: Proj, transfer: Transfer) -> None:
    """What is cancelled does not run when it would have been due, and nobody waits for its result any more.

    What runs, has run, waits in its queue, was cancelled before or was never sent, is not delayed.
    """
    options = {**proj.conf.get("broker_transport_options", {}), "transfer": False}
    worker = proj.worker(concurrency=1, broker_transport_options=options)  # so that all wait till they are cancelled
    finished = proj.send("record", "finished")
    proj.await_runs(1)
    flaky = proj.send("flaky", 1, 300, countdown=0, task_id="flaky")
    until(lambda: get(proj.app, flaky.id), what="waits for its second run")
    running = proj.send("busy", 2)
    proj.await_runs(1, name="busy")
    ready = proj.send("record", "ready")
    cancelled = [proj.send("record", number, countdown=1, priority=number % 10).id for number in range(20)]
    kept = [proj.send("record", f"kept {number}", countdown=1, priority=number).id for number in range(10)]
    unknown = ["never sent", finished.id, running.id, ready.id]

    outcomes = cancel(proj.app, [*cancelled, *unknown])
    assert proj.delayed() == len(kept) + 1
    assert cancel(proj.app, flaky.id) == "cancelled"
    assert outcomes == {**dict.fromkeys(cancelled, "cancelled"), **dict.fromkeys(unknown, "not_delayed")}
    assert set(cancel(proj.app, cancelled).values()) == {"not_delayed"}
    assert all(_is_revoked(proj.app.AsyncResult(each)) for each in [*cancelled, flaky.id])

    transfer()
    proj.await_runs(len(kept) + 2, name="record")
    assert (finished.get(timeout=30), ready.get(timeout=30)) == ("finished", "ready")
    stays(lambda: len(proj.runs()) == len(kept) + 4, 1, "nothing cancelled runs")
    assert {run["id"] for run in proj.runs()} == {*kept, finished.id, running.id, ready.id, flaky.id}
    assert running.state == "SUCCESS"
    assert worker.alive()


def test_a_task_is_named_by_what_apply_async_returned(proj: Proj) -> None:
    """An AsyncResult does for an id, alone, among ids, and in a group's result; the answer is found under it."""
    alone, *several = (proj.send("record", number, countdown=300) for number in range(4))
    app = proj.app
    assert reschedule(app, alone, countdown=600) == "rescheduled"
    found = get(app, alone)
    assert found is not None
    assert found.id == alone.id
    assert cancel(app, alone) == "cancelled"
    assert get(app, alone) is None
    assert {each: task and task.args for each, task in get(app, [alone, several[0].id]).items()} == {
        alone.id: None,
        several[0].id: [1],
    }
    outcomes = cancel(app, [several[0], several[1].id, several[0]])
    assert outcomes == {several[0].id: "cancelled", several[1].id: "cancelled"}
    assert outcomes[several[0]] == "cancelled"
    sent = group(app.signature("proj.record", (n,)) for n in range(3)).apply_async(countdown=300)
    assert set(run_now(app, GroupResult(sent.id, sent.results[:2])).values()) == {"transferred"}
    first, second, third = (result.id for result in sent)
    assert cancel(app, sent) == {first: "not_delayed", second: "not_delayed", third: "cancelled"}


def _failure_of(result: Any) -> str:
    """Returns what a chord failed with, without what differs between two chords."""
    with pytest.raises(ChordError) as error:
        # Not ``result`` itself: a result that knows its parents raises their errors.
        result.app.AsyncResult(result.id).get(timeout=60)
    text = str(error.value)
    for member in result.parent.results:
        text = text.replace(member.id, "member")
    return text.replace("expired", "cancelled while it was delayed")


@pytest.mark.wide
def test_a_chord_fails_as_with_a_member_that_a_worker_revoked(
    make_proj: MakeProj, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chord of which a member is cancelled fails as one of which a worker discarded a member, also one in pickle."""
    monkeypatch.setenv("C_FORCE_ROOT", "1")  # a worker of root refuses pickle otherwise
    proj = make_proj(accept_content=["json", "pickle"])
    monkeypatch.setattr("celery._state._tls.current_app", proj.app)  # Celery 5.5 looks for chords in that one
    proj.worker(concurrency=1)
    record, total = proj.app.signature("proj.record"), proj.app.signature("proj.add")

    def send(serializer: str, **of_member: Any) -> Any:
        members = [record.clone(args=(1,)), record.clone(args=(2,)).set(serializer=serializer, **of_member)]
        return chord(members, app=proj.app)(total)

    by_worker = send("json", countdown=1, expires=0.5)
    for serializer in ("json", "pickle"):
        cancelled = send(serializer, countdown=300)
        member = cancelled.parent.results[1]
        assert cancel(proj.app, member.id) == "cancelled"
        assert _is_revoked(member)
        assert _failure_of(cancelled) == _failure_of(by_worker)
    assert by_worker.parent.results[1].state == "REVOKED"
    assert not [run for run in proj.runs() if run["name"] == "add"]


def test_observers_of_a_cancelled_task(proj: Proj) -> None:
    """The signal ``task_revoked`` tells of it; a task without a result leaves none; no publisher poses as a worker.

    Who hears an event such as ``task-revoked`` takes its sender for a worker, so a publisher sends none.
    """

    @proj.app.task(name="proj.record", ignore_result=True, shared=False)
    def record(value: Any) -> None: ...

    told: list[Any] = []

    def on_revoked(sender: Any, request: Any, **how: Any) -> None:
        told.append((sender.name, request.id, request.args, how["terminated"], how["expired"]))

    task_revoked.connect(on_revoked)
    proj.app.conf.task_send_sent_event = True
    with captured(proj) as seen:
        until(lambda: proj.server.client().pubsub_numpat(), what="the receiver listens")
        task = record.apply_async(("x",), countdown=300)
        assert cancel(proj.app, task.id) == "cancelled"
        record.apply_async(("y",))
        until(lambda: sum(event["type"] == "task-sent" for event in seen) == 2)
    assert {event["type"] for event in seen} == {"task-sent"}
    assert told == [("proj.record", task.id, ["x"], False, False)]
    assert not proj.journal_server.client(1).keys("celery-task-meta-*")
    assert task.state == "PENDING"

    kept = proj.send("record", countdown=300)  # by name, which asks for a result
    assert cancel(proj.app, kept.id) == "cancelled"
    assert _is_revoked(kept)


def test_observers_that_are_out_of_reach_do_not_keep_a_task_waiting(
    make_proj: MakeProj, caplog: pytest.LogCaptureFixture
) -> None:
    """With the result backend down, wrong or missing, a task is cancelled all the same; logs and signals say which."""
    with PrivateRedis() as backend:
        proj = make_proj(result_backend=backend.url)
        ids = [proj.send("record", countdown=300).id for _ in range(2)]
    with caplog.at_level(logging.ERROR):
        assert cancel(proj.app, ids) == dict.fromkeys(ids, "cancelled")
    assert all(f"task {each} is cancelled, but" in caplog.text for each in ids)
    assert proj.delayed() == 0

    publisher = make_proj(result_backend=None)
    for backend_url, logged in ((None, False), ("no-such-backend://", True)):
        task = publisher.send("record", countdown=300)
        caplog.clear()
        assert cancel(make_proj(result_backend=backend_url).app, task.id) == "cancelled"
        assert (task.id in caplog.text) == logged
        assert publisher.delayed() == 0

    told: list[str] = []

    @publisher.app.task(name="proj.record", shared=False)
    def record() -> None: ...

    def on_revoked(request: Any, **how: Any) -> None:
        told.append(request.id)

    task_revoked.connect(on_revoked)
    known = record.apply_async(countdown=300)
    assert cancel(publisher.app, known.id) == "cancelled"
    assert told == [known.id]
