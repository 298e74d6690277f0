"""A single server with hash slots that says that its cluster is down, as it does for 2 s after each start."""

import signal
from collections.abc import Iterator

import pytest
from kombu import Connection

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import until
from tests.support.workers.harness import TRANSPORT, MakeProj


@pytest.fixture
def slotted_server() -> Iterator[PrivateRedis]:
    """A server with hash slots that has written down all that it has answered."""
    with PrivateRedis("--appendonly", "yes", "--appendfsync", "always", slots=True) as server:
        yield server


def _set_state(server: PrivateRedis, command: str, state: str) -> None:
    """Takes all slots from the server, or gives them back, and waits until its cluster is in the state."""
    client = server.client()
    client.execute_command(command, *range(16384))
    until(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == state)


def test_a_cluster_that_is_down_is_a_lost_connection(slotted_server: PrivateRedis) -> None:
    """Whoever acks, waits or publishes meanwhile gets a connection error of kombu's, and goes on after it."""
    with Connection(slotted_server.url, transport=TRANSPORT) as connection:
        queue = connection.SimpleQueue("q")
        queue.put("ready")
        message = queue.get(timeout=5)
        errors = connection.connection_errors
        _set_state(slotted_server, "CLUSTER DELSLOTS", "fail")
        with pytest.raises(errors):
            message.ack()
        with pytest.raises(errors):
            connection.drain_events(timeout=5)
        with pytest.raises(errors):
            connection.Producer().publish("refused", routing_key="q", retry=False)
        with pytest.raises(errors):
            connection.Producer().publish("refused", routing_key="q", retry=False, DelaySeconds=60)
        _set_state(slotted_server, "CLUSTER ADDSLOTS", "ok")
        connection.Producer().publish("again", routing_key="q")
        assert connection.default_channel.client.llen("q") == 1


def test_a_worker_outlives_the_start_of_such_a_server(make_proj: MakeProj, slotted_server: PrivateRedis) -> None:
    """A worker whose Redis is killed and started again connects anew, and runs what waited and what comes."""
    proj = make_proj(slotted_server)
    worker = proj.worker(pool="solo")
    proj.send("record", "waited", countdown=3)
    slotted_server.stop(signal.SIGKILL)
    until(lambda: "Cannot connect to" in worker.log, 30, "the worker notices the loss")
    slotted_server.start()
    until(lambda: proj.runs(value="waited"), 40, worker.log)
    proj.send("record", "came")
    proj.await_runs(1, value="came")
    assert worker.alive()
