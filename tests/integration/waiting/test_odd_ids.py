"""Custom ids that have no UTF-8, or are no text, which stock Celery takes."""

import json
from typing import Any
from uuid import uuid4

import pytest

from celery_ext import Call, cancel, get, install, reschedule, run_now, select, send_many
from tests.support.workers.harness import MakeProj, Proj

IDS = ["\ud800", "a\udfffb", "\udc80", "\udced\udca0\udc80", "ü\ud800", '"\ud800\\']


def _ready(proj: Proj) -> list[Any]:
    return [json.loads(each)["headers"]["id"] for each in proj.server.client().lrange("celery", 0, -1)]


@pytest.mark.both_layouts
def test_a_task_of_any_id_waits_and_is_found(make_proj: MakeProj) -> None:
    """A task whose id has a lone surrogate waits, is found by it, moved and cancelled as any other."""
    proj = make_proj(result_backend=None)  # that of Redis takes no such id
    for task_id in IDS:
        _wait_and_be_found(proj, task_id)
        proj.server.client().delete("celery")


def _wait_and_be_found(proj: Proj, task_id: str) -> None:
    proj.send("record", 0, task_id=task_id)
    assert _ready(proj) == [task_id], "as on stock"
    proj.server.client().delete("celery")
    proj.send("record", 1, task_id=task_id, countdown=300)
    task = get(proj.app, task_id)
    assert task is not None
    assert task.id == task_id
    assert [each.id for each in select(proj.app, queues="celery")] == [task_id]
    assert reschedule(proj.app, task_id, countdown=600) == "rescheduled"
    assert cancel(proj.app, task_id) == "cancelled"
    assert proj.delayed() == 0
    proj.send("record", 2, task_id=task_id, countdown=300)
    proj.send("record", 3, task_id=task_id, countdown=300)
    assert run_now(proj.app, [task_id]) == {task_id: "transferred"}
    assert _ready(proj) == [task_id] * 2
    send_many(proj.app, "proj.record", [Call((4,), task_id=task_id, countdown=300)])
    assert cancel(proj.app, [task_id]) == {task_id: "cancelled"}


@pytest.mark.both_layouts
@pytest.mark.parametrize("fast_publish", [False, True])
def test_a_uuid_is_found_by_its_text(make_proj: MakeProj, fast_publish: bool) -> None:
    """A task whose id was given as a ``UUID``, as stock Celery lets one, waits under the text of it."""
    proj = make_proj()
    install(proj.app, fast_publish=fast_publish)
    task_id = uuid4()
    result = proj.app.send_task("proj.record", (1,), task_id=task_id, countdown=300)
    task = get(proj.app, str(task_id))
    assert task is not None
    assert task.id == str(task_id)
    assert reschedule(proj.app, str(task_id), countdown=600) == "rescheduled"
    assert cancel(proj.app, result) == "cancelled"
    assert proj.delayed() == 0


@pytest.mark.both_layouts
def test_odd_ids_on_any_page_of_send_many(make_proj: MakeProj) -> None:
    """Such ids are stored also where their page is sent while Redis stores the one before."""
    proj = make_proj(result_backend=None)
    calls = [Call((n,), task_id=f"\ud800{n}", countdown=300) for n in range(450)]
    assert send_many(proj.app, "proj.record", calls) == 450
    assert proj.delayed() == 450
