"""The page: what comes due when, queue by queue and task by task."""

from functools import partial

from celery_ext.periodic import control
from celery_ext.serve import changes
from celery_ext.serve.access.identity import Action
from celery_ext.serve.page import bulk, dead_letters, overview, periodic, queue, running, site, task
from celery_ext.serve.page.site import explain, is_wanted
from celery_ext.serve.routes import ActionRoute, Handler

__all__ = ["explain", "is_wanted", "routes"]


def _change(path: str, handler: Handler, action: Action) -> ActionRoute:
    return ActionRoute(path, handler, action, method="POST", name=path)


def routes() -> list[ActionRoute]:
    """Returns the routes of this part."""
    actions = changes.BULK_ACTIONS.items()
    return [
        ActionRoute("/", overview.overview, Action.READ),
        ActionRoute("/queues", queue.queue, Action.READ, name="queue_by_name"),
        ActionRoute("/queues/{queue:name}", queue.queue, Action.READ),
        ActionRoute("/waiting", queue.waiting, Action.READ),
        ActionRoute("/tasks", task.task, Action.READ, name="task_by_id"),
        ActionRoute("/tasks/{id:name}", task.task, Action.READ),
        *(_change(f"/do/{action}", partial(task.change, name), action) for name, action in actions),
        _change("/do/pause", partial(queue.change, changes.pause_queue), Action.PAUSE),
        _change("/do/resume", partial(queue.change, changes.resume_queue), Action.PAUSE),
        *(_change(f"/bulk/{action}", partial(bulk.count, name), action) for name, action in actions),
        ActionRoute("/bulk/{id:name}", bulk.bulk, Action.READ),
        _change("/bulk/{id:name}/start", bulk.start, Action.READ),
        ActionRoute("/bulk/{id:name}/start", bulk.bulk, Action.READ),  # as which a page asks that has refused a number
        _change("/bulk/{id:name}/stop", bulk.stop, Action.READ),
        ActionRoute("/dead-letters", dead_letters.queues, Action.READ),
        ActionRoute("/dead-letters/{queue:name}", dead_letters.letters, Action.READ),
        _change("/do/replay", partial(dead_letters.change, Action.REPLAY), Action.REPLAY),
        _change("/do/drop", partial(dead_letters.change, Action.DROP), Action.DROP),
        ActionRoute("/running", running.running, Action.READ),
        ActionRoute("/periodic", periodic.entries, Action.READ),
        _change("/do/periodic/pause", partial(periodic.change, control.pause), Action.CANCEL),
        _change("/do/periodic/resume", partial(periodic.change, control.resume), Action.RESCHEDULE),
        _change("/do/periodic/run", partial(periodic.change, control.run_now), Action.RUN),
        ActionRoute("/login", site.login, None),
        ActionRoute("/login", site.log_in, None, method="POST"),
        ActionRoute("/logout", site.leave, None, method="POST"),
        ActionRoute("/static/{path:path}", site.static, None),
    ]
