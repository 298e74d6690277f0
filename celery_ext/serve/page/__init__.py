"""The page: what comes due when, queue by queue and task by task."""

from functools import partial

from celery_ext.features import modules_of
from celery_ext.periodic import control
from celery_ext.serve import changes
from celery_ext.serve.access.identity import Action
from celery_ext.serve.page import bulk, overview, periodic, queue, running, site, task
from celery_ext.serve.page.site import explain, is_wanted
from celery_ext.serve.routes import ActionRoute, change_route

__all__ = ["explain", "is_wanted", "routes"]


def routes() -> list[ActionRoute]:
    """Returns the routes of this part: its own, and those of features, in their modules ``pages``."""
    actions = changes.BULK_ACTIONS.items()
    return [
        ActionRoute("/", overview.overview, Action.READ),
        ActionRoute("/queues", queue.queue, Action.READ, name="queue_by_name"),
        ActionRoute("/queues/{queue:name}", queue.queue, Action.READ),
        ActionRoute("/waiting", queue.waiting, Action.READ),
        ActionRoute("/tasks", task.task, Action.READ, name="task_by_id"),
        ActionRoute("/tasks/{id:name}", task.task, Action.READ),
        *(change_route(f"/do/{action}", partial(task.change, name), action) for name, action in actions),
        change_route("/do/pause", partial(queue.change, changes.pause_queue), Action.PAUSE),
        change_route("/do/resume", partial(queue.change, changes.resume_queue), Action.PAUSE),
        *(change_route(f"/bulk/{action}", partial(bulk.count, name), action) for name, action in actions),
        ActionRoute("/bulk/{id:name}", bulk.bulk, Action.READ),
        change_route("/bulk/{id:name}/start", bulk.start, Action.READ),
        ActionRoute("/bulk/{id:name}/start", bulk.bulk, Action.READ),  # as which a page asks that has refused a number
        change_route("/bulk/{id:name}/stop", bulk.stop, Action.READ),
        *(route for module in modules_of("pages") for route in module.ROUTES),
        ActionRoute("/running", running.running, Action.READ),
        ActionRoute("/periodic", periodic.entries, Action.READ),
        change_route("/do/periodic/pause", partial(periodic.change, control.pause), Action.CANCEL),
        change_route("/do/periodic/resume", partial(periodic.change, control.resume), Action.RESCHEDULE),
        change_route("/do/periodic/run", partial(periodic.change, control.run_now), Action.RUN),
        ActionRoute("/login", site.login, None),
        ActionRoute("/login", site.log_in, None, method="POST"),
        ActionRoute("/logout", site.leave, None, method="POST"),
        ActionRoute("/static/{path:path}", site.static, None),
    ]
