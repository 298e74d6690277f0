"""Checks whether priorities do what the settings of an app say."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from celery_ext.delays import own_tasks
from celery_ext.doctor.finding import Finding, Findings, named
from celery_ext.doctor.subject import Subject
from celery_ext.health import Level
from kombu_delayq.store import Keys
from kombu_delayq.transport import Channel

_PAGE = "how-to/queues.md#priorities"


def priorities(subject: Subject) -> Findings:
    """Do priorities do what their settings say?"""
    app = subject.the_app
    limited = [queue.name for queue in app.amqp.queues.values() if "x-max-priority" in (queue.queue_arguments or {})]
    if app.conf.task_queue_max_priority is not None:
        limited = ["task_queue_max_priority", *limited]
    if limited:
        yield Finding(
            Level.NOTICE,
            f"x-max-priority is RabbitMQ's, and does nothing in Redis: {named(limited)}. There every queue has "
            "priorities, and 0 runs first, 9 last: the other way round than in RabbitMQ",
            "take it out, and look at the numbers of your tasks",
            _PAGE,
        )
    steps: Sequence[int] = subject.transport_options.get("priority_steps") or Channel.priority_steps
    lists = Keys().lists_of_priorities(steps)
    used = {priority: name for name, priority in _used(app) if 0 <= priority <= 9}
    for _, same in groupby(sorted(used), key=lambda priority: lists[priority]):
        if len(alike := list(same)) > 1:
            yield Finding(
                Level.NOTICE,
                f"the priorities {' and '.join(map(str, alike))} are one, because priority_steps has "
                f"{', '.join(map(str, steps))}: {named([used[priority] for priority in alike])}",
                "use numbers of different steps, or set priority_steps to range(10) in all processes",
                _PAGE,
            )


def _used(app: Any) -> Iterator[tuple[str, int]]:
    """Yields what the app's settings and tasks name, with its priority."""
    found = [("task_default_priority", app.conf.task_default_priority)]
    routes = app.conf.task_routes or ()
    for table in [routes] if isinstance(routes, Mapping) else routes:
        items = table.items() if isinstance(table, Mapping) else ()
        found += [(str(name), route.get("priority")) for name, route in items if isinstance(route, Mapping)]
    found += [(task.name, getattr(task, "priority", None)) for task in own_tasks(app)]
    yield from ((name, priority) for name, priority in found if isinstance(priority, int))
