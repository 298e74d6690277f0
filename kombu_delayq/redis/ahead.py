"""Sends commands to Redis without waiting, so that the caller makes the next ones while Redis runs these."""

from collections.abc import Sequence
from typing import Any

import redis

from kombu_delayq.redis.pools import OF_USE
from kombu_delayq.redis.replies import Command, as_sent, checked


class SendAhead:
    """Sends groups of commands one after the other, without waiting for Redis in between.

    At most one group is on its way: ``confirm`` it before the next.

    Args:
        pool: The pool of connections. A connection is taken while commands are on their way and then given back, so
            that the next group follows the pool to another primary.
    """

    def __init__(self, pool: redis.ConnectionPool) -> None:
        self._pool = pool
        self._connection: Any = None
        self._awaited = 0
        #: In a cluster: the commands on their way to several nodes.
        self._dispatch: Any = None

    def send(self, commands: Sequence[Command]) -> None:
        """Sends commands, and returns before Redis has run them."""
        by_node = getattr(self._pool, "dispatch", None)
        if by_node is not None:
            self._dispatch = by_node([as_sent(command) for command in commands])
            return
        self._connection = self._pool.get_connection(*OF_USE)
        try:
            self._connection.send_packed_command(self._connection.pack_commands(map(as_sent, commands)))
        except BaseException:
            self.close()
            raise
        self._awaited = len(commands)

    def confirm(self) -> list[Any]:
        """Waits for the replies to the commands that are on their way, if any. Raises the first error among them."""
        return checked(self.replies())

    def replies(self) -> list[Any]:
        """Waits for the replies to the commands that are on their way, if any; errors of Redis are among them."""
        if self._dispatch is not None:
            dispatch, self._dispatch = self._dispatch, None
            return list(dispatch.replies())
        awaited, self._awaited = self._awaited, 0
        try:
            replies = [self._reply() for _ in range(awaited)]
        except BaseException:
            self.close()
            raise
        self._give_back()
        return replies

    def close(self) -> None:
        """Closes the connection if commands are on their way. Redis may run them or not."""
        dispatch, self._dispatch = self._dispatch, None
        if dispatch is not None:
            dispatch.close()
        if self._connection is not None:
            self._connection.disconnect()
        self._give_back()

    def _reply(self) -> Any:
        try:
            return self._connection.read_response()
        except redis.ResponseError as error:
            return error

    def _give_back(self) -> None:
        connection, self._connection, self._awaited = self._connection, None, 0
        if connection is not None:
            self._pool.release(connection)
