"""Sends commands to Redis: one, several in one round trip, or several that redis-py must not repeat."""

from collections.abc import Iterable, Sequence
from types import FunctionType
from typing import Any

import redis
from redis import Redis

from kombu_delayq.redis import pools
from kombu_delayq.redis.ahead import SendAhead
from kombu_delayq.redis.replies import Command, as_sent, checked, packed


class RedisCommands:
    """Sends commands over the connections of a Redis client.

    Args:
        redis: A plain Redis client; key names carry the prefix themselves.
    """

    def __init__(self, redis: Redis) -> None:
        self.redis = redis

    def ask(self, *command: Any) -> Any:
        """Sends one command. Returns its reply as the Redis client reads it."""
        return self.redis.execute_command(*as_sent(command))

    def ask_directly(self, start: Command, *rest: Any) -> Any:
        """Sends one command as ``ask`` does, in less time. Returns its reply as it is.

        Args:
            start: Name and first arguments of the command, the same in many calls.
            *rest: The other arguments: texts, bytes and integers.

        The client's own metrics do not see it. A tracer that has replaced ``execute_command`` does.
        """
        pool = self.redis.connection_pool
        if pools.has_nodes(pool) or _is_traced(self.redis):
            return self.ask(*start, *rest)
        command = [packed(start, rest)]
        connection = pools.take(pool)

        def act() -> Any:
            connection.send_packed_command(command)
            return connection.read_response()

        try:
            return connection.retry.call_with_retry(act, lambda _: connection.disconnect())
        except redis.ResponseError:
            raise
        except BaseException:
            connection.disconnect()  # a reply may still come
            raise
        finally:
            pools.give_back(pool, connection)

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
            ahead = SendAhead(self.redis.connection_pool)
            ahead.send(commands)
            return ahead.replies()
        with self.redis.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*as_sent(command))
            return list(pipe.execute(raise_on_error=False))


def _is_traced(client: Redis) -> bool:
    """Whether ``execute_command`` is not that of redis-py: replaced, or wrapped by what claims to be a function."""
    sends: Any = getattr(client.execute_command, "__func__", None)
    return type(sends) is not FunctionType or sends.__globals__ is not vars(redis.client)
