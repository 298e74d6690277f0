"""The apps in docs/examples, as their owners run them."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from tests.support import ROOT
from tests.support.conditions import until, until_equal
from tests.support.jvm.redisson import QUICK, why_not
from tests.support.workers.harness import TRANSPORT

EXAMPLES = ROOT / "docs" / "examples"
PLAIN_APP, PAYMENTS, REDISSON = EXAMPLES / "plain_app", EXAMPLES / "payment_notification", EXAMPLES / "redisson"
SETTING = f'broker_transport = "{TRANSPORT}"\n'
DELAY_S = 6.0
REMINDED = "reminded Ann "


class Shop:
    """A copy of an app on a server."""

    def __init__(self, directory: Path, server: PrivateRedis, example: Path = PLAIN_APP) -> None:
        self.directory = Path(shutil.copytree(example, directory / "shop"))
        self.redis = f"redis://127.0.0.1:{server.port}"
        self._environment = {**os.environ, "SHOP_REDIS": self.redis}

    def change_setting(self) -> None:
        """Changes what docs/examples/plain_app/README.md says."""
        with (self.directory / "celeryconfig.py").open("a", encoding="utf-8") as settings:
            settings.write(SETTING)

    def start(self, *command: str, log: Path, program: str = sys.executable) -> "subprocess.Popen[str]":
        """Starts ``python``, or another program, in the app's directory."""
        with log.open("w") as output:
            return subprocess.Popen(
                [program, *command],
                cwd=self.directory,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )

    @contextmanager
    def worker(self) -> Iterator[None]:
        """Runs a worker with its pool at Celery's default."""
        log = self.directory / "worker.log"
        process = self.start("-m", "celery", "-A", "tasks", "worker", "-c", "1", "-l", "INFO", log=log)
        try:
            until(lambda: " ready." in log.read_text() or process.poll() is not None, what="worker ready")
            assert process.poll() is None, log.read_text()
            yield
        finally:
            process.terminate()
            process.wait(60)

    def leave_cart(self) -> tuple["subprocess.Popen[str]", Path]:
        """Publishes a delayed task from another process, which prints its result."""
        log = self.directory / "producer.log"
        return self.start("leave_cart.py", "Ann", str(DELAY_S), log=log), log


@pytest.fixture
def shop(tmp_path: Path, redis_server: PrivateRedis) -> Shop:
    """The unmodified app."""
    return Shop(tmp_path, redis_server)


def reminded_after_s(producer: "subprocess.Popen[str]", log: Path) -> float:
    """Waits for what the producer prints. Returns how long after the publish the task ran."""
    assert producer.wait(60) == 0, log.read_text()
    printed = log.read_text()
    assert REMINDED in printed
    return float(printed.partition(REMINDED)[2].split()[0])


def test_the_unmodified_app_keeps_its_delayed_task_in_the_worker(shop: Shop, client: redis.Redis) -> None:
    """On stock Redis the example works, its delayed task is held by the worker, and nothing of ours is in Redis."""
    with shop.worker():
        producer, log = shop.leave_cart()
        until(lambda: client.hlen("unacked"), what="the worker holds the task")
        assert client.keys("delayq:*") == []
        assert reminded_after_s(producer, log) >= DELAY_S - 0.01


def test_with_one_setting_the_delayed_task_waits_in_redis(shop: Shop, client: redis.Redis) -> None:
    """With the one setting of its README, the example's delayed task waits in Redis and runs, not before its time."""
    shop.change_setting()
    with shop.worker():
        producer, log = shop.leave_cart()

        def where() -> list[int]:
            with client.pipeline() as pipe:  # in one step: it may be due at any moment
                pipe.zcard("delayq:{celery}:due")
                pipe.hlen("unacked")
                return list(pipe.execute())

        until_equal(where, [1, 0], what="the task waits in Redis")
        assert reminded_after_s(producer, log) >= DELAY_S - 0.01
    assert client.zcard("delayq:{celery}:due") == 0
    assert client.hlen("delayq:{celery}:bodies") == 0


def test_the_payment_notifications_go_as_their_readme_says(tmp_path: Path) -> None:
    """Five thousand times faster, one notification is accepted, one cancelled and one given up, and nothing is left."""
    directory = shutil.copytree(PAYMENTS, tmp_path / "payments")
    done = subprocess.run(
        [sys.executable, "run.py", "--speed-up", "5000"],  # its retry that is cancelled waits for 4 s then
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stdout
    assert [line.split() for line in printed.splitlines() if line.startswith("P-")] == [
        ["P-1", "4", "SUCCESS"],
        ["P-2", "6", "REVOKED"],
        ["P-3", "8", "FAILURE"],
    ]
    assert "'undelivered' has P-3: delay chain exhausted, NotAccepted" in printed
    [port] = re.findall(r"private Redis on port (\d+)", printed)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(port))), "the Redis of the example still runs"


class SharedShop(Shop):
    """A copy of the app that shares queues with a JVM, and of its Java side."""

    def __init__(self, directory: Path, server: PrivateRedis) -> None:
        super().__init__(directory, server, REDISSON)
        self._log = self.directory / "java.log"
        told = ""
        for how in (("--offline",), ()):  # the network only if it must be
            built = self.start("-q", "-B", *how, "package", log=self._log, program="mvn")
            if built.wait(400) == 0:
                return
            told = self._log.read_text()
        assert "COMPILATION ERROR" not in told, told
        pytest.skip(f"Maven cannot build it: {told.strip().partition(chr(10))[0]}")

    def java(self, *command: str) -> str:
        """Runs the command of its README. Returns what it printed."""
        java = ["java", *QUICK, "-cp", f"target/classes{os.pathsep}target/lib/*", "shop.Main", self.redis, *command]
        with self._log.open("a") as log:
            done = subprocess.run(
                java, cwd=self.directory, stdout=subprocess.PIPE, stderr=log, text=True, timeout=120, check=False
            )
        assert done.returncode == 0, self._log.read_text()
        return done.stdout.strip()

    def celery(self, *command: str) -> str:
        """Runs ``celery -A tasks``. Returns what it printed."""
        log = self.directory / "celery.log"
        assert self.start("-m", "celery", "-A", "tasks", *command, log=log).wait(60) == 0, log.read_text()
        return log.read_text()


@pytest.mark.timeout(900)  # Maven and eight programs of a JVM, on a busy machine
@pytest.mark.xdist_group("jvm")
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_celery_and_a_jvm_share_queues_as_the_example_says(
    tmp_path: Path, redis_server: PrivateRedis, client: redis.Redis
) -> None:
    """Celery runs and cancels what Java offers, and Java removes that too, and takes and answers what Celery delays."""
    shop = SharedShop(tmp_path, redis_server)
    waiting = "redisson_delay_queue_timeout:{mails}"
    cancelled, removed = (shop.java("mails", "offer", "mails.send", "600", '["Eve", "Later"]') for _ in range(2))
    offered = shop.java("mails", "offer", "mails.send", "5", '["Ann", "Hello"]')
    assert client.zcard(waiting) == 3
    with shop.worker():
        result = until(lambda: client.get(f"celery-task-meta-{offered}"), what="the task has run")
        assert json.loads(str(result))["result"] == "mail to Ann: Hello"
        assert f"{cancelled}: cancelled" in shop.celery("delayq", "cancel", "--yes", cancelled)
        shop.java("mails", "remove", "mails.send", removed, '["Eve", "Later"]')
        assert not client.exists(waiting, "redisson_delay_queue:{mails}")
        log = shop.directory / "invoice.log"
        asked_at = time.monotonic()
        printing = shop.start("print_invoice.py", "R-17", str(DELAY_S), log=log)
        task = shop.java("invoices", "take", "30").split()
        assert task[0] == "invoices.print"
        assert time.monotonic() - asked_at >= DELAY_S - 0.01
        assert printing.wait(60) == 0, log.read_text()
    assert f"task {task[1]} is due in {DELAY_S:g} s" in log.read_text()
    assert log.read_text().splitlines()[-1] == 'the JVM has done ["R-17"]'
