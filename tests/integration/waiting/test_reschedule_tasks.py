"""``celery_ext.reschedule`` and ``run_now`` with real workers: tasks run at their new time, once."""

import json
import time
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from celery_ext import cancel, get, reschedule, run_now, select
from kombu_delayq.message.due import eta_of
from kombu_delayq.message.fields import read
from tests.support.conditions import stays, until
from tests.support.workers.harness import MakeProj, Proj
from tests.support.workers.transfers import Transfer

pytestmark = [pytest.mark.wide, pytest.mark.both_layouts]

EPSILON_S = 0.001  # a moment in s is less exact than one in µs
TOKYO = ZoneInfo("Asia/Tokyo")


def _run(proj: Proj, value: str) -> dict[str, Any]:
    """Waits for the run of a task that is to run once."""
    [run] = proj.await_runs(1, value=value)
    return run


def _eta(run: dict[str, Any]) -> float:
    return datetime.fromisoformat(run["eta"]).timestamp()


@pytest.mark.journey
def test_tasks_run_at_their_new_time(make_proj: MakeProj, transfer: Transfer) -> None:
    """Tasks that are put off, preferred or due in the past run once, not before their new time, and know it.

    What becomes of a task that expires is decided by its own ``expires``.
    """
    proj = make_proj(timezone="Asia/Tokyo")
    options = {**proj.conf.get("broker_transport_options", {}), "transfer": False}
    proj.worker(concurrency=1, broker_transport_options=options)  # so that all wait till they are rescheduled
    app, send = proj.app, proj.send
    expired = send("record", "expired", countdown=300, expires=2.5)
    assert reschedule(app, expired.id, countdown=3.5) == "rescheduled"
    later = send("record", "later", countdown=2)
    preferred, naive, past, at_once, zero, in_time = (
        send("record", value, countdown=300, expires=600)
        for value in ("preferred", "naive", "past", "at once", "zero", "in time")
    )
    now = time.time()
    dues = {"later": now + 7, "preferred": now + 5.5, "naive": now + 6, "in time": now + 5}
    assert reschedule(app, later.id, eta=datetime.fromtimestamp(dues["later"], UTC)) == "rescheduled"
    assert reschedule(app, preferred.id, eta=datetime.fromtimestamp(dues["preferred"], TOKYO)) == "rescheduled"
    without_zone = datetime.fromtimestamp(dues["naive"], UTC).replace(tzinfo=None)  # as apply_async takes it
    assert reschedule(app, naive.id, eta=without_zone) == "rescheduled"
    assert reschedule(app, [in_time.id], countdown=dues["in time"] - time.time()) == {in_time.id: "rescheduled"}
    assert reschedule(app, past.id, eta=datetime(2001, 2, 3, tzinfo=UTC)) == "transferred"
    assert reschedule(app, zero.id, countdown=0) == "transferred"
    assert run_now(app, at_once.id) == "transferred"
    assert run_now(app, [at_once.id, "unknown"]) == {at_once.id: "not_delayed", "unknown": "not_delayed"}
    assert reschedule(app, at_once.id, countdown=5) == "not_delayed"

    transfer()
    for value in ("past", "zero", "at once"):
        assert _run(proj, value)["at"] < now + 250, "it had 300 s to wait"
    assert _eta(_run(proj, "past")) == datetime(2001, 2, 3, tzinfo=UTC).timestamp()
    for value, due in dues.items():
        run = _run(proj, value)
        assert run["at"] >= due - EPSILON_S
        assert abs(_eta(run) - due) < (60 if value == "in time" else EPSILON_S)
    until(lambda: expired.state == "REVOKED")
    stays(lambda: len(proj.runs()) == 7, 1, "each once")
    assert proj.delayed() == 0


@pytest.mark.parametrize("protocol", [1, 2])
def test_what_runs_now_has_no_eta(make_proj: MakeProj, protocol: int) -> None:
    """No clock of a worker that is behind can hold it, whether it was found by its id or selected."""
    proj = make_proj(task_protocol=protocol)
    for value in ("by id", "selected"):
        proj.send("record", value, countdown=300, task_id=value)
    assert run_now(proj.app, "by id") == "transferred"
    assert select(proj.app, queues=["celery"]).run_now() == {"transferred": 1}
    messages = [read(one.encode()) for one in proj.server.client().lrange("celery", 0, -1)]
    assert [eta_of(message) for message in messages] == [None, None]
    assert {message["headers"].get("eta") for message in messages} == {None}
    proj.worker(pool="solo")
    proj.await_runs(2)


def test_messages_of_plain_kombu_by_the_id_under_which_they_are_stored(proj: Proj) -> None:
    """What a plain producer delayed with ``DelaySeconds`` can be moved and cancelled, and its bytes stay."""
    app = proj.app
    with proj.connection() as connection:
        producer = connection.Producer(routing_key="plain")
        for number in range(3):
            producer.publish({"n": number}, DelaySeconds=300 + number, correlation_id="rpc", headers={"id": "7"})
    first, second, third = select(app, queues="plain")
    assert [task.name for task in (first, second, third)] == [None] * 3
    assert get(app, "7") is None
    assert reschedule(app, first.id, countdown=600) == "rescheduled"
    assert run_now(app, second.id) == "transferred"
    assert cancel(app, third.id) == "cancelled"
    [put_off] = select(app, queues="plain")
    assert (put_off.id, put_off.message.body) == (first.id, first.message.body)
    [ready] = proj.server.client().lrange("plain", 0, -1)
    assert json.loads(ready) == second.body
    assert not proj.journal_server.client(1).keys("celery-task-meta-*")
