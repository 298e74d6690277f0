"""Connections of a consumer that are lost, closed, or half open."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from time import monotonic

import pytest
from kombu import Connection

from kombu_delayq.consume import pipelined, waits
from tests.support.conditions import until
from tests.support.looped import Looped, publish, queue_of
from tests.support.servers.proxies import Proxy
from tests.support.workers.harness import TRANSPORT, Proj
from tests.support.workers.held import in_hand


def test_connections_that_redis_py_closes_are_replaced(proj: Proj, sender: Connection) -> None:
    """After its connections were closed on this side, between two turns, a consumer goes on."""
    with Looped(proj.connection(), "a", "b") as looped:
        for n in range(3):
            looped.until(looped.waits_for("a", "b"))
            looped.channel.async_pool.disconnect()
            publish(sender, "ab"[n % 2], n)
            looped.until(lambda n=n: looped.received == list(range(n + 1)))  # type: ignore[misc]
        assert set(looped.connection.transport.cycle.fds) <= set(looped.hub.readers)
    assert not looped.hub.readers


def test_a_loop_is_told_once_of_each_connection(proj: Proj) -> None:
    """A connection that waits costs the loop nothing in later turns: it is not to be registered again."""
    with Looped(proj.connection(), "a", "b") as looped:
        looped.until(looped.waits_for("a", "b"))
        looped.turn()
        cycle = looped.connection.transport.cycle
        own = set(cycle._readers)
        assert len(own) == 3
        assert own <= set(looped.hub.readers)
        assert not own & set(cycle.fds)


def test_a_message_that_landed_on_a_lost_connection_comes(proj: Proj, sender: Connection) -> None:
    """The reply to a wait is lost with its connection; the message is in the in-flight list, and is delivered."""
    with Looped(proj.connection(), "a") as looped:
        looped.until(looped.waits_for("a"))
        publish(sender, "a", 1)
        assert proj.server.client().keys("*landing*")
        looped.channel.async_pool.disconnect()
        looped.until(lambda: looped.received == [1])


def test_connections_that_redis_closes_are_an_error_of_the_connection(proj: Proj) -> None:
    """A wait that Redis ends is a lost connection, so that Celery connects again."""
    with Looped(proj.connection(), "a") as looped:
        looped.until(looped.waits_for("a"))
        proj.server.client().execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        with pytest.raises(looped.connection.connection_errors):
            looped.until(lambda: False)


def test_a_connection_that_is_half_open_is_noticed(
    proj: Proj, frozen: "Frozen", monkeypatch: pytest.MonkeyPatch
) -> None:
    """When no reply comes for long, the connection counts as lost."""
    monkeypatch.setattr(waits, "LONGEST_WAIT_S", 0.3)
    with Looped(frozen.connection(), "a") as looped:
        looped.until(looped.waits_for("a"))
        frozen.freeze()
        with pytest.raises(looped.connection.connection_errors, match="has not replied"):
            looped.until(lambda: False)
        frozen.thaw()


def test_a_half_open_connection_is_noticed_without_a_loop(
    proj: Proj, frozen: "Frozen", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for a consumer that drains."""
    monkeypatch.setattr(waits, "LONGEST_WAIT_S", 0.3)

    def drain() -> None:
        while True:
            with suppress(socket.timeout):
                connection.drain_events(timeout=0.2)

    with frozen.connection() as connection, connection.Consumer([queue_of("a")], callbacks=[print]):
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.3)
        frozen.freeze()
        with pytest.raises(connection.connection_errors, match="has not replied"):
            drain()
        frozen.thaw()


def test_scripts_that_redis_forgets_are_sent_again(proj: Proj, sender: Connection) -> None:
    """SCRIPT FLUSH loses no message and no acknowledgement."""
    client = proj.server.client()
    with Looped(proj.connection(), "a", prefetch=4) as looped:
        for n in range(5):
            client.script_flush()
            publish(sender, "a", n)
            looped.until(lambda n=n: looped.received == list(range(n + 1)))  # type: ignore[misc]
            client.script_flush()
            looped.until(lambda: not in_hand(client))


def test_a_reply_that_was_not_read_is_not_overdue(
    proj: Proj, sender: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was stopped for long finds replies that have come meanwhile, and goes on."""
    with Looped(proj.connection(), "a") as looped:
        looped.until(looped.waits_for("a"))
        [_, wait] = looped.channel.fetcher.connections
        publish(sender, "a", 1)
        until(wait._is_readable, what="the reply has come")  # Redis may have answered the publisher first
        monkeypatch.setattr(pipelined, "monotonic", lambda: monotonic() + 1000)
        looped.turn()
        monkeypatch.undo()
        looped.until(lambda: looped.received == [1])


class Frozen:
    """A TCP proxy that can stop to forward, with its connections open."""

    def __init__(self, port: int) -> None:
        self._is_frozen = False
        self._proxy = Proxy(port, on_request=self._pass, on_reply=self._pass)
        self.port = self._proxy.port

    def _pass(self, data: bytes) -> bytes:
        return b"" if self._is_frozen else data

    def connection(self) -> Connection:
        """Makes a connection that soon misses a reply."""
        options = {"health_check_interval": 0.5, "socket_timeout": 5, "transfer": False}
        return Connection(f"redis://127.0.0.1:{self.port}/0", transport=TRANSPORT, transport_options=options)

    def freeze(self) -> None:
        """Forwards nothing any more."""
        self._is_frozen = True

    def thaw(self) -> None:
        """Cuts all connections, and forwards again."""
        self._is_frozen = False
        self._proxy.split()


@pytest.fixture
def frozen(proj: Proj) -> Iterator[Frozen]:
    """A proxy in front of the server."""
    made = Frozen(proj.server.port)
    with made._proxy:
        yield made
