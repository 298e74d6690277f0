"""What kombu does with messages that workers held: docs/how-to/outage.md tells it, with what to set."""

import signal
import subprocess
import sys

import kombu.transport.redis as stock
import pytest

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import stays, until
from tests.support.workers.harness import MakeProj, Proj
from tests.support.workers.held import in_hand

pytestmark = pytest.mark.wide

#: Begins a sweep and does not end it.
HOLDER = """
import sys, time
import redis
from kombu.transport.redis import Mutex
with Mutex(redis.Redis(port=int(sys.argv[1])), "unacked_mutex", int(sys.argv[2])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_defaults_are_those_of_the_docs() -> None:
    """Messages that were held come back after an hour, and a lock that nobody releases ends after 300 s."""
    assert stock.Channel.visibility_timeout == 3600
    assert stock.Channel.unacked_mutex_expire == 300


def test_what_a_prefork_worker_had_reserved_waits_for_the_visibility_timeout(
    make_proj: MakeProj, durable_server: PrivateRedis
) -> None:
    """After an outage of Redis the worker runs new tasks, and neither runs nor gives back those that it held."""
    proj = make_proj(durable_server, include=["stock_tasks"])
    worker = proj.worker(pool="prefork", concurrency=1)
    for value in range(4):
        proj.send("gated", "gate", value)
    proj.await_runs(1)
    until(lambda: in_hand(durable_server.client()) == 3)
    durable_server.stop(signal.SIGKILL)
    until(lambda: "Cannot connect to" in worker.log, 30, "the worker notices the loss")
    durable_server.start()
    proj.journal.set("gate", 1)
    proj.send("record", "later")
    proj.await_runs(1, 60, value="later")
    assert {run["value"] for run in proj.runs()} == {0, "later"}
    assert in_hand(durable_server.client()) == 3
    proj.worker(pool="solo", broker_transport_options={"visibility_timeout": 1})  # sweeps when it starts
    until(lambda: {run["value"] for run in proj.runs()} == {0, 1, 2, 3, "later"}, 40)
    assert worker.alive()


def _sweep(proj: Proj) -> int:
    """Sweeps as a worker does. Returns how many messages are back in their queue."""
    with proj.connection(visibility_timeout=0) as connection:
        connection.default_channel.qos.restore_visible(num=None, interval=1)
    return int(proj.server.client().llen("celery"))


def test_a_killed_sweep_stops_all_others_until_its_lock_has_expired(proj: Proj) -> None:
    """Held messages stay where they are for ``unacked_mutex_expire`` after a worker was killed amid a sweep."""
    expire_s = 600
    with proj.connection() as connection:
        proj.send("record")
        message = until(lambda: connection.default_channel.basic_get("celery"))
        port = str(proj.server.port)
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, port, str(expire_s)], stdout=subprocess.PIPE, text=True
        )
        with holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            holder.kill()
        stays(lambda: _sweep(proj) == 0, 0.5)
        client = proj.server.client()
        assert 0 < client.ttl("unacked_mutex") <= expire_s
        client.pexpire("unacked_mutex", 1)
        until(lambda: _sweep(proj) == 1, 30)
        assert not in_hand(proj.server.client())
        assert message.delivery_tag
        connection.default_channel.qos._delivered.clear()  # it is no more its own to give back
