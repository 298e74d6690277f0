"""``delayq demo``, in a terminal and with its page."""

import os
import re
import signal
import socket
import subprocess

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.commands.shell import BIN
from tests.support.conditions import until
from tests.support.serve.running import ask

pytestmark = pytest.mark.wide


def test_the_demo_loses_nothing() -> None:
    """`delayq demo` ends by itself with exit code 0 and its tables: of tenants, the chain and the cancelled task."""
    result = subprocess.run([BIN / "delayq", "demo"], capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "kill -9" in result.stdout
    assert "nothing lost, nothing early, nothing double" in result.stdout
    assert "failed 3 times, then succeeded" in result.stdout
    assert re.search(r"^cancelled +never ran$", result.stdout, re.MULTILINE)
    assert "delayq demo --serve" in result.stdout
    rows = re.findall(r"^  task \d of the small one +after ([\d.]+) s +after ([\d.]+) s$", result.stdout, re.MULTILINE)
    assert [len(rows), max(float(limited) for _, limited in rows) < min(float(free) for free, _ in rows)] == [3, True]


def test_a_server_whose_port_was_taken_gets_another_and_keeps_it() -> None:
    """Only the first start may change the port: later on, others know it."""
    server = PrivateRedis()
    with socket.create_server(("127.0.0.1", 0)) as other:
        server.port = taken = other.getsockname()[1]
        with server:
            port = server.port
            assert port != taken
            server.stop()
            assert server.start().client().ping()
            assert server.port == port


TASK = {"task": "mail.send", "queue": "mail", "args": ["ada@example.org", "Hello"]}


def test_the_demo_shows_its_page_until_it_is_ended() -> None:
    """`delayq demo --serve` prints an address with its token; tasks come and run until a signal ends it."""
    command, out = [BIN / "delayq", "demo", "--serve"], subprocess.PIPE
    with subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, text=True, start_new_session=True) as process:
        try:
            assert process.stdout
            line = next(line for line in process.stdout if line.startswith("open "))
            [(url, secret)] = re.findall(r"(http://127\.0\.0\.1:\d+)/login#(dq_\S+)", line)
            assert ask(url, "/v1/queues").status == 401

            def transferred() -> dict[str, int]:
                rows = ask(url, "/v1/queues", token=secret).json["queues"]
                return {row["queue"]: row["transferred"] for row in rows}

            until(lambda: transferred().get("mail", 0) > 5 and transferred().get("billing", 0) > 5)
            answer = ask(url, "/v1/tasks", "POST", body=TASK, token=secret)
            assert answer.status == 201, answer
        finally:
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to Redis as well
        assert "Traceback" not in process.stdout.read()
        assert process.wait(100) == 0
