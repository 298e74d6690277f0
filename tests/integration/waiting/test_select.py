"""``celery_ext.select``, ``browse``, ``count`` and ``get``: waiting tasks by any condition, counted, read, changed."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis.exceptions import ResponseError

from celery_ext import browse, cancel, count, reschedule, run_now, select
from kombu_delayq.errors import AnswerLost
from kombu_delayq.store import Change
from kombu_delayq.store.lookup import Lookup
from tests.support.commands.shell import Audit
from tests.support.workers.backlogs import fill
from tests.support.workers.harness import MakeProj, Proj

pytestmark = pytest.mark.both_layouts


BASE = datetime(2100, 1, 1, tzinfo=UTC)


def _at(seconds: float) -> datetime:
    return BASE + timedelta(seconds=seconds)


def _send(proj: Proj, identity: str, *args: Any, **options: Any) -> None:
    proj.send("record", *args, **{"eta": _at(0), "task_id": identity, "queue": "q", **options})


def test_more_than_a_page_while_they_are_cancelled(proj: Proj) -> None:
    """An iteration goes on page by page, while the tasks that it has yielded are cancelled, over the app's own pool."""
    fill(proj, "q", ((f"t{n:04}", _at(n // 100)) for n in range(1300)))
    found = []
    for task in select(proj.app, task="proj.*"):
        found.append(task.id)
        if len(found) % 100 == 0:
            cancel(proj.app, found[-100:])
    assert found == [f"t{n:04}" for n in range(1300)]
    assert select(proj.app).count() == 0


def test_what_is_cancelled_is_revoked_and_noted(proj: Proj, audit: Audit) -> None:
    """Only the selected tasks go; their results are REVOKED, and one line says who did what to how many."""
    for n in range(30):
        _send(proj, f"t{n:02}", n % 3)
    seen: list[tuple[int, int]] = []
    done = select(proj.app, queues="q", args={"0": 1}).cancel(progress=lambda *at: seen.append(at))
    assert done == {"cancelled": 10}
    assert seen[-1] == (10, 10)
    assert {task.args[0] for task in select(proj.app)} == {0, 2}
    assert proj.app.AsyncResult("t01").state == "REVOKED"
    assert proj.app.AsyncResult("t02").state == "PENDING"
    [line] = audit()
    assert (line["action"], line["count"]) == ("bulk cancel", 10)
    assert "@" in line["who"]
    assert line["what"] == {
        "filter": {"queues": ["q"], "arguments": ["args.0=1"]},
        "of": 10,
        "outcomes": {"cancelled": 10},
    }


def test_changes_by_id_are_noted(proj: Proj, audit: Audit) -> None:
    """``cancel``, ``reschedule`` and ``run_now`` each leave one line for all ids, and none if no task waited."""
    for n in range(3):
        _send(proj, f"t{n}")
    cancel(proj.app, ["t0", "gone"])
    reschedule(proj.app, "t1", eta=_at(60))
    run_now(proj.app, ["t2"])
    cancel(proj.app, "gone")
    assert [(line["action"], line["count"], line["what"]) for line in audit()] == [
        ("run", 1, {"ids": ["t2"], "outcomes": {"transferred": 1}}),
        ("reschedule", 1, {"ids": ["t1"], "due": _at(60).isoformat(), "outcomes": {"rescheduled": 1}}),
        ("cancel", 1, {"ids": ["t0", "gone"], "outcomes": {"cancelled": 1, "not_delayed": 1}}),
    ]


@pytest.mark.wide
def test_reschedule_and_run_now(proj: Proj, audit: Audit) -> None:
    """Selected tasks get one new due time, or go to their queue and run."""
    for n in range(10):
        _send(proj, f"t{n}", n)
    selected = select(proj.app, task="proj.record", args={"0": 4})
    assert selected.reschedule(eta=_at(60)) == {"rescheduled": 1}
    assert [(task.id, task.due) for task in select(proj.app, due_from=_at(1))] == [("t4", _at(60))]
    assert selected.run_now() == {"transferred": 1}
    assert select(proj.app, args={"0": 5}).reschedule(eta=datetime(2000, 1, 1)) == {"transferred": 1}
    proj.worker("-Q", "q", concurrency=1)
    assert sorted(run["value"] for run in proj.await_runs(2)) == [4, 5]
    assert select(proj.app).count() == 8
    assert [line["action"] for line in audit()] == ["bulk reschedule", "bulk run_now", "bulk reschedule"]
    assert audit()[-1]["what"]["due"] == _at(60).isoformat()
    for wrong in ({}, {"eta": _at(0), "countdown": 1}, {"countdown": "soon"}, {"by": 60}):
        with pytest.raises(ValueError, match=r"give one of|is not a (number|timedelta)"):
            selected.reschedule(**wrong)


def test_tasks_are_moved_by_a_time(proj: Proj, audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gets a time of its own, and is moved once, also if the answer to a call was lost."""
    for n in range(3):
        _send(proj, f"t{n}", n)
    day, dues = timedelta(days=1), {task.id: task.due for task in select(proj.app)}
    assert select(proj.app, args={"0": 1}).reschedule(by=-day / 2) == {"rescheduled": 1}
    change, words = Lookup.reschedule, iter((["changed"],))

    def lost_once(self: Lookup, queue: str, changes: Sequence[Change]) -> list[str]:
        done = change(self, queue, changes)
        return next(words, done)  # redis-py sent the call again, after it was done

    monkeypatch.setattr(Lookup, "reschedule", lost_once)
    assert reschedule(proj.app, ["t0"], by=day) == {"t0": "rescheduled"}
    assert reschedule(proj.app, "t2", by=day) == "rescheduled"
    moved = {task.id: task.due - dues[task.id] for task in select(proj.app)}
    assert moved == {"t0": day, "t1": -day / 2, "t2": day}
    assert [line["what"].get("shift_s") for line in audit()] == [86_400, 86_400, -43_200]


def test_a_lost_answer_is_noted(proj: Proj, audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    """If Redis does not say what it has done, a line says so: some tasks may be cancelled."""
    _send(proj, "t0")

    def lose(*_: object) -> None:
        raise AnswerLost("cancelled", ["t0"])

    monkeypatch.setattr(Lookup, "discard", lose)
    with pytest.raises(AnswerLost):
        select(proj.app, queues="q").cancel()
    [line] = audit()
    assert (line["action"], line["count"], line["what"]["answer_lost"]) == ("bulk cancel", 0, True)


#: Conditions that are none, and what is said of each.
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"args": {"user": 1}}, "the path 'user' begins neither"),
    ({"due_from": _at(1), "due_to": _at(1)}, "the range is empty"),
    ({"due_to": "tomorrow"}, "due_to='tomorrow' is no datetime"),
    ({"queues": [""]}, "are no names of queues"),
    ({"queues": [5]}, r"queues=\(5,\) are no names of queues"),
    ({"queues": 5}, "queues=5 is neither the name of a queue nor several"),
    ({"queues": b"q"}, "queues=b'q' is neither the name of a queue nor several"),
    ({"args": "0=3"}, "args='0=3' is no dict of paths and values"),
    ({"args": {0: 3}}, "the path 0 is no text"),
    ({"priority": "5"}, "priority='5' is no number"),
    ({"task": ""}, "is no text to look for"),
]


def test_a_wrong_condition_is_named_at_once(proj: Proj) -> None:
    """A condition that is none raises a ValueError before Redis is asked."""
    for conditions, complaint in WRONG:
        with pytest.raises(ValueError, match=complaint):
            select(proj.app, **conditions)


def test_a_queue_that_cannot_be_read(proj: Proj, caplog: pytest.LogCaptureFixture) -> None:
    """To count or to browse it is an error, as nobody would notice a log line; an iteration goes on without it."""
    fill(proj, "q", [("a", _at(1))])
    fill(proj, "bad", [("b", _at(1))])
    proj.server.client().delete("delayq:{bad}:due")
    proj.server.client().set("delayq:{bad}:due", "somebody else's")
    uses: list[Callable[[], object]] = [
        lambda: count(proj.app),
        lambda: select(proj.app, queues="bad").count(),
        lambda: list(browse(proj.app)),
    ]
    for use in uses:
        with pytest.raises(ResponseError, match="WRONGTYPE"):
            use()
    assert [task.id for task in select(proj.app)] == ["a"]
    assert "queue 'bad' cannot be read" in caplog.text


def test_times_without_a_zone_are_in_utc(make_proj: MakeProj) -> None:
    """A bound without a zone is meant as the eta of ``apply_async`` is, also in an app with a time zone of its own."""
    proj = make_proj(timezone="Asia/Tokyo")
    without_zone = datetime(2100, 1, 1)
    proj.send("record", eta=without_zone)
    assert [task.due for task in select(proj.app)] == [without_zone.replace(tzinfo=UTC)]
    assert select(proj.app, due_from=without_zone).count() == 1
    assert select(proj.app, due_to=without_zone).count() == 0
    assert select(proj.app, due_to=without_zone + timedelta(seconds=1)).count() == 1
