"""The backend for ``django.tasks``, with Django 6 in an interpreter that is new enough for it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from tests.support import ROOT
from tests.support.conditions import until
from tests.support.workers.harness import APPS, TRANSPORT

#: The environment that `make test-all` makes where a newer Python is found, while its own has an older Django.
BESIDE = ROOT / ".venv-django" / "bin" / "python"
#: A program that runs each line of Python that it reads, and prints ``out``.
SHELL = """
import asyncio, json, sys
from datetime import timedelta
from django.core.checks import run_checks
from django.tasks import task_backends
from django.tasks.exceptions import *
from django.utils import timezone
import celery_ext
from celery_ext.django_tasks import priority_of
from django_tasks_app import *
backend = task_backends["default"]
def shown(result):
    fields = "id", "status", "args", "kwargs", "worker_ids", "is_finished"
    return {name: getattr(result, name) for name in fields} | {"task": result.task.module_path}
for line in sys.stdin:
    out = None
    try:
        exec(line)
    except Exception as error:
        out = [type(error).__name__, str(error)]
    print(json.dumps(out, default=str), flush=True)
"""


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter with Django 6."""
    if find_spec("django") is not None and find_spec("django.tasks") is not None:
        return sys.executable
    if not BESIDE.exists():
        pytest.skip("django.tasks is of Django 6, which needs Python 3.12: `make test-all` looks for one")
    return str(BESIDE)


class Site:
    """The app, as a process of the site has it."""

    def __init__(self, python: str, server: PrivateRedis, **conf: Any) -> None:
        server.client().flushall()
        url = {"broker_url": server.url, "broker_transport": TRANSPORT, "result_backend": server.url}
        conf = {**url, "result_extended": True, **conf}
        self._environment = {**os.environ, "APP_CONF": json.dumps(conf), "PYTHONPATH": f"{APPS}:{ROOT}"}
        self._python, self._worker = python, None
        self._shell: Any = subprocess.Popen(
            [python, "-c", SHELL],
            cwd=APPS,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, line: str) -> Any:
        """Runs a line of Python. Returns what it leaves in ``out``, or the error."""
        self._shell.stdin.write(line + "\n")
        self._shell.stdin.flush()
        found = self._shell.stdout.readline()
        assert found, "the program has ended"
        return json.loads(found)

    def work(self) -> None:
        """Starts a worker of both queues."""
        options = ["-P", "solo", "-Q", "celery,mails", "--without-mingle", "--without-gossip"]
        command = [self._python, "-m", "celery", "-A", "django_tasks_app", "worker", *options]
        self._worker: Any = subprocess.Popen(command, cwd=APPS, env=self._environment)

    def close(self) -> None:
        """Ends both processes."""
        self._shell.communicate(timeout=60)
        if self._worker is not None:
            self._worker.terminate()
            self._worker.wait(60)


@pytest.fixture
def site(python: str, redis_server: PrivateRedis) -> Iterator[Site]:
    """A site with a result backend."""
    site = Site(python, redis_server)
    yield site
    site.close()


def test_tasks_run_in_workers_and_have_results(site: Site) -> None:
    """Plain and async tasks, such with a context, and those for later run; results say what became of them."""
    sent = site.do("r = [add.enqueue(1, y=2), send.enqueue('ada'), fail.enqueue('why')]; out = [*map(shown, r)]")
    assert [(each["status"], each["task"]) for each in sent] == [
        ("READY", f"django_tasks_app.{name}") for name in ("add", "send", "fail")
    ]
    assert site.do("out = SAID") == [["task_enqueued", "READY"]] * 3
    before = site.do("r[0].refresh(); out = [r[0].status, r[0].is_finished, r[0].args, r[0].kwargs]")
    assert before == ["READY", False, [1], {"y": 2}]
    at_once = "timezone.now() + timedelta(seconds=1)"
    site.do(f"r.append(add.using(run_after={at_once}).enqueue(5))")
    site.work()
    until(lambda: site.do("[x.refresh() for x in r]; out = all(x.is_finished for x in r)"), 60)
    ends = site.do("out = [shown(add.get_result(r[0].id)), r[0].return_value, r[1].return_value, r[3].return_value]")
    assert (ends[0]["args"], ends[0]["kwargs"], len(ends[0]["worker_ids"])) == ([1], {"y": 2}, 1)
    assert ends[1:] == [3, ["ada", "sent"], 6]
    assert site.do("out = [r[0].finished_at <= timezone.now(), r[0].errors]") == [True, []]
    failed = site.do("[e] = r[2].errors; out = [r[2].status, e.exception_class.__name__, e.traceback]")
    assert failed[:2] == ["FAILED", "LookupError"]
    assert "('why', 1, '" in failed[2]
    assert "RUNNING" in failed[2]
    assert site.do("out = add.get_result(r[2].id)")[0] == "TaskResultMismatch"


def test_a_task_for_later_waits_in_the_broker(site: Site, redis_server: PrivateRedis) -> None:
    """It is found, moved and cancelled by the id of its result, whose first state may expire before it runs."""
    site.do("r = send.using(run_after=timezone.now() + timedelta(days=9)).enqueue('ada')")
    found = site.do("w = celery_ext.get(app, r.id); out = [w.queue, w.name, w.args, (w.due - timezone.now()).days]")
    assert found == ["mails", "django_tasks_app.send", ["ada"], 8]
    redis_server.client().delete(*redis_server.client().keys("celery-task-meta-*"))
    assert site.do("out = shown(backend.get_result(r.id))")["args"] == ["ada"]
    assert site.do("out = celery_ext.cancel(app, r.id)")
    assert site.do("r.refresh(); out = [r.status, r.errors[0].exception_class.__name__]") == [
        "FAILED",
        "TaskRevokedError",
    ]
    assert site.do("out = backend.get_result('unknown')") == ["TaskResultDoesNotExist", "unknown"]


def test_queue_and_priority_are_those_of_the_task(site: Site, redis_server: PrivateRedis) -> None:
    """Django's default queue and priority are the app's own; others are named, 100 running first and -100 last."""
    site.do("add.enqueue(1); add.using(priority=-1).enqueue(1); send.enqueue('ada')")
    client = redis_server.client()
    assert [client.llen(key) for key in ("celery", "mails\x06\x163")] == [2, 1]
    wanted = {0: [0, 0, None, 1, 5, 9], 4: [0, 3, None, 5, 7, 9]}
    for usual, priorities in wanted.items():
        assert site.do(f"out = [priority_of(p, {usual}) for p in (100, 1, 0, -1, -50, -100)]") == priorities


def test_an_app_without_results_keeps_none(python: str, redis_server: PrivateRedis) -> None:
    """Then there is nothing in Redis but the message; `manage.py check` says what results would need."""
    site = Site(python, redis_server, result_backend=None)
    assert site.do("r = add.enqueue(1); out = backend.supports_get_result") is False
    assert site.do("out = r.refresh()")[0] == "NotImplementedError"
    assert not redis_server.client().keys("celery-task-meta-*")
    assert site.do("out = [c.id for c in backend.check()]") == []
    site.close()
    site = Site(python, redis_server, result_extended=False)
    assert site.do("out = [c.id for c in run_checks()]") == ["delayq.I100"]
    assert site.do("backend.options['ap'] = 1; out = [c.id for c in backend.check()]") == ["delayq.E100", "delayq.I100"]
    site.close()
