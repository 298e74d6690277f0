"""The poller without Redis: what it waits for while it shares the poller of an event loop."""

import socket
from collections.abc import Iterator
from queue import Empty
from time import monotonic
from typing import Any

import kombu
import pytest
from kombu.asynchronous.hub import Hub

from kombu_delayq.consume.poller import DelayedPoller

#: How long waits are that get nothing, in s.
SHORT_S = 0.05


class _Channel:
    """A channel, its fetcher and its line in one: it delivers what it has read.

    Attributes:
        end: What it reads from; None for nothing.
        peer: What messages to it are sent over.
        delivered: The messages.
        loop_turned: Whether the loop counted as turning when it read.
    """

    fetches = True
    active_queues = active_fanout_queues = ()

    def __init__(self, poller: DelayedPoller) -> None:
        self.fetcher = self
        self.poller = poller
        self.end, self.peer = socket.socketpair()
        self.delivered: list[bytes] = []
        self.loop_turned: bool | None = None
        self._read: list[bytes] = []

    def read(self) -> None:
        self.loop_turned = self.poller.loop_turns
        self._read.append(self.end.recv(10))

    def deliver_one(self) -> bool:
        self.delivered += self._read[:1]
        return bool(self._read and self._read.pop(0))

    def turn(self) -> None:
        """Does nothing."""

    leaves_primary = stay_in_use = maybe_refresh_binding_expiry = turn


@pytest.fixture
def hub() -> Iterator[Hub]:
    """An event loop that does not turn, and has something to read that is of others, such as a pipe of a pool."""
    hub = Hub()
    here, there = socket.socketpair()
    with here, there:
        hub.add_reader(here.fileno(), bool)
        there.send(b"result")
        yield hub
    hub.close()


@pytest.fixture
def channel(hub: Hub) -> Iterator[Any]:
    """A channel whose poller is registered with the loop; another thread has woken the loop."""
    poller = DelayedPoller()
    channel = _Channel(poller)
    poller.enter(hub)
    poller.on_poll_init(hub.poller)
    poller.maybe_restore_messages = bool
    poller.watch(channel.end.fileno(), channel)
    poller.add(channel)
    for fd in poller.fds:
        hub.add_reader(fd, poller.on_readable, fd)
    poller.wake()
    with channel.end, channel.peer:
        yield channel
        poller.close()


def test_the_loop_turns_each_second_until_the_connection_ends(hub: Hub) -> None:
    """A loop of a kombu that has no timer for it gets one, which ends with the connection."""
    poller = DelayedPoller()
    for _ in range(2):
        poller.enter(hub)
    timers = [scheduled.entry for scheduled in hub.timer.queue]
    assert len(timers) == (kombu.VERSION < (5, 7))
    assert hub.fire_timers(max_timers=2, min_delay=1, max_delay=10) <= 1
    poller.close()
    assert all(timer.canceled for timer in timers)


def test_what_only_the_loop_reads_ends_no_wait(channel: _Channel) -> None:
    """A wait without a message lasts and ends as one, although the loop has something to read meanwhile."""
    begun = monotonic()
    for count in (1, 2):
        with pytest.raises(Empty):
            channel.poller.get(None, timeout=SHORT_S)
        assert monotonic() - begun > count * SHORT_S * 0.9


def test_what_only_the_loop_reads_hides_no_message(channel: _Channel) -> None:
    """A message that comes after something for the loop is delivered, and for its callback no loop turns."""
    channel.peer.send(b"message")
    channel.poller.get(None, timeout=10)
    assert (channel.delivered, channel.loop_turned) == ([b"message"], False)
    assert channel.poller.loop_turns


def test_a_connection_of_kombu_that_was_closed_is_not_waited_for(channel: _Channel) -> None:
    """Kombu keeps the socket of a connection that has ended; another one may have its number by now."""
    ended, other = socket.socketpair()
    channel.poller._chan_to_sock[channel, None, "LISTEN"] = ended
    channel.poller._fd_to_chan[ended.fileno()] = (channel, "LISTEN")
    ended.close()
    other.close()
    channel.peer.send(b"message")
    channel.poller.get(None, timeout=10)
    assert channel.delivered == [b"message"]


def test_a_loop_is_told_of_kombus_connections_after_each_look(channel: _Channel) -> None:
    """Turns without a look cost the loop no system call for connections that it watches."""
    channel.poller._fd_to_chan[99] = (channel, "LISTEN")
    for look_at, is_told in ((0.0, True), (monotonic() + 60, False), (0.0, True)):
        channel.poller._look_at = look_at
        channel.poller.on_poll_start()
        assert (99 in channel.poller.fds) is is_told
