"""A connection to Redis over which commands are sent, and whose replies are read when they have come."""

import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Any

import redis
from kombu.log import get_logger
from kombu.utils.eventio import READ, poll

from kombu_delayq.redis import OF_USE, Command, as_sent, packed_commands

logger = get_logger(__name__)

#: Takes the replies to commands that were sent together; errors of Redis are among them.
OnReplies = Callable[[list[Any]], None]


#: How late a reply may be, in s, where kombu's option health_check_interval does not say so.
OVERDUE_S = 25.0
#: How late a reply is, in s, when others no longer count on it.
LATE_S = 0.5


class PipelinedConnection:
    """One connection, for one thread.

    Args:
        pool_of: Returns the pool from which a connection comes; in a cluster, that of another node now and then.
        watch: Called with the file descriptor of a new connection, before anything is sent.
        forget: Called with the same file descriptor when the connection has ended.
        overdue_s: How late a reply may be, in s, before the connection counts as dead.
    """

    def __init__(
        self,
        pool_of: Callable[[], redis.ConnectionPool],
        watch: Callable[[int, "PipelinedConnection"], None],
        forget: Callable[[int], None],
        overdue_s: float,
    ) -> None:
        self._pool_of = pool_of
        self._pool: redis.ConnectionPool | None = None
        self._watch = watch
        self._forget = forget
        self._overdue_s = overdue_s
        self._connection: Any = None
        self._lost: Any = None
        self._fd = -1
        self._awaited: deque[tuple[int, OnReplies]] = deque()
        self._read: deque[tuple[list[Any], OnReplies]] = deque()  # and not handed on
        self._overdue_at = inf

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None and self._connection._sock is not None

    @property
    def pool(self) -> redis.ConnectionPool | None:
        """Where its connection comes from; None if it has none."""
        return self._pool if self.is_open else None

    @property
    def is_late(self) -> bool:
        """Whether a reply should have come for some time, so that its node may be away."""
        return monotonic() > self._overdue_at - self._overdue_s + LATE_S

    def open(self) -> bool:
        """Connects, unless it is connected. Returns whether the connection is new.

        Raises:
            redis.exceptions.ConnectionError: There is no connection, or the pool has none left.
        """
        if self.is_open:
            return False
        self.close()
        self._pool = self._pool_of()
        self._connection = self._pool.get_connection(*OF_USE)
        self._connection.connect()
        self._fd = self._connection._sock.fileno()
        self._watch(self._fd, self)
        return True

    def keep_alive(self) -> None:
        """Lets the kernel ask whether the other side is there, and end the connection 15 s after that has gone."""
        with suppress(OSError, AttributeError):  # no TCP, or no such options
            self._connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 2)):
                self._connection._sock.setsockopt(socket.IPPROTO_TCP, option, value)

    def ask(self, *command: Any) -> Any:
        """Sends one command and waits for its reply; only while no other reply is awaited."""
        self.open()
        self._connection.send_packed_command(self._connection.pack_command(*as_sent(command)))
        return self._connection.read_response()

    def send(self, commands: Sequence[Command], on_replies: OnReplies, waits_s: float = 0.0) -> None:
        """Sends commands, and returns at once.

        Args:
            commands: The commands.
            on_replies: Called by ``read`` with the replies.
            waits_s: For how long Redis itself may wait before it replies.
        """
        self.open()
        connection = self._connection
        if not self._awaited and getattr(connection, "_re_auth_token", None) is not None:
            connection.re_auth()  # redis-py does so only when a connection goes back to its pool
        try:
            if not self._awaited:  # redis-py would read an awaited reply as that of its PING
                connection.check_health()
            if connection is self._connection:
                connection.send_packed_command(packed_commands(connection, commands), check_health=False)
        except BaseException:
            self.close()
            raise
        if connection is not self._connection:
            raise redis.ConnectionError("the connection was lost while a command was sent")
        self._awaited.append((len(commands), on_replies))
        self._overdue_at = monotonic() + waits_s + self._overdue_s

    def read(self) -> None:
        """Reads the replies to all commands sent so far, and hands them on. Waits for those that have not come.

        Commands that are sent meanwhile, by what takes the replies, have theirs read with a later call. None of these
        has been received before that, when nothing would tell that it has come.

        Raises:
            redis.exceptions.ConnectionError: The connection was lost while replies were awaited.
        """
        if not self._awaited:
            self.close()  # Redis has closed a connection that was not in use; the next command opens another
        while self._awaited:
            count, on_replies = self._awaited[0]
            try:
                replies = [self._reply() for _ in range(count)]
            except BaseException:
                self.close()
                raise
            self._read.append((replies, on_replies))
            self._awaited.popleft()
        self._overdue_at = inf
        self._hand_on()

    def read_within(self, timeout_s: float) -> None:
        """Reads what comes within some time, in s, if anything does."""
        if self.is_open and self._is_readable(timeout_s):
            self.read()

    def check(self) -> None:
        """Raises an error when a reply is overdue: nothing else notices a connection that is half open.

        A reply that has come and was not read yet, such as after this process was stopped, is not overdue. What was
        read with one whose taker has failed is handed on.
        """
        self._hand_on()
        if monotonic() > self._overdue_at and not self._is_readable():
            self.close()
            raise redis.ConnectionError("Redis has not replied to a consumer; the connection counts as lost")

    def close(self) -> None:
        """Ends the connection. Replies that have not come will not be read."""
        connection, self._connection = self._connection, None
        lost, self._lost = self._lost, None
        self._forget_replies()
        if connection is not None:
            with suppress(redis.RedisError, OSError):
                connection.disconnect()
        for ended in (connection, lost):
            if ended is not None and self._pool is not None:
                self._pool.release(ended)

    def lose(self, connection: Any) -> bool:
        """Notes that others close a connection. Returns whether it was this one.

        The pool may be closing all its connections just now, so it gets this one back only later.
        """
        if connection is not self._connection:
            return False
        self._lost, self._connection = connection, None
        self._forget_replies()
        return True

    def _hand_on(self) -> None:
        while self._read:
            replies, on_replies = self._read.popleft()
            on_replies(replies)

    def _forget_replies(self) -> None:
        """Forgets what an ended connection would have brought, or has brought to nobody, and waits for it no more."""
        self._awaited.clear()
        self._read.clear()
        self._overdue_at = inf
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._forget(fd)

    def _is_readable(self, timeout_s: float = 0.0) -> bool:
        poller = poll()  # kombu's, because the standard library has none with eventlet
        try:
            poller.register(self._fd, READ)
            return bool(poller.poll(max(timeout_s, 0.0)))
        finally:
            poller.close()

    def _reply(self) -> Any:
        try:
            return self._connection.read_response()
        except redis.ResponseError as error:
            if isinstance(error, OSError):  # of a Redis that is not the primary
                raise
            return error
