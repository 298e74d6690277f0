"""The page: what comes due when, queue by queue and task by task."""

from celery_ext.serve.access.identity import Action
from celery_ext.serve.page import bulk, dead_letters, overview, periodic, queue, site, task
from celery_ext.serve.page.site import explain, is_wanted
from celery_ext.serve.routes import ActionRoute

__all__ = ["explain", "is_wanted", "routes"]


def routes() -> list[ActionRoute]:
    """Returns the routes of this part."""
    return [
        ActionRoute("/", overview.overview, Action.READ),
        ActionRoute("/queues", queue.queue, Action.READ, name="queue_by_name"),
        ActionRoute("/queues/{queue:name}", queue.queue, Action.READ),
        ActionRoute("/waiting", queue.waiting, Action.READ),
        ActionRoute("/tasks", task.task, Action.READ, name="task_by_id"),
        ActionRoute("/tasks/{id:name}", task.task, Action.READ),
        ActionRoute("/do/run", task.run, Action.RUN, method="POST"),
        ActionRoute("/do/cancel", task.cancel, Action.CANCEL, method="POST"),
        ActionRoute("/do/pause", queue.pause, Action.PAUSE, method="POST"),
        ActionRoute("/do/resume", queue.resume, Action.PAUSE, method="POST"),
        ActionRoute("/do/reschedule", task.reschedule, Action.RESCHEDULE, method="POST"),
        ActionRoute("/bulk/run", bulk.run, Action.RUN, method="POST", name="bulk_run"),
        ActionRoute("/bulk/cancel", bulk.cancel, Action.CANCEL, method="POST", name="bulk_cancel"),
        ActionRoute("/bulk/reschedule", bulk.reschedule, Action.RESCHEDULE, method="POST", name="bulk_reschedule"),
        ActionRoute("/bulk/{id:name}", bulk.bulk, Action.READ),
        ActionRoute("/bulk/{id:name}/start", bulk.start, Action.READ, method="POST", name="bulk_start"),
        ActionRoute("/bulk/{id:name}/stop", bulk.stop, Action.READ, method="POST", name="bulk_stop"),
        ActionRoute("/dead-letters", dead_letters.queues, Action.READ),
        ActionRoute("/dead-letters/{queue:name}", dead_letters.letters, Action.READ),
        ActionRoute("/do/replay", dead_letters.replay, Action.REPLAY, method="POST"),
        ActionRoute("/do/drop", dead_letters.drop, Action.DROP, method="POST"),
        ActionRoute("/periodic", periodic.entries, Action.READ),
        ActionRoute("/do/periodic/pause", periodic.pause, Action.CANCEL, method="POST", name="periodic_pause"),
        ActionRoute("/do/periodic/resume", periodic.resume, Action.RESCHEDULE, method="POST", name="periodic_resume"),
        ActionRoute("/do/periodic/run", periodic.run_now, Action.RUN, method="POST", name="periodic_run"),
        ActionRoute("/login", site.login, None),
        ActionRoute("/login", site.log_in, None, method="POST"),
        ActionRoute("/logout", site.leave, None, method="POST"),
        ActionRoute("/static/{path:path}", site.static, None),
    ]
