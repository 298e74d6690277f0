"""What workers run now. Redis does not know it of tasks that are acknowledged early, so the workers are asked."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from celery_ext.doctor import workers
from celery_ext.serve.access.identity import Action, caller_of
from celery_ext.serve.page.rendering import View, render
from celery_ext.serve.service import serve_of

#: How long to wait for the answers of workers, in s.
ANSWERS_S = 1.0
#: Most runs that are shown.
ROWS = 100


class RunningTask(NamedTuple):
    """A run of a task.

    Attributes:
        since_ms: Since when it runs, by the worker's clock, ms since the epoch; None for one that waits in the worker.
        task: Name of the task.
        id: Id of the task.
        queue: The routing key by which it came; mostly the name of its queue.
        worker: Node name of the worker.
    """

    since_ms: float | None
    task: str
    id: str
    queue: str
    worker: str


def running(request: Request) -> Response:
    """Answers with what runs, the longest first, as far as the caller may see it."""
    serve, caller, page = serve_of(request), caller_of(request), View(request, "running")
    with serve.broker.channel() as channel:
        answers = workers.running(serve.broker.app, channel.connection.client, ANSWERS_S)
    page.now_ms = serve.store.now_ms()
    found = [_run(worker, task) for worker, tasks in answers.items() for task in tasks]
    runs = [run for run in found if caller.may(Action.READ, queue=run.queue, task=run.task)]
    runs.sort(key=lambda run: (run.since_ms is None, run.since_ms, run.id))
    return render("running.html", page, runs=runs[:ROWS], count=len(runs), workers=len(answers))


def _run(worker: str, task: Mapping[str, Any]) -> RunningTask:
    started_s, info = task.get("time_start"), task.get("delivery_info") or {}
    since_ms = started_s * 1000 if isinstance(started_s, (int, float)) else None
    return RunningTask(since_ms, str(task.get("name")), str(task.get("id")), str(info.get("routing_key") or ""), worker)
