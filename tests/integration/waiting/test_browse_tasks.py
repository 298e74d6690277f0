"""``celery_ext.browse``, ``get`` and ``count``: what waits, in order, in parts, while it comes and goes."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from celery_ext import browse, cancel, count, get
from tests.support.workers.backlogs import fill
from tests.support.workers.harness import MakeProj, Proj

pytestmark = pytest.mark.both_layouts

BASE = datetime(2100, 1, 1, tzinfo=UTC)
MANY = 5000


def _at(seconds: float) -> datetime:
    return BASE + timedelta(seconds=seconds)


def test_bounds_and_limits(proj: Proj) -> None:
    """Tasks are told in the order of their due times, from one moment on and before another, and no more than asked."""
    app = proj.app
    fill(proj, "q", ((f"task {n}", _at(n)) for n in range(MANY)))
    fill(proj, "other", ((f"other {n}", _at(n)) for n in range(3)))
    told = list(browse(app, "q"))
    assert [task.id for task in told] == [f"task {n}" for n in range(MANY)]
    assert [task.due for task in told] == [_at(n) for n in range(MANY)]
    assert all((task.queue, task.name, task.args) == ("q", "proj.record", []) for task in told)
    assert [task.priority for task in told] == [n % 10 for n in range(MANY)]

    bounds: list[tuple[dict[str, Any], range]] = [
        ({}, range(MANY)),
        ({"due_after": _at(10)}, range(10, MANY)),
        ({"due_before": _at(10)}, range(10)),
        ({"due_after": _at(1000), "due_before": _at(3000)}, range(1000, 3000)),
        ({"due_after": _at(9.5), "due_before": _at(10.5)}, range(10, 11)),
        ({"due_after": _at(20), "due_before": _at(10)}, range(0)),
        ({"due_after": _at(MANY)}, range(0)),
        ({"due_before": datetime.now(UTC)}, range(0)),
        ({"due_after": datetime.min.replace(tzinfo=UTC), "due_before": datetime.max.replace(tzinfo=UTC)}, range(MANY)),
    ]
    for given, expected in bounds:
        assert [task.id for task in browse(app, "q", **given)] == [f"task {n}" for n in expected]
        assert count(app, "q", **given) == len(expected)
    for limit in (0, 1, 199, 200, 201, 1000, MANY, MANY + 1):
        assert [task.id for task in browse(app, "q", limit=limit)] == [f"task {n}" for n in range(min(limit, MANY))]
    assert [task.id for task in browse(app, "q", due_after=_at(300), limit=2)] == ["task 300", "task 301"]

    assert count(app) == MANY + 3
    assert count(app, due_before=_at(2)) == 4
    assert (count(app, "nobody's"), list(browse(app, "nobody's"))) == (0, [])


def test_times_without_a_zone_are_in_utc(make_proj: MakeProj) -> None:
    """A bound without a zone is meant as the eta of ``apply_async`` is, also in an app with a time zone of its own."""
    proj = make_proj(timezone="Asia/Tokyo")
    without_zone = datetime(2100, 1, 1)
    proj.send("record", eta=without_zone)
    assert [task.due for task in browse(proj.app, "celery")] == [without_zone.replace(tzinfo=UTC)]
    assert count(proj.app, due_after=without_zone) == 1
    assert count(proj.app, due_before=without_zone) == 0
    assert count(proj.app, due_before=without_zone + timedelta(seconds=1)) == 1


def test_get_tells_the_next_of_an_id(proj: Proj) -> None:
    """Of several tasks with one id, in several queues, the one that is due first is told; of an unknown id, None."""
    for number, queue in enumerate(("q", "q", "other")):
        proj.send("record", number, eta=BASE + timedelta(hours=-number), task_id="same", queue=queue)
    found = get(proj.app, "same")
    assert found is not None
    assert (found.id, found.queue, found.args, found.due) == ("same", "other", [2], BASE - timedelta(hours=2))
    assert found.eta == found.due.isoformat()
    assert get(proj.app, "unknown") is None
    assert get(proj.app, "") is None
    assert cancel(proj.app, "same") == "cancelled"
    assert get(proj.app, "same") is None
