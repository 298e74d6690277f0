"""``delayq transfer --metrics-port``: the metrics of a broker from the process that transfers."""

import json
import re
import signal
import socket
import subprocess
import sys

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.commands.shell import BIN, read_until
from tests.support.conditions import until
from tests.support.serve.metrics import series_in
from tests.support.serve.running import ask


def start(url: str, *options: str) -> "subprocess.Popen[str]":
    """Starts a transfer worker that answers for metrics on a free port."""
    command = [BIN / "delayq", "--broker", url, "transfer", "--metrics-port", "0", *options]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def port_of(process: "subprocess.Popen[str]") -> int:
    """Returns the port that it logs."""
    assert process.stderr
    return next(int(found[1]) for line in process.stderr if (found := re.search(r"metrics at http://.*:(\d+)/", line)))


def get(port: int, path: str) -> tuple[int, str]:
    """Makes a request. Returns status and body."""
    answer = ask(f"http://127.0.0.1:{port}", path)
    return answer.status, answer.text


def test_a_transfer_worker_says_what_it_does(own_server: PrivateRedis) -> None:
    """It answers /metrics and /healthz through an outage, says no password, and frees its port when it ends."""
    admin = own_server.client()
    admin.config_set("requirepass", "s3cret")
    process = start(f"redis://:s3cret@127.0.0.1:{own_server.port}/0", "--also", "orders")
    try:
        port = port_of(process)
        assert until(lambda: get(port, "/healthz?leader=required")[0] == 200)
        assert json.loads(get(port, "/healthz")[1]) == {"status": "ok", "redis": True, "leader": True}
        status, text = get(port, "/metrics")
        assert (status, series_in(text)["leader_present",]) == (200, 1)
        assert ("delayed_messages", "orders") in series_in(text)
        assert get(port, "/") == (404, "Not Found")
        own_server.stop()
        assert until(lambda: get(port, "/healthz")[0] == 503)
        assert series_in(get(port, "/metrics")[1]) == {("redis_up",): 0}
        own_server.start()  # without the password, which was set while it ran
        assert until(lambda: series_in(get(port, "/metrics")[1])["redis_up",] == 1)
        with socket.create_connection(("127.0.0.1", port)):  # a client that says nothing does not keep it from ending
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=30)
        assert process.returncode == 0
        assert "s3cret" not in log + text
    finally:
        process.kill()
        process.communicate()
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_port_that_is_in_use_ends_the_command(redis_server: PrivateRedis) -> None:
    """It says which address, and transfers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = start(redis_server.url, "--metrics-port", port)
        _, log = process.communicate(timeout=30)
    assert process.returncode == 1
    assert log.startswith(f"Error: cannot listen on port {port} of 127.0.0.1: Address already in use")


#: Runs ``delayq`` as it is where the extra is not installed.
WITHOUT_THE_EXTRA = """
import sys
sys.modules["starlette"] = sys.modules["prometheus_client"] = None
from celery_ext.cli import delayq
delayq()
"""


def test_without_the_extra_it_transfers(redis_server: PrivateRedis) -> None:
    """The command needs the extra for --metrics-port alone."""
    command = [sys.executable, "-c", WITHOUT_THE_EXTRA, "--broker", redis_server.url, "transfer"]
    read_until(subprocess.Popen(command, stderr=subprocess.PIPE, text=True), "leads")
