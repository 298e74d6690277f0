"""A Celery app whose tasks are those of ``django.tasks``, on the broker that the environment names. Needs Django 6."""

import json
import os

import django
from celery import Celery
from django.conf import settings

OPTIONS = {"app": "django_tasks_app:app", "task": {"acks_late": True}}
settings.configure(
    USE_TZ=True,
    TIME_ZONE="Europe/Rome",
    TASKS={"default": {"BACKEND": "celery_ext.django_tasks.CeleryBackend", "QUEUES": [], "OPTIONS": OPTIONS}},
)
django.setup()

from django.tasks import signals, task  # noqa: E402  # needs the settings
from django.tasks.base import TaskContext  # noqa: E402

app = Celery("django_tasks_app")
app.conf.update(json.loads(os.environ["APP_CONF"]))
#: What the signals have said in this process: name, and status of the result.
SAID: list[tuple[str, str]] = []


@task
def add(x: int, y: int = 1) -> int:
    """Adds."""
    return x + y


@task(queue_name="mails", priority=-50)
async def send(name: str) -> list[str]:
    """Sends, in a coroutine."""
    return [name, "sent"]


@task(takes_context=True)
def fail(context: TaskContext, text: str) -> None:
    """Fails with what it knows of itself."""
    result = context.task_result
    raise LookupError(text, context.attempt, result.id, result.status, result.args)


for name in ("task_enqueued", "task_started", "task_finished"):
    signal = getattr(signals, name)
    signal.connect(lambda task_result, kind=name, **_: SAID.append((kind, str(task_result.status))), weak=False)
