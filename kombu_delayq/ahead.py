"""Publishes a page of messages while Redis is still busy with the one before."""

from collections.abc import Callable, Sequence
from typing import Any

import redis

from kombu_delayq import pools
from kombu_delayq.calls import Command
from kombu_delayq.primary import FollowingPool
from kombu_delayq.results import Offer, PageId


class PutAhead:
    """Publishes pages of sealed messages one after the other, without waiting for Redis in between.

    At most one page is on its way: ``confirm`` it before the next. It connects with the first page, and again with the
    next one after an error.

    Args:
        pool: Connections, of which it takes one, and which it closes.
        commands_of: Makes the commands that publish a page.
    """

    def __init__(
        self, pool: redis.ConnectionPool, commands_of: Callable[[PageId, Sequence[Offer]], list[Command]]
    ) -> None:
        self._pool = pool
        self._commands_of = commands_of
        self._client: redis.Redis | None = None
        self._awaited = 0

    def put(self, page: PageId, offers: Sequence[Offer]) -> None:
        """Sends a page, as of ``DelayedChannel.put_many``, and returns before Redis has it."""
        commands = self._commands_of(page, offers)
        if isinstance(self._pool, FollowingPool):
            self._pool.follow()
        connection = self._connected()
        connection.connect()  # does nothing where it is connected
        connection.send_packed_command(connection.pack_commands(commands))
        self._awaited = len(commands)

    def confirm(self) -> None:
        """Waits until Redis has the page that is on its way, if one is. Raises its first error."""
        awaited, self._awaited = self._awaited, 0
        errors = []
        for _ in range(awaited):
            try:
                self._connected().read_response()
            except redis.ResponseError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Closes its connection. What is on its way may come to Redis or not."""
        pools.close(self._pool)

    def _connected(self) -> Any:
        if self._client is None:
            self._client = redis.Redis(connection_pool=self._pool, single_connection_client=True)
        return self._client.connection
