"""The examples of consumers in other languages do what they say."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from celery import Celery

from tests.support.conditions import until
from tests.support.missing import missing
from tests.support.serve.running import Served
from tests.support.workers.transfers import Transfer

EXAMPLES = Path(__file__).parents[4] / "docs" / "examples" / "http"

#: What `consume.sh` runs for each message: it does what the examples in other languages do in their own code.
_WORK = """
import json, sys, time
[message] = json.load(sys.stdin)["messages"]
kwargs = message["kwargs"]
if kwargs.get("fail") and not message["redelivered"]:
    sys.exit(1)
time.sleep(kwargs.get("seconds", 0))
print(message["task"], message["id"], message["args"], "done", flush=True)
"""

COMMANDS = {
    "curl": [str(EXAMPLES / "consume.sh"), "orders", "python3", "-c", _WORK],
    "node": ["node", str(EXAMPLES / "consume.mjs"), "orders"],
    "java": ["java", str(EXAMPLES / "Consume.java"), "orders"],
}


@pytest.fixture
def task_ids(app: Celery, client: redis.Redis) -> list[str]:
    """Ids of tasks in the queue ``orders``: an example ends with an error where nobody has published to its queue."""
    tasks = {"plain": {}, "failing": {"fail": True}, "long": {"seconds": 10}}
    for task_id, kwargs in tasks.items():
        app.send_task("orders.pack", ('ü "x"', 1.5), kwargs, queue="orders", task_id=task_id)
    return [*tasks]


@pytest.fixture(params=COMMANDS)
def example(
    request: pytest.FixtureRequest, served: Served, task_ids: list[str], tmp_path: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    """An example that consumes the queue; its output goes to the file ``out``."""
    if shutil.which(request.param) is None:
        missing(f"there is no {request.param} on the PATH")
    settings = {
        "DELAYQ_LEASE_S": "8",  # the half of it is time enough to extend a lease, however busy the machine is
        "DELAYQ_RETRY_S": "1",
        "DELAYQ_URL": served.url.rstrip("/"),
        "DELAYQ_TOKEN": "dq_billing",
    }
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            COMMANDS[request.param],
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


def test_an_example_consumes_a_queue(
    client: redis.Redis, transfer: Transfer, tmp_path: Path, task_ids: list[str], example: "subprocess.Popen[bytes]"
) -> None:
    """Each task is done once: one that fails comes again, one longer than the lease is extended; SIGTERM ends it."""
    transfer(poll_interval=0.05, consumer_ttl=1)

    def done() -> list[str]:
        return re.findall(r"^orders\.pack (\w+) .* done$", (tmp_path / "out").read_text(), re.MULTILINE)

    until(lambda: len(done()) >= 3, 120, "three tasks")
    until(lambda: not client.exists("unacked", "unacked_index", "{delayq}:consumers", "orders"))
    assert sorted(done()) == sorted(task_ids)
    os.killpg(example.pid, signal.SIGTERM)  # as Ctrl-C does; `consume.sh` alone would wait for curl
    assert example.wait(30) in (0, 128 + signal.SIGTERM), (tmp_path / "out").read_text()
