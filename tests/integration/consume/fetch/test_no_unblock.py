"""Consumers of a server that ends no wait for another connection, as some managed services."""

from typing import Any

import pytest
from kombu import Connection

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.consume import waits
from tests.support.conditions import until
from tests.support.looped import Looped, publish, queue_of
from tests.support.servers.redis_version import major_version
from tests.support.workers.harness import MakeProj, Proj


@pytest.fixture
def proj(make_proj: MakeProj, own_server: PrivateRedis) -> Proj:
    """An app on such a server."""
    if major_version() < 7:
        pytest.skip("Redis takes away the right to a subcommand alone from 7.0 on")
    own_server.client().execute_command("ACL", "SETUSER", "default", "-client|unblock")
    return make_proj(own_server)


@pytest.fixture(autouse=True)
def _others_wait_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a wait that is not short outlast every deadline of a test."""
    monkeypatch.setattr(waits, "LONGEST_WAIT_S", 60.0)
    monkeypatch.setattr(waits, "FRACTION_OF_LEASE", 1.0)


def test_what_comes_to_a_busy_consumer_goes_back(proj: Proj) -> None:
    """A message that still lands when there is no credit any more is in its queue soon, for others."""
    client = proj.server.client()
    with proj.connection() as sender, Looped(proj.connection(), "a", "b", prefetch=1, acks=False) as looped:
        looped.until(looped.waits_for("a", "b"))
        publish(sender, "a", 1)
        looped.until(lambda: looped.received == [1])
        publish(sender, "b", 2)
        looped.until(lambda: client.llen("b") == 1 and not client.keys("*landing*"), "it is back")
        looped.until(looped.waits_for(), "its waits end by themselves")
        publish(sender, "b", 3)
        assert looped.received == [1]
        assert client.llen("b") == 2
        looped.messages[0].ack()
        looped.until(lambda: looped.received == [1, 2])


def test_nothing_is_left_behind_when_a_queue_is_cancelled(proj: Proj) -> None:
    """A consumer that is cancelled waits first until no message can land any more, and leaves all in the queue."""
    client = proj.server.client()
    with proj.connection() as sender, Looped(proj.connection(), "a") as looped:
        looped.until(looped.waits_for("a"))
        looped.consumer.cancel()
        publish(sender, "a", 1)
        assert client.llen("a") == 1
        assert not client.keys("*landing*")


def test_a_wait_that_has_begun_before_the_refusal_is_short_the_next_time(proj: Proj) -> None:
    """Rights that are taken away later are noticed by the first wait that cannot be ended."""
    client = proj.server.client()
    client.execute_command("ACL", "SETUSER", "default", "+client|unblock")
    with proj.connection() as sender, Looped(proj.connection(), "a", "b", prefetch=1, acks=False) as looped:
        looped.until(looped.waits_for("a", "b"))
        client.execute_command("ACL", "SETUSER", "default", "-client|unblock")
        publish(sender, "a", 1)
        looped.until(lambda: looped.received == [1])
        publish(sender, "b", 2)
        looped.until(lambda: client.llen("b") == 1 and not client.keys("*landing*"), "it is back")


def test_what_comes_to_a_thread_that_is_busy_goes_back(proj: Proj, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a callback keeps the thread, the thread of the heartbeat puts back what has landed."""
    monkeypatch.setattr(waits, "SHORT_WAIT_S", 5.0)  # the wait for the second message lasts until that is sent
    client = proj.server.client()

    def work(message: object) -> None:
        if len(looped.received) == 1:
            publish(sender, "b", 2)
            assert not client.llen("b")
            until(lambda: client.llen("b") == 1 and not client.keys("*landing*"), what="it is back in its queue")

    with proj.connection() as sender, Looped(proj.connection(), "a", "b", on_message=work) as looped:
        looped.until(looped.waits_for("a", "b"))
        publish(sender, "a", 1)
        looped.until(lambda: looped.received == [1, 2])


def test_without_a_loop_messages_come_too(proj: Proj) -> None:
    """A consumer that drains gets all messages, and takes its time to stop."""
    with proj.connection() as sender, proj.connection() as connection, _simple(connection) as queue:
        for number in range(3):
            publish(sender, "a", number)
            message = queue.get(timeout=30)
            assert message.payload == number
            message.ack()


def _simple(connection: Connection) -> Any:
    return connection.SimpleQueue(queue_of("a"))
