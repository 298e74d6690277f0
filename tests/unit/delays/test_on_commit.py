"""Calls that wait for the commit of a transaction of Django's, in a process with Django settings of its own."""

import subprocess
import sys

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.wide

PROGRAM = """
from queue import Empty

from celery import Celery, group
from celery.exceptions import Ignore
from django.conf import settings
from kombu.exceptions import EncodeError

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
import django
from django.db import transaction

django.setup()

from celery_ext import install

app = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
app.conf.delayq_send_on_commit = True
install(app)


@app.task(name="shop.remind", bind=True, dead_letter_queue="failed")
def remind(self, number):
    pass


@app.task(bind=True, ignore_result=True)
@transaction.atomic
def prepare(self, *numbers):
    remind.delay(0)  # of the transaction
    return self.replace(group(remind.s(number).set(task_id=str(number)) for number in numbers))


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
with transaction.atomic():
    calls = remind.delay(6), remind.apply_async((7,), ignore_result=True), prepare.delay(8)
assert [result.ignored for result in calls] == [False, True, True]
sent()
prepare.push_request(id="prepare", called_directly=False)
try:
    prepare.run(9, 10)
except Ignore:
    replacements = sent()
assert replacements == ["9", "10"]
remind.push_request(id="after", called_directly=False)
with transaction.atomic():
    remind.delay(11)
    assert sent() == []
sent()
with transaction.atomic():
    try:
        remind.delay(object())
    except EncodeError:
        last = remind.delay(12)
assert sent() == [last.id]
"""


def test_calls_in_a_transaction_are_sent_when_it_commits() -> None:
    """They wait for the outermost commit, with their ids; a rollback drops them, but for retries and replacements.

    One that cannot be written is an error at once, and keeps no other from being sent.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
