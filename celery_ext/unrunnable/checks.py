"""The check of tasks that workers do not know, and its alert."""

from celery_ext.doctor import REDIS, Alert, Check, Finding, Findings, Level, Subject, named

_PAGE = "how-to/delivery-guarantees.md#what-a-worker-cannot-run"


def tasks_differ(subject: Subject) -> Findings:
    """Do the workers of each queue know the same tasks?"""
    by_queue: dict[str, list[frozenset[str]]] = {}
    for worker in subject.workers or ():
        for queue in worker.queues if worker.tasks else ():
            by_queue.setdefault(queue, []).append(worker.tasks)
    for queue, known in sorted(by_queue.items()):
        partly = frozenset[str]().union(*known).difference(frozenset.intersection(*known))
        if partly:
            counts = {name: sum(name in tasks for tasks in known) for name in sorted(partly)}
            shown = named([f"{name} ({count} of {len(known)} workers)" for name, count in counts.items()])
            yield Finding(
                Level.WARNING,
                f"workers of queue {queue!r} differ in their tasks: {shown}. What a worker does not know goes back",
                "end the deploy; import the modules of all tasks in all workers of a queue",
                _PAGE,
            )


#: What this feature brings to `delayq doctor`.
CHECKS = (Check("tasks", tasks_differ, REDIS, asks=True),)
ALERTS = (
    Alert(
        "DelayqTasksNotKnown",
        "tasks",
        Level.WARNING,
        'sum by (job, namespace, queue) (increase(delayq_failures_total{outcome="not known"}[5m])) > 0',
        "Workers of queue {{ $labels.queue }} get tasks that they cannot run.",
        (
            "About {{ $value | humanize }} times in 5 minutes, a worker of queue {{ $labels.queue }} got a message of "
            "a task that it does not know, or that it cannot read. After unknown_ttl such messages become dead letters."
        ),
        lasts="10m",
    ),
)
