"""A Redis that refuses commands for a while: all while a script runs, or writes while it is full or cannot save."""

from contextlib import suppress
from time import monotonic
from typing import Any

import pytest
from kombu import Connection

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import stays, until
from tests.support.looped import Looped, publish, queue_of
from tests.support.servers.refusing import busy, unsaved
from tests.support.workers.harness import TRANSPORT, MakeProj
from tests.support.workers.held import in_hand


def _connection(server: PrivateRedis) -> Connection:
    return Connection(server.url, transport=TRANSPORT, transport_options={"transfer": False})


REFUSALS = pytest.mark.parametrize("refusing", [busy, unsaved])


def _turn_for(looped: Looped, time_s: float) -> None:
    end = monotonic() + time_s
    looped.until(lambda: monotonic() > end)


@REFUSALS
def test_an_idle_consumer_looks_again(own_server: PrivateRedis, refusing: Any) -> None:
    """A consumer that waits keeps its connections, and gets what comes afterwards."""
    client = own_server.client()
    with _connection(own_server) as sender, Looped(_connection(own_server), "a", "b") as looped:
        looped.until(looped.waits_for("a", "b"))
        before = {each["id"] for each in client.client_list()}
        with refusing(own_server):
            _turn_for(looped, 2.5)  # it looks each second
        publish(sender, "b", "after")
        looped.until(lambda: looped.received == ["after"])
        assert before <= {each["id"] for each in client.client_list()}
        looped.until(looped.waits_for("a", "b"))


@REFUSALS
def test_requests_and_acknowledgements_are_sent_again(
    own_server: PrivateRedis, refusing: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What a consumer cannot acknowledge or take meanwhile, it acknowledges and takes afterwards, each message once."""
    client = own_server.client()
    with _connection(own_server) as sender, Looped(_connection(own_server), "a", prefetch=2, acks=False) as looped:
        looped.until(looped.waits_for("a"))
        publish(sender, "a", *range(5))
        looped.until(lambda: looped.received == [0, 1])
        with refusing(own_server):
            for message in looped.messages:
                message.ack()
            _turn_for(looped, 1.5)
            assert looped.received == [0, 1]
        looped.until(lambda: looped.received == [0, 1, 2, 3])
        for message in looped.messages[2:]:
            message.ack()
        looped.until(lambda: looped.received == [0, 1, 2, 3, 4])
        looped.messages[-1].ack()
        looped.until(lambda: not in_hand(client))
        looped.until(looped.waits_for("a"), "the waits were ended and begin again")
    assert "CLIENT UNBLOCK" not in caplog.text
    assert caplog.text.count("asked again each second") <= 1


def test_nothing_is_concluded_for_good(own_server: PrivateRedis, caplog: pytest.LogCaptureFixture) -> None:
    """A wait that cannot be ended, or begun, meanwhile says nothing of what Redis lets a consumer do."""
    with _connection(own_server) as sender, Looped(_connection(own_server), "a", "b") as looped:
        looped.until(looped.waits_for("a", "b"))
        with busy(own_server):
            looped.channel.fetcher.pause()
            _turn_for(looped, 0.5)
        publish(sender, "a", 1)
        looped.until(lambda: looped.received == [1])
        with busy(own_server):
            looped.channel.fetcher.drop()
            _turn_for(looped, 1.5)
        looped.until(looped.waits_for("a", "b"))
        publish(sender, "b", 2)
        looped.until(lambda: looped.received == [1, 2])
    assert "refuses" not in caplog.text


@REFUSALS
def test_without_an_event_loop_nothing_comes_meanwhile(own_server: PrivateRedis, refusing: Any) -> None:
    """``drain_events`` ends by its timeout, an acknowledgement waits, and both go on afterwards."""
    received: list[Any] = []
    with _connection(own_server) as sender, _connection(own_server) as connection:
        publish(sender, "a", 1)
        with connection.Consumer(queue_of("a"), on_message=received.append):
            until(lambda: received or connection.drain_events(timeout=1))
            with refusing(own_server):
                received[0].ack()
                for _ in range(2):
                    with pytest.raises(TimeoutError):
                        connection.drain_events(timeout=1.2)
            publish(sender, "a", 2)

            def both() -> bool:
                with suppress(TimeoutError):
                    connection.drain_events(timeout=0.5)
                return len(received) == 2

            until(both)
            received[1].ack()
            until(lambda: both() and not in_hand(own_server.client()))


@pytest.mark.wide
def test_workers_live_while_a_script_runs(make_proj: MakeProj, own_server: PrivateRedis) -> None:
    """An idle worker goes on as before, without connecting again, and one that starts meanwhile waits."""
    proj = make_proj(own_server)
    idle = proj.worker("--without-heartbeat", pool="solo", gossip=True)  # Celery waits in the sending of one
    proj.await_answers()  # it has subscribed
    with busy(own_server):
        new = proj.worker("-Q", "new", pool="solo", wait=False)
        until(lambda: "Cannot connect" in new.log)
        stays(idle.alive, 2)
    new.ready()
    for queue in ("celery", "new"):
        proj.send("record", queue, queue=queue)
        proj.await_runs(1, value=queue)
    assert "Connection to broker lost" not in idle.log


def test_a_consumer_empties_its_queue_and_waits_on(own_server: PrivateRedis) -> None:
    """Messages are taken and acknowledged, an empty queue is looked at, and later waited for again."""
    client = own_server.client()
    with (
        Connection(own_server.url, transport=TRANSPORT) as sender,
        Looped(Connection(own_server.url, transport=TRANSPORT), "a", prefetch=4) as looped,
    ):
        looped.until(looped.waits_for("a"))
        for round_ in range(2):
            publish(sender, "a", *range(20))
            client.config_set("maxmemory", 1)
            looped.until(lambda round_=round_: len(looped.received) == 20 * (round_ + 1))  # type: ignore[misc]
            looped.until(lambda: not in_hand(client))
            for _ in range(5):
                looped.turn()
            client.config_set("maxmemory", 0)
        looped.until(looped.waits_for("a"), "a wait again")


@pytest.mark.wide
@pytest.mark.parametrize("pool", ["solo", "prefork", "gevent"])
def test_a_worker_lives_while_redis_is_full(make_proj: MakeProj, own_server: PrivateRedis, pool: str) -> None:
    """Neither a busy worker nor an idle one ends; it runs what waits, and what comes when there is room again."""
    proj = make_proj(own_server, task_ignore_result=True, worker_enable_remote_control=False)
    client = own_server.client()
    worker = proj.worker("--without-heartbeat", pool=pool, worker_send_task_events=False)
    for n in range(20):
        proj.send("busy", 0.05, n)
    client.config_set("maxmemory", 1)
    until(lambda: not (client.exists("celery") or in_hand(client)), 30)
    until(lambda: "maxmemory" in worker.log or worker.alive())
    client.config_set("maxmemory", 0)
    proj.send("record", "after")
    proj.await_runs(1, value="after")
    assert worker.alive()
