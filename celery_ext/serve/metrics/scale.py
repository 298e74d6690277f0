"""``GET /scale``: one figure for an autoscaler, such as KEDA's ``metrics-api``."""

from math import ceil, inf
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from celery_ext.delays import durations
from celery_ext.serve.access.identity import Action, caller_of
from celery_ext.serve.problems import Problem, bad_request
from celery_ext.serve.service import serve_of
from kombu_delayq.store import OperatorStore

#: Most queues in one question.
MOST_QUEUES = 100


class ScaleQuery(msgspec.Struct):
    """The parameters: ``queue``, which may be repeated, and how far to look ahead, such as ``90s``."""

    queue: list[str]
    ahead: str = "0s"


class QueueWork(msgspec.Struct):
    """The work of a queue: ready, overdue, due within the time asked for, and the sum of these."""

    value: int
    ready: int
    overdue: int
    due: int


class Work(msgspec.Struct):
    """The work of all queues of the question together, and of each."""

    value: int
    ready: int
    overdue: int
    due: int
    ahead_s: float
    queues: dict[str, QueueWork]


def scale(request: Request) -> Response:
    """Answers with the work of some queues, of all priorities. A queue that nobody knows has none.

    KEDA keeps a deployment at its minimum for a value of 0, and takes an error for a fault of the server. A queue
    becomes known with its first delayed message, so it must not be an error that it is unknown.
    """
    queues = list(dict.fromkeys(request.query_params.getlist("queue")))
    if not queues or len(queues) > MOST_QUEUES:
        raise bad_request(f"name 1 to {MOST_QUEUES} queues, such as ?queue=celery")
    try:
        ahead_s = durations.parse(request.query_params.get("ahead", "0s"))
    except ValueError as error:
        raise bad_request(f"ahead: {error}") from error
    for queue in queues:
        caller_of(request).check(Action.METRICS, queue=queue)
    found = work_of(serve_of(request).store, queues, ahead_s)
    return Response(msgspec.json.encode(found), media_type="application/json", headers={"Cache-Control": "no-store"})


def work_of(store: OperatorStore, queues: list[str], ahead_s: float) -> Work:
    """Returns the work of queues; four round trips. Of messages that a rate holds back, those that leave in time.

    Raises:
        Problem: Redis refuses to count a queue.
    """
    found = {stats.queue: stats for stats in store.figures.overview(queues)}
    for stats in found.values():
        if stats.error:
            raise Problem(502, f"queue {stats.queue!r} cannot be counted: {stats.error}", "broker-refuses")
    horizon_ms = max(stats.now_ms for stats in found.values()) + ahead_s * 1000
    counts = store.figures.due_counts(queues, [-inf, horizon_ms])
    limited = store.figures.counts(queues)
    work = {}
    for queue in queues:
        stats = found[queue]
        soon = counts.get(queue, [stats.overdue])[0]
        overdue, due = stats.overdue, max(soon - stats.overdue, 0)  # the transfer goes on between both
        if (held := limited[queue].holding(stats)) is not None:
            overdue, due = min(overdue, max(1, ceil(held.per_s * ahead_s))), 0
        work[stats.queue] = QueueWork(stats.ready + overdue + due, stats.ready, overdue, due)
    sums: Any = {name: sum(getattr(each, name) for each in work.values()) for name in QueueWork.__struct_fields__}
    return Work(**sums, ahead_s=ahead_s, queues=work)
