"""Calls that wait for the commit of a transaction of Django's, in a process with Django settings of its own."""

import subprocess
import sys

from tests.support import ROOT

PROGRAM = """
from queue import Empty

from celery import Celery
from django.conf import settings

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
import django
from django.db import transaction

django.setup()

from celery_ext import install

app = Celery("shop", broker="memory://", set_as_current=False)
app.conf.delayq_send_on_commit = True
install(app)


@app.task(name="shop.remind", bind=True, dead_letter_queue="failed")
def remind(self, number):
    pass


def sent():
    found = []
    with app.connection_for_write() as connection:
        while True:
            try:
                found.append(connection.default_channel._get("celery")["headers"]["id"])
            except Empty:
                return found


remind.delay(0)
assert len(sent()) == 1  # outside of a transaction, as ever
with transaction.atomic():
    results = [remind.delay(1), remind.apply_async((2,), task_id="two", countdown=5), app.send_task("shop.other")]
    assert sent() == []
    kept = remind.apply_async((3,), task_id="three", if_waiting="add")
    assert kept.if_waiting is None  # nobody knows yet
assert sent() == [*[result.id for result in results], "three"]
assert results[1].id == "two"
try:
    with transaction.atomic():
        remind.delay(3)
        remind.apply_async((4,), task_id="retry", retries=1)
        raise OSError
except OSError:
    assert sent() == ["retry"]
with transaction.atomic():
    with transaction.atomic():
        inner = remind.delay(5)
    assert sent() == []
assert sent() == [inner.id]
"""


def test_calls_in_a_transaction_are_sent_when_it_commits() -> None:
    """They wait for the outermost commit, with their ids; a rollback drops them, but for retries."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
