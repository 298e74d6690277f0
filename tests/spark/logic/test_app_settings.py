"""What is taken from an app: once, on the driver, however it is configured, and without its passwords."""

import os
import subprocess
import sys
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from kombu import Queue
from kombu.common import Broadcast

from celery_ext.delays.levels import DelayLevels
from celery_ext.spark.app_settings import AppSettings
from celery_ext.spark.errors import InvalidSparkOption
from celery_ext.spark.write.templates import Templates
from tests.support.spark import apps
from tests.support.spark.making import TASK, batch_of, made_of, sole

SECRET = "tops3cret"


def named(app: Celery) -> str:
    return f"{apps.__name__}:{app.main}"


def test_an_app_that_has_not_loaded_its_settings_gives_them() -> None:
    """An app configured by an object, as most are, loads it when asked; all its settings count then."""
    app = Celery("lazy", set_as_current=False)
    app.config_from_object(SimpleNamespace(task_default_queue="main", delayq_levels="7m", task_serializer="yaml"))
    apps.lazy = app  # type: ignore[attr-defined]
    found = AppSettings.of(f"{apps.__name__}:lazy")
    assert found.conf["task_default_queue"] == "main"
    assert found.conf["task_serializer"] == "yaml"
    assert found.levels == "7m"


def test_an_app_is_found_as_by_celery(tmp_path: Path) -> None:
    """The option takes what ``celery -A`` takes: a module with an app in it, with or without the app's name."""
    (tmp_path / "shop.py").write_text(
        "from celery import Celery\n"
        "app = Celery('shop', broker='redis://broker.example:1/2')\n"
        "app.conf.task_routes = {'a': 'q'}\n"
        "@app.task(name='a', time_limit=5)\n"
        "def a(): pass\n"
    )
    code = (
        "from celery_ext.spark.app_settings import AppSettings\n"
        "for name in ('shop', 'shop:app', 'shop.app'):\n"
        "    found = AppSettings.of(name)\n"
        "    print(found.broker_url, found.conf['task_routes'], found.tasks['a']['time_limit'])\n"
    )
    path = os.pathsep.join((str(tmp_path), *sys.path))
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == ["redis://broker.example:1/2 {'a': 'q'} 5"] * 3, done.stderr


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("no.such.module", "celery_app='no.such.module' cannot be loaded: ModuleNotFoundError"),
        (f"{apps.__name__}:none", "cannot be loaded: ModuleNotFoundError"),
        (f"{apps.__name__}:make", "is not a Celery app"),
    ],
)
def test_an_app_that_is_not_there_is_told(name: str, told: str) -> None:
    """The error says what was looked for, and why it was not found."""
    with pytest.raises(InvalidSparkOption, match=told):
        AppSettings.of(name)


def test_settings_that_make_no_messages_of_ours_are_refused() -> None:
    """Messages of protocol 1, a default queue that is a broadcast, and a wrong table of levels end a job at once."""
    with pytest.raises(InvalidSparkOption, match="task_protocol = 1"):
        AppSettings.of(named(apps.make("old", task_protocol=1)))
    to_all = apps.make("to_all", task_queues=[Broadcast("all")], task_default_queue="all")
    with pytest.raises(InvalidSparkOption, match="the default queue all is a broadcast"):
        AppSettings.of(named(to_all))
    with pytest.raises(InvalidSparkOption, match="level 2"):
        AppSettings.of(named(apps.make("levels", delayq_levels="1s 2")))


def test_levels_may_be_a_table() -> None:
    """The setting delayq_levels may be text or a table, which is handed on as text."""
    assert AppSettings.of(named(apps.make("levels", delayq_levels=DelayLevels.parse("1s 2s")))).levels == "1s 2s"
    assert AppSettings.of(named(apps.make("levels"))).levels is None


def test_a_setting_that_cannot_be_pickled_is_named() -> None:
    """A route that executors cannot get is refused by name."""
    app = apps.make("unpicklable", task_routes=({"a": Lock()},))
    pytest.importorskip("pyspark")
    with pytest.raises(InvalidSparkOption, match="the setting task_routes cannot be handed to executors"):
        AppSettings.of(named(app))


@pytest.mark.parametrize(
    ("conf", "url"),
    [
        ({}, "amqp"),
        ({"broker_url": "redis://a/0"}, "redis://a/0"),
        ({"broker_url": "redis://a/0", "broker_write_url": "redis://b/0"}, "redis://b/0"),
    ],
)
def test_the_broker_is_the_one_for_writing(conf: dict[str, Any], url: str) -> None:
    """An app with brokers of their own for reading and writing is written to at the one for writing."""
    assert str(AppSettings.of(named(apps.make("writing", **conf))).broker_url or "amqp").startswith(url)


@pytest.mark.filterwarnings(r"ignore:\s*The .* task attribute is deprecated")  # the attribute is the option
def test_options_of_celerys_own_tasks_are_left_out() -> None:
    """Of an app's tasks, those that Celery brings are of no use to a job."""
    app = apps.make("tasks")
    apps.task(app, priority=4)
    found = AppSettings.of(named(app)).tasks
    assert {"celery.chord", TASK} <= app.tasks.keys()
    assert not [name for name in found if name.startswith("celery.")]
    assert found[TASK]["priority"] == 4


def test_jobs_in_one_process_do_not_share_queues() -> None:
    """Python workers of Spark live on from job to job, each of which has the bindings of its own app alone."""
    settings = [
        apps.settings_of(
            apps.make(name, task_queues=[Queue(name, apps.TOPIC, routing_key="#")], task_default_queue=name)
        )
        for name in ("one", "two")
    ]
    for name, each in zip(("one", "two", "one"), (*settings, settings[0]), strict=True):
        assert sole(made_of(batch_of(id=[1]), each))[0] == name


def test_the_app_of_a_job_is_not_the_current_one() -> None:
    """Making messages leaves the app alone that tasks in this process belong to."""
    from celery import current_app

    before = current_app._get_current_object()
    Templates(AppSettings())
    assert current_app._get_current_object() is before
