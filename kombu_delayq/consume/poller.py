"""Waits for messages of all channels of a connection, with an event loop or without."""

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import inf
from queue import Empty
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from kombu.transport import redis as stock
from kombu.utils.eventio import ERR, READ, poll
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from kombu_delayq.redis import NotPrimary, clears, is_full, raise_as_lost

_Poller: Any = object if TYPE_CHECKING else stock.MultiChannelPoller

#: Longest single wait, in s: fetchers have something to do about so often.
LONGEST_WAIT_S = 1.0
#: A loop that turns all the time looks after its connections and queues so often, in s.
LOOK_S = 0.1
#: For how long it holds what the leader has told of lists, in s.
TOLD_S = 2.5


class Readable(Protocol):
    """What brings something over a connection."""

    def read(self) -> None:
        """Reads what has come."""


class DelayedPoller(_Poller):
    """Waits for messages of all channels. Before each wait it does three things for their consumers.

    It keeps their queues in use. It starts threads again after a fork: a process that became a daemon while it consumed
    has lost them. And it ends the connection of a consumer to a Redis that is not the primary. Nothing else notices
    such a Redis in time: a consumer whose acks are all refused asks for no further message, and a primary that the
    Sentinels no longer name refuses nothing.

    Attributes:
        refused: Whether Redis has refused a command of this connection because it is not the primary.
        told: What the leader has told of lists, see ``Keys.lists``.
        told_at: When it did so, in s of ``monotonic``.
    """

    refused = False
    poller: Any  # kombu's
    told: Mapping[str, bool] = {}
    told_at = -inf

    def __init__(self) -> None:
        super().__init__()
        self._pid = os.getpid()
        self._thread = get_ident()
        self._loop: Any = None
        self._readers: dict[int, Readable] = {}
        self._wake_at = inf
        self._waker: tuple[socket.socket, socket.socket] | None = None
        self._is_waking = False
        self._ticks: Any = None
        #: What the event loop calls with each turn, until ``close``. kombu itself would leave it there for good.
        self.turns: set[Any] = set()
        self._look_at = -inf
        self._has_looked = True

    @property
    def loop_turns(self) -> bool:
        """Whether an event loop calls the poller. While somebody waits in ``get``, it does not."""
        return self._loop is not None and not self._in_protected_read

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller's thread is the one that consumes."""
        return get_ident() == self._thread

    @property
    def is_left(self) -> bool:
        """Whether nobody waits for messages, without an event loop."""
        return self._loop is None and not self._in_protected_read

    @property
    def fds(self) -> dict[int, Any]:
        """File descriptors that an event loop is to watch from now on, and after each look those of kombu.

        kombu asks for them with each turn, and each costs it a system call, also one that it watches already. Its own
        ones change with a look alone.
        """
        known = () if self._loop is None else self._loop.readers
        own = {fd: None for fd in self._readers if fd not in known}
        if self._waker is not None and self._waker[0].fileno() not in known:
            own[self._waker[0].fileno()] = None
        return {**super().fds, **own} if self._has_looked else own

    def enter(self, loop: Any) -> None:
        """Notes the event loop that calls the poller from now on, and lets it turn each second until ``close``.

        Fetchers have something to do then, and Celery's loop notices only when it turns that the worker is to stop.
        From 5.7 on, kombu has such a timer.
        """
        self._loop = loop
        if self._ticks is None and not hasattr(self, "maybe_refresh_binding_expiry"):
            self._ticks = loop.call_repeatedly(LONGEST_WAIT_S, bool)
        if self._waker is None:
            self._waker, self._is_waking = socket.socketpair(), False
            for end in self._waker:
                end.setblocking(False)

    def stay_in_loop(self) -> None:
        """Lets the event loop call the poller also after one of the channels' connections has ended.

        Before 5.7, kombu takes the poller out of the loop then. The end of a connection that kombu reads is an error,
        with which the worker connects again; but redis-py itself opens the connection of fanouts again, and a fetcher
        closes and opens connections as it needs them.
        """
        self._on_connection_disconnect = self._forget_connection

    def look(self) -> None:
        """Looks after connections and queues with the next turn: something has changed."""
        self._look_at = -inf

    def wake(self) -> None:
        """Lets the event loop turn soon. Any thread may call this."""
        waker = self._waker  # the thread that consumes may close it now
        if waker is not None and not self._is_waking:
            self._is_waking = True
            with suppress(BlockingIOError, OSError):  # it wakes already; or it is closed
                waker[1].send(b"\0")

    def wake_in(self, pause_s: float) -> None:
        """Does the next turn after a pause at the latest. Only the thread that consumes may call this."""
        self._wake_at = min(self._wake_at, monotonic() + pause_s)
        if self._loop is not None:
            self._loop.call_later(pause_s, bool)

    def watch(self, fd: int, reader: Readable) -> None:
        """Waits for replies over a connection, too."""
        self._unwatch(fd)  # an earlier connection had this number, and ended without a word
        self._readers[fd] = reader

    def forget(self, fd: int) -> None:
        """Ends ``watch``."""
        self._readers.pop(fd, None)
        self._unwatch(fd)

    def close(self) -> None:
        """Forgets all channels."""
        super().close()
        ticks, self._ticks = self._ticks, None
        if ticks is not None:
            ticks.cancel()
        turns, self.turns = self.turns, set()
        if turns:
            self._loop.on_tick -= turns
        waker, self._waker = self._waker, None
        if waker is not None:
            with suppress(KeyError, ValueError, OSError):
                self._loop.remove_reader(waker[0].fileno())
            for end in waker:
                end.close()

    def on_poll_start(self) -> None:
        """Runs with each turn of an event loop.

        Raises:
            NotPrimary: The consumer must connect again.
        """
        self._thread = get_ident()
        try:
            channels = list(self._channels)
            fetching = [channel for channel in channels if channel.fetches]
            self._has_looked = self._has_to_look or len(fetching) < len(channels)
            if self._has_looked:
                self._look_at = monotonic() + LOOK_S
                self._check()
                super().on_poll_start()
            for channel in fetching:
                channel.fetcher.turn()
        except ResponseError as error:
            raise_as_lost(error)
            raise
        except RedisConnectionError as error:
            self._go_on(error)

    def on_poll_init(self, poller: Any) -> None:
        """Notes what polls, and lets kombu look as ``maybe_restore_messages`` does."""
        with _unless_refused():
            super().on_poll_init(poller)

    def maybe_restore_messages(self) -> None:
        """Lets kombu look for messages that others held for too long, unless Redis refuses that now.

        While nobody holds any, as the leader has just told, nothing is to be found.
        """
        if monotonic() - self.told_at < TOLD_S:
            names = [channel.store.keys.unacked("") for channel in self._channels if channel.fetches]
            if any(self.told.get(name) is False for name in names):
                return
        with _unless_refused():
            super().maybe_restore_messages()

    def get(self, callback: Any, timeout: float | None = None) -> Any:
        """Waits for a message without an event loop.

        Raises:
            NotPrimary: The consumer must connect again.
            Empty: No message came.
        """
        if not any(channel.fetches for channel in self._channels):
            self._check()  # before kombu 5.7, kombu's own method does not call ``on_poll_start``
            return super().get(callback, timeout)
        self._in_protected_read = True
        try:
            if not self._get(LONGEST_WAIT_S if timeout is None else min(timeout, LONGEST_WAIT_S)):
                self.maybe_restore_messages()
                raise Empty
        finally:
            self._in_protected_read = False
            while self.after_read:
                self.after_read.pop()()

    def _get(self, timeout: float) -> bool:
        if self._deliver_one():
            return True
        if hasattr(self, "maybe_refresh_binding_expiry"):  # new in kombu 5.7
            self.maybe_refresh_binding_expiry()
        self.on_poll_start()
        pause_s, self._wake_at = max(self._wake_at - monotonic(), 0.0), inf
        of_kombu = []
        for fileno, event in self._poll(min(timeout, pause_s)):
            if fileno in self._readers:
                self.on_readable(fileno)
            else:
                of_kombu.append((fileno, event))
        return any(self.handle_event(*found) for found in of_kombu) or self._deliver_one()

    def _poll(self, timeout: float) -> Sequence[tuple[int, int]]:
        """Waits for events of the connections of this poller, and of no others.

        ``self.poller`` may be that of an event loop, such as that of a worker which connects again. Then it is full of
        descriptors that only the loop reads, such as pipes of the pool. A wait for them would end at once, each time.
        """
        poller = poll()  # kombu's, because the standard library has none with eventlet
        try:
            kombus = [sock.fileno() for sock in self._chan_to_sock.values()]
            for fd in {*self._readers, *(fd for fd in kombus if fd >= 0)}:
                with suppress(OSError):  # its connection has ended
                    poller.register(fd, READ | ERR)
            return poller.poll(timeout) or ()
        finally:
            poller.close()

    def _deliver_one(self) -> bool:
        return any(channel.fetches and channel.fetcher.deliver_one() for channel in list(self._channels))

    def on_readable(self, fileno: int) -> Any:
        """Reads what has come over a connection."""
        reader = self._readers.get(fileno)
        if self._waker is not None and fileno == self._waker[0].fileno():
            with suppress(BlockingIOError):
                self._waker[0].recv(4096)
            self._is_waking = False  # who comes before this is served by the turn that follows
            return None
        try:
            if reader is not None:
                return reader.read()
            self.look()
            return super().on_readable(fileno)
        except ResponseError as error:
            raise_as_lost(error)
            raise
        except RedisConnectionError as error:
            return self._go_on(error)

    def _go_on(self, error: RedisConnectionError) -> None:
        """Goes on after the loss of a connection if all channels can; otherwise the consumer must connect again."""
        consuming = [channel for channel in self._channels if channel.active_queues or channel.active_fanout_queues]
        if not (consuming and all(channel.outlives(error) for channel in consuming)):
            raise error
        self.look()

    @property
    def _has_to_look(self) -> bool:
        """Whether connections and queues are to be looked after: not with each of the many turns of a busy loop."""
        return self._loop is None or monotonic() >= self._look_at or self.refused or self._pid != os.getpid()

    def _unwatch(self, fd: int) -> None:
        if self._loop is not None:
            with suppress(KeyError, ValueError, OSError):
                self._loop.remove_reader(fd)

    def _register_BRPOP(self, channel: Any) -> None:  # noqa: N802 (kombu's name)
        if not channel.fetches:
            super()._register_BRPOP(channel)

    def _forget_connection(self, connection: Any) -> None:
        """Forgets the file descriptor of a connection of kombu's; the next turn finds that of the one in its place."""
        self.look()
        ended = {key for key in self._chan_to_sock if key[1].connection is connection}
        for key in ended:
            del self._chan_to_sock[key]
        for fd, (channel, kind) in list(self._fd_to_chan.items()):
            if any((channel, kind) == (key[0], key[2]) for key in ended):
                self._loop.remove(fd)
                del self._fd_to_chan[fd]

    def _check(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            if self._loop is None:
                self.poller.close()  # what is watched by it is also watched in the parent
                self.poller = poll()
            for channel in list(self._channels):
                channel.begin_again()
        if self.refused or any(channel.leaves_primary() for channel in self._channels):
            self.refused = False
            for channel in list(self._channels):
                channel.drop_connections()
            raise NotPrimary("this Redis is not the primary, or takes no writes now")
        for channel in list(self._channels):
            channel.stay_in_use()


@contextmanager
def _unless_refused() -> Iterator[None]:
    """Lets an error pass after which a consumer waits and asks again."""
    try:
        yield
    except ResponseError as error:
        if not (clears(error) or is_full(error)):
            raise
