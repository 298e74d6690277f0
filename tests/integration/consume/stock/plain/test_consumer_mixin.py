"""Services on kombu's ``ConsumerMixin``, as processes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.conditions import until
from tests.support.workers.consumers import held, none_held, publish, ready
from tests.support.workers.harness import APPS, Proj


@contextmanager
def _services(proj: Proj, count: int, prefetch_count: int | None, job_s: float) -> Iterator[None]:
    """Runs services that consume ``jobs``, from when they all consume."""
    conf = {
        "broker": proj.conf["broker_url"],
        "transport": proj.conf["broker_transport"],
        "transport_options": proj.conf.get("broker_transport_options", {}),
        "prefetch_count": prefetch_count,
        "job_s": job_s,
        "notes": proj.journal_server.url_of(15),
    }
    environment = {**os.environ, "MIXIN_CONF": json.dumps(conf)}
    command = [sys.executable, str(APPS / "mixin.py")]
    processes = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for _ in range(count)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _done(proj: Proj, count: int) -> list[tuple[int, Any]]:
    """Waits until ``count`` jobs have begun. Returns the pid of the process and the body of each job."""
    until(lambda: proj.journal.llen("jobs") >= count, 30)
    return [(pid, body) for pid, body in map(json.loads, proj.journal.lrange("jobs", 0, -1))]


def _await_job(proj: Proj, body: Any) -> None:
    """Waits until a job has begun. One whose acknowledgement was cut off begins once more, perhaps after this one."""
    until(lambda: body in [begun for _, begun in _done(proj, 0)], what=f"job {body} has begun")


def test_a_service_without_prefetch_holds_one_job(proj: Proj) -> None:
    """While a service does a job, the others are in the queue, and a new service begins the next at once."""
    client = proj.server.client()
    with proj.connection() as connection:
        publish(connection, *range(4))
    with _services(proj, 1, None, 60):
        _done(proj, 1)
        until(lambda: held(client) == 1)
        assert ready(client) == [1, 2, 3]
        with _services(proj, 1, None, 60):
            _done(proj, 2)
            until(lambda: held(client) == 2)
            assert ready(client) == [2, 3]


def test_services_go_on_after_their_connections_are_killed(proj: Proj) -> None:
    """After each ``CLIENT KILL`` of all connections the services connect again, and get what comes then."""
    client = proj.server.client()
    with _services(proj, 2, 1, 0):
        for n in range(3):
            assert client.client_kill_filter(_type="normal", skipme=True) > 0
            with proj.connection() as connection:
                publish(connection, n)
            _await_job(proj, n)
        until(lambda: none_held(client))
