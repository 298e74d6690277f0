"""Passwords of the broker are printed nowhere."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple

import pytest
import redis
from celery.exceptions import CeleryError
from kombu.exceptions import OperationalError

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import until
from tests.support.workers.harness import MakeProj

SECRET = "s3cret/of:the@server"
ESCAPED = "s3cret%2Fof%3Athe%40server"
WRONG = "wr0ng-guess"


class Guarded(NamedTuple):
    """A Redis that asks for a password, and broker URLs without their scheme."""

    server: PrivateRedis
    by_password: str
    by_user: str
    by_wrong: str
    by_socket: str


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    with PrivateRedis("--requirepass", SECRET) as server:
        admin = redis.Redis(port=server.port, password=SECRET)
        admin.acl_setuser("app", enabled=True, passwords=[f"+{SECRET}"], keys="*", channels="*", commands=["+@all"])
        place = f"127.0.0.1:{server.port}/0"
        yield Guarded(
            server,
            f":{ESCAPED}@{place}",
            f"app:{ESCAPED}@{place}",
            f":{WRONG}@{place}",
            f":{ESCAPED}@{server.socket_path}",
        )


def _assert_secret(text: str) -> None:
    assert text
    for secret in (SECRET, ESCAPED, "s3cret", WRONG):
        assert secret not in text


def _delayq(*args: str, ended_by: str = "") -> str:
    """Runs the command, and ends it when it has said ``ended_by``, if that is given. Returns what it printed."""
    with NamedTemporaryFile("w+", prefix="delayq-secrecy-") as output:
        printed = Path(output.name)
        process = subprocess.Popen(
            [sys.executable, "-c", "from celery_ext.cli import main; main()", *args],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={key: value for key, value in os.environ.items() if key != "CELERY_BROKER_URL"},
        )
        try:
            if ended_by:
                until(lambda: ended_by in printed.read_text() or process.poll() is not None, 60)
                process.terminate()
            process.wait(60)
        finally:
            process.kill()
        return printed.read_text()


def test_working_password_is_not_printed(guarded: Guarded, make_proj: MakeProj) -> None:
    """Banner, log, reports and the delayq command of an app show an ACL user, and not its password."""
    proj = make_proj(guarded.server, broker_url=f"redis://{guarded.by_user}")
    worker = proj.worker("-l", "DEBUG", broker_url=f"delayq://{guarded.by_password}", broker_transport=None)
    proj.send("record", 1, countdown=1)
    proj.await_runs(1)
    proj.send("record", 2, countdown=600)
    status = proj.celery("delayq", "status")
    as_json = proj.celery("delayq", "status", "--json")
    report = proj.celery("report")
    assert worker.stop() == 0
    for text in (status, as_json, report, worker.log):
        _assert_secret(text)
        assert "**@127.0.0.1" in text


def test_wrong_password_is_not_printed(guarded: Guarded, make_proj: MakeProj) -> None:
    """A worker, a producer and the delayq command with a wrong password say what is wrong, without it."""
    proj = make_proj(guarded.server, broker_url=f"redis://{guarded.by_wrong}", task_publish_retry=False)
    worker = proj.worker(wait=False)
    reason = "invalid username-password pair|invalid password"
    with pytest.raises((redis.AuthenticationError, OperationalError, CeleryError), match=reason) as error:
        proj.send("record", countdown=5)
    _assert_secret(str(error.value))
    for command, ended_by in ((("status",), ""), (("status", "--json"), ""), (("transfer",), "invalid")):
        said = _delayq("--broker", f"delayq://{guarded.by_wrong}", *command, ended_by=ended_by)
        assert "invalid" in said
        _assert_secret(said)
    until(lambda: "password" in worker.log or not worker.alive(), what="the worker met the wrong password")
    _assert_secret(worker.log)
    assert "invalid" in worker.log


@pytest.mark.parametrize("form", ["delayq+socket", "socket", "redis+socket"])
def test_password_of_a_socket_is_not_printed(guarded: Guarded, form: str) -> None:
    """The delayq command reaches a socket's broker, and prints its URL without the password."""
    said = _delayq("--broker", f"{form}://{guarded.by_socket}", "status", "--json")
    _assert_secret(said)
    assert "redis+socket://:**@/" in said
