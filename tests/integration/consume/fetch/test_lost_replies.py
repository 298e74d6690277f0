"""Replies of Redis that do not arrive: to a request for messages, and to acknowledgements."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import redis
from kombu import Connection
from redis.exceptions import RedisError

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.consume import fetcher
from kombu_delayq.consume.lost import LostRequests
from kombu_delayq.consume.pipelined import PipelinedConnection
from kombu_delayq.redis import scripts
from tests.support.conditions import until
from tests.support.looped import Looped, publish, queue_of
from tests.support.servers.proxies import LosesReply
from tests.support.workers.harness import TRANSPORT, Proj
from tests.support.workers.held import in_hand, leases

Loses = Callable[[str], LosesReply]


@pytest.fixture
def loses(proj: Proj) -> Loses:
    """Makes a proxy that loses replies to a script."""
    return lambda operation: LosesReply(proj.server.port, scripts.load(operation).sha.encode())


def through(proxy: LosesReply) -> Connection:
    """Makes a connection whose replies may be lost."""
    return Connection(proxy.url, transport=TRANSPORT, transport_options={"transfer": False})


def test_a_message_whose_reply_is_lost_goes_back(proj: Proj, sender: Connection, loses: Loses) -> None:
    """Redis has noted a message as unacked, and the consumer does not know it: it goes back when the consumer ends."""
    client = proj.server.client()
    with loses("fetch") as proxy:
        with Looped(through(proxy), "a") as looped:
            publish(sender, "a", 1)
            looped.until(lambda: looped.received == [1])
            looped.until(looped.waits_for("a"))
            proxy.arm()
            publish(sender, "a", 2)
            with pytest.raises(looped.connection.connection_errors):
                looped.until(lambda: False)
            assert in_hand(client) == 1
        assert proxy.lost == 1
        assert client.llen("a") == 1
        assert not in_hand(client)
        assert leases(client) == 1, "Redis might still run the request"


def test_a_consumer_that_goes_on_puts_it_back_itself(proj: Proj, sender: Connection) -> None:
    """When redis-py replaces the connection, the consumer looks what Redis has taken for it, and gets it again."""
    client = proj.server.client()
    client.script_load(scripts.load("fetch").text)
    with Looped(proj.connection(), "a") as looped:
        publish(sender, "a", 1)
        looped.send()
        until(lambda: in_hand(client) == 1, what="taken, and the reply not read")
        looped.channel.async_pool.disconnect()
        looped.until(lambda: looped.received == [1])
        looped.until(lambda: not in_hand(client))
    assert not client.llen("a")


def test_a_request_that_fails_while_it_is_sent_may_have_been_run(
    proj: Proj, sender: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Redis has taken goes back, although sending the request was an error."""
    client = proj.server.client()
    whole = PipelinedConnection.send

    def fails(pipelined: PipelinedConnection, commands: Any, *args: Any) -> None:
        whole(pipelined, commands, *args)
        if commands[-1][1] == scripts.load("fetch").sha:
            until(lambda: in_hand(client) == 1, what="run")
            pipelined.close()
            raise redis.ConnectionError("lost")

    with Looped(proj.connection(), "a") as looped:
        looped.until(looped.waits_for("a"))
        publish(sender, "a", 1)
        monkeypatch.setattr(PipelinedConnection, "send", fails)
        with pytest.raises(redis.ConnectionError):
            looped.until(lambda: False)
        monkeypatch.undo()
    assert client.llen("a") == 1
    assert not in_hand(client)


def _refuses(message: Any) -> None:
    raise LookupError(message.payload)


def test_what_cannot_be_put_back_at_the_end_keeps_nothing_else(
    proj: Proj, sender: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one step of a consumer's end does not reach Redis, the others acknowledge and put back all the same."""
    client = proj.server.client()

    def fails(*_: Any, **__: Any) -> None:
        raise redis.ConnectionError("lost")

    publish(sender, "a", 1, 2)
    with Looped(proj.connection(), "a", acks=False, on_message=_refuses) as looped:
        with pytest.raises(LookupError):
            looped.until(lambda: False)
        assert (looped.received, in_hand(client)) == ([1], 2)
        looped.messages[0].ack()
        monkeypatch.setattr(LostRequests, "recover", fails)
    assert (client.llen("a"), in_hand(client)) == (1, 0)


def test_what_could_not_be_done_at_the_end_is_done_when_redis_is_back(
    durable_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer whose connection ends while Redis is away acknowledges and puts back before its lease ends."""
    monkeypatch.setattr(fetcher, "BUSY_S", 600)  # or the heartbeat does it before, on a busy machine
    options = {"transfer": False}  # nobody reclaims
    with Connection(durable_server.url, transport=TRANSPORT, transport_options=options) as sender:
        publish(sender, "a", 1, 2)
    connection = Connection(durable_server.url, transport=TRANSPORT, transport_options=options)
    with Looped(connection, "a", acks=False, on_message=_refuses) as looped:
        with pytest.raises(LookupError):
            looped.until(lambda: False)
        assert looped.received == [1]
        durable_server.stop()
        looped.messages[0].ack()
    durable_server.start()
    client = durable_server.client()
    until(lambda: not in_hand(client), what="acknowledged, and put back")
    assert client.llen("a") == 1
    until(lambda: not leases(client), what="its lease is given back")


def test_an_ack_whose_reply_is_lost_is_sent_again(
    proj: Proj, sender: Connection, loses: Loses, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task does not run again, and the second attempt, which finds nothing, is no news."""
    monkeypatch.setattr(fetcher, "BUSY_S", 600)  # or the heartbeat sends it, on a machine that is busy for a second
    client = proj.server.client()
    with loses("ack") as proxy:
        with Looped(through(proxy), "a", acks=False) as looped:
            publish(sender, "a", 1, 2)
            looped.until(lambda: looped.received == [1, 2])
            looped.messages[0].ack()
            looped.until(lambda: in_hand(client) == 1)
            proxy.arm()
            looped.messages[1].ack()
            with pytest.raises(looped.connection.connection_errors):
                looped.until(lambda: False)
        assert proxy.lost == 1
    until(lambda: not leases(client), what="its lease is given back")
    assert in_hand(client) == client.exists("a") == 0
    assert "no longer held" not in caplog.text


def test_a_basic_get_without_an_answer_takes_once(proj: Proj, sender: Connection, loses: Loses) -> None:
    """The caller gets an error; redis-py does not repeat the script, and the message goes back at the end."""
    client = proj.server.client()
    publish(sender, "a", 1, 2)
    with loses("fetch") as proxy:
        with through(proxy) as connection:
            queue = queue_of("a")(connection.default_channel)
            first = queue.get()
            assert first.payload == 1
            first.ack()
            proxy.arm()
            with pytest.raises(connection.connection_errors):
                queue.get()
            assert (client.llen("a"), in_hand(client)) == (0, 1)
        assert proxy.lost == 1
    assert (client.llen("a"), in_hand(client)) == (1, 0)


def test_an_ack_after_the_end_of_the_connection_arrives(durable_server: PrivateRedis) -> None:
    """A task that runs through an outage of Redis is acknowledged when it ends, and does not run again."""
    with Connection(durable_server.url, transport=TRANSPORT) as sender:
        publish(sender, "a", 1)
    with Looped(Connection(durable_server.url, transport=TRANSPORT), "a", acks=False) as looped:
        looped.until(lambda: looped.received == [1])
        durable_server.stop()
        with pytest.raises(looped.connection.connection_errors):
            looped.until(lambda: False)
        with suppress(RedisError, OSError):
            looped.connection.release()
    durable_server.start()
    assert in_hand(durable_server.client()) == 1
    looped.messages[0].ack()
    assert not in_hand(durable_server.client())


def test_an_adopted_message_is_held_no_more(proj: Proj, sender: Connection) -> None:
    """A message that came before its time is in the store, and the consumer's lease is given back at the end."""
    client = proj.server.client()
    with Connection(proj.server.url) as stock, Looped(proj.connection(), "a") as looped:
        publish(stock, "a", 1, headers={"eta": "2999-01-01T00:00:00+00:00"})
        looped.until(lambda: looped.store.queues.size("a") == 1)
        assert not looped.channel.consumer.held
        [body] = client.hvals(proj.keys("a")[1])
        assert looped.channel.consumer.name not in body, "it keeps the tag of its publisher"
    until(lambda: not leases(client), what="its lease is given back")
    assert not in_hand(client)
