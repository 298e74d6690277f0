"""The example with Django, as the how-to says: transactions, the async view, the admin's link, and beat's schedules."""

import json
import sqlite3
import urllib.parse
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery

import celery_ext
from celery_ext.demo.private_redis import PrivateRedis
from tests.integration.project.example import Example
from tests.support.conditions import until, until_equal
from tests.support.serve.running import ask
from tests.support.servers.cluster_node import free_port
from tests.support.workers.harness import TRANSPORT

LOGIN = """
from django.contrib.auth.models import User
from django.test import Client
browser = Client()
browser.force_login(User.objects.create_user("ada", is_staff=True))
print(browser.cookies["sessionid"].value)
"""
#: An order whose reminder was never sent.
LOST = "from orders.models import Order; Order.objects.create(customer='Eve')"
#: What django-celery-beat keeps of the options of a periodic task.
KEPT = "from django_celery_beat.schedulers import ModelEntry; print(*ModelEntry._unpack_options(countdown=3))"


class Site:
    """The site, as a browser sees it."""

    def __init__(self, example: Example, server: PrivateRedis, url: str) -> None:
        self.example = example
        self.url = url
        self.app = Celery("looking", broker=server.url, set_as_current=False)
        self.app.conf.broker_transport = TRANSPORT

    def ask(self, path: str, cookie: str = "", **form: Any) -> tuple[int, str]:
        """Asks with a cookie, or sends a form. Returns status and text."""
        if cookie:
            answer = ask(self.url, path, headers={"Cookie": f"sessionid={cookie}"})
        else:
            form_type = {"Content-Type": "application/x-www-form-urlencoded"}
            answer = ask(self.url, path, "POST", form_type, urllib.parse.urlencode(form).encode())
        return answer.status, answer.text

    def waiting(self) -> dict[str, float]:
        """Returns the ids of the tasks that wait, and when they are due."""
        return {task.id: task.due.timestamp() for task in celery_ext.select(self.app)}

    def reminded(self) -> list[bool]:
        """Returns of each order whether its customer was reminded."""
        with closing(sqlite3.connect(self.example.directory / "db.sqlite3", timeout=20)) as database:
            return [bool(row[0]) for row in database.execute("SELECT is_reminded FROM orders_order ORDER BY id")]

    def shell(self, code: str) -> str:
        """Runs code in Django's shell. Returns what it printed."""
        return self.example.run("manage.py", "shell", "-v", "0", "-c", code).strip()


@pytest.fixture
def site(tmp_path: Path, redis_server: PrivateRedis, client: redis.Redis) -> Iterator[Site]:
    """The site without a worker."""
    example = Example("django", tmp_path, {"SHOP_REDIS": f"redis://127.0.0.1:{redis_server.port}", "SHOP_SWEEP_S": "1"})
    example.run("manage.py", "migrate", "-v", "0")
    address = f"127.0.0.1:{free_port()}"
    with example.running("manage.py", "runserver", "--noreload", address, ready="Quit the server"):
        yield Site(example, redis_server, f"http://{address}")


def test_tasks_go_with_their_transactions(site: Site) -> None:
    """A task is sent when its order is committed, never without; it is put off from an async view, and cancelled."""
    status, answer = site.ask("/orders/", customer="Ann", wait=600)
    assert (status, json.loads(answer)) == (200, {"order": 1, "reminder": "remind-1"})
    assert list(site.waiting()) == ["remind-1"]
    status, _ = site.ask("/orders/", customer="")
    assert status == 500
    assert list(site.waiting()) == ["remind-1"]
    before = site.waiting()["remind-1"]
    status, answer = site.ask("/orders/1/later/")
    assert (status, json.loads(answer)) == (200, {"order": 1, "outcome": "rescheduled"})
    assert site.waiting()["remind-1"] > before + 2000
    assert site.ask("/orders/1/pay/")[0] == 200
    assert site.waiting() == {}
    assert site.reminded() == [False]


def test_the_admin_leads_to_the_page(site: Site) -> None:
    """The link is on the pages of the admin, and the page behind it shows the queue, for the staff only."""
    site.ask("/orders/", customer="Ann")
    cookie = site.shell(LOGIN)
    status, page = site.ask("/admin/", cookie)
    assert status == 200
    assert '<a href="/delayq/">Delayed tasks</a>' in page
    status, page = site.ask("/delayq/", cookie)
    assert status == 200
    assert "celery" in page
    assert "Delayed" in page
    assert "Delayed tasks" not in site.ask("/delayq/", "nobody")[1]


def test_workers_and_beat_run_what_is_due(site: Site) -> None:
    """The reminder runs in a worker, and the periodic task of django-celery-beat sends others with a countdown."""
    celery = ("-m", "celery", "-A", "shop")
    with site.example.running(*celery, "worker", "-c", "1", "-l", "INFO", ready=" ready.") as log:
        site.ask("/orders/", customer="Ann", wait=1)
        until(lambda: site.reminded() == [True], what="the reminder has run")
        site.ask("/orders/", customer="Bob", wait=7200)
        site.shell(LOST)
        with site.example.running(*celery, "beat", "-l", "INFO", ready="beat: Starting"):
            until(lambda: site.reminded() == [True, False, True], 90, what="the periodic task has sent the reminder")
        assert "remind_lost" in log.read_text()
        # A sweep that met the reminder on its way to the worker has sent it once more, and that finds nothing to do.
        until_equal(lambda: list(site.waiting()), ["remind-2"], what="only the far reminder waits")
    assert list(site.waiting()) == ["remind-2"]


def test_a_periodic_task_keeps_no_countdown(site: Site) -> None:
    """django-celery-beat drops this option, so the how-to lets the periodic task send others."""
    assert site.shell(KEPT).split() == ["queue", "exchange", "routing_key", "priority", "headers", "expire_seconds"]
