"""Apps as the option ``celery_app`` finds them."""

import pickle
from typing import Any

from celery import Celery
from kombu import Exchange, Queue

from celery_ext.spark.app_settings import AppSettings

TOPIC = Exchange("news", type="topic")
#: Queues of one topic exchange. The first one also gets the messages for the other.
TWO_OF_A_TOPIC = [Queue("all", TOPIC, routing_key="#"), Queue("both", TOPIC, routing_key="both")]

#: A route to a topic exchange for a routing key that no queue wants.
TO_NOBODY = {"exchange": "events", "routing_key": "b.c", "exchange_type": "topic"}


def make(name: str, **conf: Any) -> Celery:
    """Makes an app with some tasks, and puts it where ``settings_of`` finds it."""
    app = Celery(name, set_as_current=False)
    app.conf.update(conf)
    globals()[name] = app
    return app


def task(app: Celery, name: str = "logic.record", **options: Any) -> Any:
    """Gives an app a task."""

    def run(*args: Any, **kwargs: Any) -> None:
        """Takes anything."""

    return app.task(name=name, shared=False, **options)(run)


def settings_of(app: Celery) -> AppSettings:
    """Returns the settings of an app as executors get them."""
    found = AppSettings.of(f"{__name__}:{app.main}").without_broker()
    restored: AppSettings = pickle.loads(pickle.dumps(found))
    return restored


def route_by_name(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **others: Any) -> Any:
    """Routes tasks by their names."""
    return {"queue": "by_function", "priority": 7} if name.startswith("logic.") else None
