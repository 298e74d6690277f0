"""Recipes for workers whose tasks run long or are coroutines: their code runs as it stands in the examples."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import TaskRevokedError

from celery_ext import cancel
from celery_ext.demo.private_redis import PrivateRedis
from tests.support import ROOT
from tests.support.conditions import stays, until
from tests.support.pages import blocks

pytestmark = pytest.mark.wide

EXAMPLES = ROOT / "docs" / "examples"
#: The app of the coroutines, with tasks that tell where they run, and with Django's ORM.
MORE = """
import asyncio, os, threading
import django
from django.conf import settings

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["DATABASE"]}})
django.setup()
from django.db import connection, models
from tasks import app
from loop import in_loop

class Order(models.Model):
    title = models.CharField(max_length=20)
    class Meta:
        app_label = "more"

if not os.path.exists(os.environ["DATABASE"]):
    with connection.schema_editor() as schema:
        schema.create_model(Order)
    Order.objects.bulk_create([Order(title="order 1"), Order(title="order 2")])
    connection.close()
app.conf.result_backend = os.environ["RESULTS"]
shared_task = app.task

@app.task
@in_loop
async def place(count):
    await asyncio.sleep(0.1)
    return os.getpid(), threading.current_thread().name, id(asyncio.get_running_loop())

@app.task
@in_loop
async def nap():
    try:
        await asyncio.sleep(600)
    finally:
        open(os.environ["DATABASE"] + ".ended", "w").close()

"""


@contextmanager
def _worker(directory: Path, *options: str, **environment: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs a worker in a directory."""
    with (directory / "worker.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", *options],
            cwd=directory,
            env={**os.environ, **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: " ready." in (directory / "worker.log").read_text() or process.poll() is not None, what="ready")
        yield process
    finally:
        process.terminate()
        process.wait(60)


class _Server(BaseHTTPRequestHandler):
    """Answers with two bytes, and notes what it was asked."""

    asked: list[tuple[str, str, Any]]

    def do_GET(self) -> None:
        self._answer()

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, self.headers["Authorization"], body["metadata"]["annotations"]))
        self._answer()

    def _answer(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (its name there)
        pass


@contextmanager
def _server() -> Iterator[tuple[str, list[tuple[str, str, Any]]]]:
    """Runs an HTTP server; yields its URL, and what it is asked."""
    asked: list[tuple[str, str, Any]] = []
    with HTTPServer(("127.0.0.1", 0), type("Server", (_Server,), {"asked": asked})) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_coroutines_run_in_one_loop_a_process(redis_server: PrivateRedis, tmp_path: Path, pool: str) -> None:
    """Threads share a loop and its HTTP client, a process has its own; a cancel ends a coroutine at its await.

    Django's asynchronous ORM works in the loop.
    """
    for package in ("django", "httpx2"):
        pytest.importorskip(package)
    directory = shutil.copytree(EXAMPLES / "coroutines", tmp_path / "app")
    (directory / "httpx.py").write_text("from httpx2 import *\n")  # how its next version is called
    [of_django] = [code for code in blocks(ROOT / "docs/how-to/asyncio.md", "python") if "aget(" in code]
    (directory / "more.py").write_text(MORE + of_django)
    url = redis_server.url
    env = {"BROKER_URL": url.replace("redis:", "delayq:"), "RESULTS": url, "DATABASE": str(tmp_path / "db")}
    app = Celery(broker=env["BROKER_URL"], backend=url, set_as_current=False)
    with _server() as (address, _), _worker(directory, *f"-A more worker -P {pool} -c 4 -l INFO".split(), **env):
        sent = [app.send_task("more.place", (3,)) for _ in range(20)]
        places = {tuple(one.get(timeout=60)) for one in sent}
        assert len(places) == len({pid for pid, *_ in places})
        assert {name for _, name, _ in places} == {"loop"}
        titles = [app.send_task("more.title", (number,)).get(timeout=30) for number in (1, 2)]
        assert titles == ["order 1", "order 2"]
        assert [app.send_task("tasks.fetch", (address,)).get(timeout=30) for _ in range(3)] == [2, 2, 2]
        slept = app.send_task("more.nap")
        until(lambda: cancel(app, slept.id) == "asked_to_stop")
        with pytest.raises(TaskRevokedError):
            slept.get(timeout=30)
        until((tmp_path / "db.ended").exists)
    app.close()


#: An app with a step of the example.
STEPS = """
import os, time
from celery import Celery
import steps

app = Celery("shop", broker=os.environ["BROKER_URL"])
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1)
app.steps["worker"].add(getattr(steps, os.environ["STEP"]))

@app.task(name="report")
def report(seconds):
    time.sleep(seconds)
"""


def _shop(server: PrivateRedis, tmp_path: Path) -> tuple[Path, dict[str, str], Celery]:
    directory = shutil.copytree(EXAMPLES / "kubernetes", tmp_path / "app")
    (directory / "shop.py").write_text(STEPS)
    url = server.url.replace("redis:", "delayq:")
    return directory, {"BROKER_URL": url}, Celery(broker=url, set_as_current=False)


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_worker_of_a_job_ends_when_it_is_idle(redis_server: PrivateRedis, tmp_path: Path, pool: str) -> None:
    """It runs all that is ready, however long that takes, and ends with 0 some seconds later; what is far off waits."""
    directory, env, app = _shop(redis_server, tmp_path)
    for seconds in (0, 4, 0):
        app.send_task("report", (seconds,))
    app.send_task("report", (0,), countdown=3600)
    env |= {"STEP": "EndWhenIdle", "IDLE_SECONDS": "5"}
    begun = monotonic()
    with _worker(directory, *f"-A shop worker -P {pool} -c 1 -l INFO".split(), **env) as process:
        assert process.wait(60) == 0
    assert monotonic() - begun > 6
    client = redis_server.client()
    assert (client.llen("celery"), client.hlen("unacked"), client.zcard("delayq:{celery}:due")) == (0, 0, 1)
    app.close()


def test_a_busy_pod_is_dearer_than_an_idle_one(redis_server: PrivateRedis, tmp_path: Path) -> None:
    """It says so once when tasks come, not with each, and once when they have ended for a while."""
    directory, env, app = _shop(redis_server, tmp_path)
    (account := tmp_path / "account").mkdir()
    (account / "namespace").write_text("shop")
    (account / "token").write_text("secret")
    with _server() as (address, asked):
        env |= {"STEP": "DeletionCost", "CALM_SECONDS": "3", "SERVICE_ACCOUNT": str(account), "HOSTNAME": "worker-1"}
        with _worker(
            directory,
            *["-A", "shop", "worker", "-P", "threads", "-c", "1", "-l", "INFO"],
            **env,
            KUBERNETES_API=address,
        ):
            until(lambda: [told["controller.kubernetes.io/pod-deletion-cost"] for *_, told in asked][-1:] == ["0"])
            del asked[:]
            for _ in range(3):
                app.send_task("report", (1,))
            until(lambda: len(asked) == 2)
            stays(lambda: len(asked) == 2, 1.5)
    assert {(path, token) for path, token, _ in asked} == {("/api/v1/namespaces/shop/pods/worker-1", "Bearer secret")}
    assert [[*told.values()] for *_, told in asked] == [["100"], ["0"]]
    app.close()
