"""``advance`` runs what schedules ask for."""

import threading

from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.schedules import crontab

from celery_ext import install
from celery_ext.testing.delayed_tasks import DelayedTasks
from tests.integration.testing.conftest import Shop


def test_a_day_of_periodic_tasks(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """In a day an entry of six hours runs four times, in several steps, and a crontab when it comes."""
    shop.app.conf.beat_schedule = {
        "each six hours": {"task": "shop.remind", "schedule": 6 * 3600.0, "args": ("interval",)},
        "at seven": {"task": "shop.remind", "schedule": crontab(hour=7, minute=0), "args": ("seven",)},
    }
    install(shop.app, periodic=True)
    delayed_tasks.advance("23h")
    assert shop.done.count("interval") == 3
    delayed_tasks.advance("1h")
    assert (shop.done.count("interval"), shop.done.count("seven")) == (4, 1)


def test_without_periodic_nothing_runs(delayed_tasks: DelayedTasks, shop: Shop) -> None:
    """An app that keeps its beat has no periodic runs in a test."""
    shop.app.conf.beat_schedule = {"often": {"task": "shop.remind", "schedule": 1.0}}
    assert delayed_tasks.advance("1h") == []


def test_a_worker_of_a_test_arms_nothing() -> None:
    """The clock of the test says when periodic tasks run, not the worker that a test starts in its process."""
    app = Celery("shop", broker="memory://", set_as_current=False)
    install(app, periodic=True)
    with start_worker(app, pool="solo", perform_ping_check=False):
        assert "delayq-periodic" not in {thread.name for thread in threading.enumerate()}
    app.close()
