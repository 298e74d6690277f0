"""Sends commands to Redis: one, several in one round trip, or several that redis-py must not repeat."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from types import FunctionType
from typing import Any, TypeVar

import redis
from redis import Redis
from redis.exceptions import ResponseError

from kombu_delayq.redis import connections
from kombu_delayq.redis.connections import Command, as_sent, checked, packed
from kombu_delayq.text import as_bytes

R = TypeVar("R")


class RedisCommands:
    """Sends commands over the connections of a Redis client.

    Args:
        redis: A plain Redis client; key names carry the prefix themselves.

    Attributes:
        pool: Its connections.
    """

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.pool = connections.pool_of(redis.connection_pool)

    def client_at(self, key: str) -> Redis:
        """Returns a client of the server that has a key.

        Raises:
            redis.exceptions.ConnectionError: No node of the cluster is known to have the key.
        """
        return Redis(connection_pool=self.pool.node_of(key))

    def scan_pages(self, pattern: str, count: int, most: int | None = None) -> Iterator[list[bytes | str]]:
        """Yields the names of the keys that match a pattern, page by page, over all servers; some names come twice.

        Args:
            pattern: Pattern of SCAN.
            count: About how many keys one call looks at.
            most: How many calls to make of each server; None for as many as it has pages.
        """
        for client in self.pool.clients().values():
            yield from islice(_scan(client, pattern, count), most)

    def ask(self, *command: Any) -> Any:
        """Sends one command. Returns its reply as the Redis client reads it."""
        if self._needs_client:
            return self.redis.execute_command(*as_sent(command))
        [reply] = checked(self._exchange_all([command]))
        return reply

    def ask_directly(self, start: Command, *rest: Any) -> Any:
        """Sends one command as ``ask`` does, in less time. Returns its reply as it is.

        Args:
            start: Name and first arguments of the command, the same in many calls.
            *rest: The other arguments: texts, bytes and integers.

        It does not go through the client's callbacks.
        """
        if self._needs_client:
            return self.ask(*start, *rest)
        sent = [packed(start, rest)]

        def act(connection: Any) -> Any:
            connection.send_packed_command(sent)
            try:
                return connection.read_response()
            except ResponseError as error:  # the connection goes on
                return error

        reply = self._on_connection(act)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def ask_once(self, *command: Any) -> Any:
        """Sends one command, which redis-py must not repeat. Returns its reply."""
        [reply] = checked(self.replies([command], once=True))
        return reply

    def send(self, commands: Iterable[Command], *, once: bool = False) -> list[Any]:
        """Sends commands in one round trip. Returns their replies; raises the first error among them.

        Args:
            commands: The commands. An error names the command and its key.
            once: As of ``replies``.
        """
        commands = list(commands)
        # redis-py's own error would contain the command, and so the bodies of messages.
        replies = self.replies(commands, once=once)
        for (name, *args), reply in zip(commands, replies, strict=True):
            if isinstance(reply, Exception):
                if name not in ("EVAL", "EVALSHA"):  # a script names the key itself
                    reply.args = (f"{name} {args[0]}: {reply}",)
                raise reply
        return replies

    def replies(self, commands: Sequence[Command], *, once: bool = False) -> list[Any]:
        """Sends commands in one round trip. Returns their replies, errors of Redis among them.

        Args:
            commands: The commands.
            once: Whether redis-py may send the commands only once, whatever errors its client is set to retry.
        """
        if once:
            return self.pool.send(commands).replies()
        if not self._needs_client:
            return self._exchange_all(commands)
        with self.redis.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*as_sent(command))
            return list(pipe.execute(raise_on_error=False))

    @property
    def _needs_client(self) -> bool:
        """Whether the client itself has to send: it knows several nodes, or a tracer wants to see commands.

        A tracer replaces ``execute_command``, or wraps it by what claims to be a function. Otherwise a connection does
        so in a third of the time. The client's own metrics do not see that.
        """
        sends: Any = getattr(self.redis.execute_command, "__func__", None)
        return self.pool.several or type(sends) is not FunctionType or sends.__globals__ is not vars(redis.client)

    def _exchange_all(self, commands: Sequence[Command]) -> list[Any]:
        """Sends commands. Returns their replies as the client reads them; errors of Redis are among them."""
        if not commands:
            return []

        def act(connection: Any) -> list[Any]:
            connection.send_packed_command(connection.pack_commands(map(as_sent, commands)))
            return [connections.reply_of(connection) for _ in commands]

        callbacks, replies = self.redis.response_callbacks, self._on_connection(act)
        return [
            callbacks[name](reply) if name in callbacks and not isinstance(reply, Exception) else reply
            for (name, *_), reply in zip(commands, replies, strict=True)
        ]

    def _on_connection(self, act: Callable[[Any], R]) -> R:
        """Returns what a function of a connection does, such as to send a command; again as the client is set to."""
        connection = connections.take(self.redis.connection_pool)
        try:
            done: R = connection.retry.call_with_retry(partial(act, connection), lambda _: connection.disconnect())
        except BaseException:
            connection.disconnect()  # a reply may still come
            raise
        else:
            return done
        finally:
            connections.give_back(self.redis.connection_pool, connection)


class SendAhead:
    """Sends groups of commands one after the other, without waiting for Redis in between.

    At most one group is on its way: ``confirm`` it before the next.

    Args:
        pool: The pool of connections. A connection is taken while commands are on their way and then given back, so
            that the next group follows the pool to another primary.
    """

    def __init__(self, pool: redis.ConnectionPool) -> None:
        self._pool = connections.pool_of(pool)
        self._sent: connections.SentCommands | None = None

    def send(self, commands: Sequence[Command]) -> None:
        """Sends commands, and returns before Redis has run them."""
        self._sent = self._pool.send(commands)

    def confirm(self) -> list[Any]:
        """Waits for the replies to the commands that are on their way, if any. Raises the first error among them."""
        sent, self._sent = self._sent, None
        return [] if sent is None else checked(sent.replies())

    def close(self) -> None:
        """Closes the connection if commands are on their way. Redis may run them or not."""
        sent, self._sent = self._sent, None
        if sent is not None:
            sent.close()


def _scan(client: Redis, pattern: str, count: int) -> Iterator[list[bytes | str]]:
    cursor = -1
    while cursor:
        cursor, found = client.scan(max(cursor, 0), match=as_bytes(pattern), count=count)
        yield found
