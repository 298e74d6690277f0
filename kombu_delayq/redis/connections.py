"""Connections to Redis, to one server or to the nodes of a cluster: their pools, and the bytes that go over them."""

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache, singledispatch
from math import inf
from time import monotonic, sleep
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

import redis
from redis.exceptions import ResponseError
from redis.sentinel import SentinelConnectionPool

from kombu_delayq.text import as_bytes

#: Name and arguments of a command.
Command = tuple[Any, ...]


class Packed(NamedTuple):
    """Arguments of a command as they go over the wire, as ``packed`` writes them.

    Attributes:
        number: How many they are.
        data: Their bytes.
    """

    number: int
    data: bytes


#: Types of arguments that are packed as one text.
_TEXTS = frozenset((str, int))
#: Types of arguments that ``packed`` knows.
_PACKED = frozenset((str, int, bytes, Packed))
#: Connections that a transfer worker needs: one for commands, and one for announcements.
TRANSFER_CONNECTIONS = 2
#: How long a command waits for a connection that others use, and how often it looks for one, in s.
FREE_S, LOOK_S = 5.0, 0.005
#: redis-py before 5.3 asks for the command for which a connection is used.
OF_USE = () if redis.VERSION >= (5, 3) else ("EVALSHA",)

#: The connections of this process that a forked child does not inherit.
_own: WeakSet[Any] = WeakSet()


def keep_from_children(connection: Any) -> None:
    """Lets processes that are forked from now on close a connection, without a word to Redis.

    Otherwise a connection does not end with its process, but with the last child. Until then a wait of the dead process
    would take messages, and its subscriptions would say that it lives.
    """
    _own.add(connection)


def _close_inherited() -> None:
    """In a child that was forked: the open sockets are those of its parent, which may go on with them.

    Not by the connection's own ``disconnect``: kombu's takes the socket out of the poller, which is the parent's, too.
    """
    for connection in list(_own):
        inherited, connection._sock = connection._sock, None
        connection._parser.on_disconnect()
        if inherited is not None:
            inherited.close()


os.register_at_fork(after_in_child=_close_inherited)


def with_sentinels(pool: redis.ConnectionPool) -> list[redis.ConnectionPool]:
    """Returns a pool, and behind Sentinel one more pool for each Sentinel that it asks for the primary."""
    sentinels = pool.sentinel_manager.sentinels if isinstance(pool, SentinelConnectionPool) else ()
    return [pool, *(sentinel.connection_pool for sentinel in sentinels)]


def wait_at_most(pool: redis.ConnectionPool, answer_s: float) -> None:
    """Lets connections of a pool wait for answers for so long, in s. Those that are not in use are made anew."""
    for reached in with_sentinels(pool):
        most_s = min(reached.connection_kwargs.get("socket_timeout") or inf, answer_s)
        reached.connection_kwargs["socket_timeout"] = most_s
        reached.disconnect(inuse_connections=False)
        for connection in list(getattr(reached, "_available_connections", ())):
            connection.socket_timeout = most_s


def make_room(pool: redis.ConnectionPool, connections: int) -> None:
    """Raises the limit of a pool to so many connections.

    The option ``max_connections`` is meant for kombu's pools. A pool of kombu needs only one connection.
    """
    pool.max_connections = max(pool.max_connections, connections)


def close_pool(pool: redis.ConnectionPool) -> None:
    """Closes all connections of a pool. The pool makes new ones when it is used again."""
    for reached in with_sentinels(pool):
        reached.disconnect()


def is_pool_full(error: Exception) -> bool:
    """Whether an error says only that a pool has no connection left."""
    return "Too many connections" in str(error) or type(error).__name__ == "MaxConnectionsError"


def take(pool: redis.ConnectionPool) -> Any:
    """Takes a connection out of a pool once one is free: kombu's has ten, and a worker any number of threads.

    Where an idle one is fit for use, this takes less time than the pool's ``get_connection``. The pool's own metrics do
    not see it. ``give_back`` returns it.

    Raises:
        redis.exceptions.ConnectionError: None is for ``FREE_S``, or the connection cannot be made.
    """
    if type(pool) is redis.ConnectionPool and pool.pid == os.getpid():
        with pool._lock:
            connection = pool._available_connections.pop() if pool._available_connections else None
            if connection is not None:
                pool._in_use_connections.add(connection)
        if connection is not None:
            if _is_fit(connection):
                return connection
            give_back(pool, connection)  # the pool itself connects it anew
    until = monotonic() + FREE_S
    while True:
        try:
            return pool.get_connection(*OF_USE)
        except redis.ConnectionError as error:
            if not is_pool_full(error) or monotonic() > until:
                raise
        sleep(LOOK_S)  # the pool tells nobody when a connection comes back


def give_back(pool: redis.ConnectionPool, connection: Any) -> None:
    """Returns a connection that ``take`` has taken out of a pool.

    The pool itself does so where it does more with it: a credential provider renews its tokens, so that the pool logs
    in anew, or Redis has announced, over this connection, that it moves. Older redis-py does not hear that.
    """
    moves = getattr(connection, "should_reconnect", bool)
    is_plain = type(pool) is redis.ConnectionPool and connection.credential_provider is None
    if is_plain and connection.pid == pool.pid == os.getpid() and not moves():
        with pool._lock:
            if connection in pool._in_use_connections:
                pool._in_use_connections.remove(connection)
                pool._available_connections.append(connection)
                return
    pool.release(connection)


def _is_fit(connection: Any) -> bool:
    """Whether a connection is open, and nothing has come over it since it was last used."""
    try:
        return connection._sock is not None and not connection._parser.can_read(0)
    # The others: another thread closes the connection in between, and it has no socket any more.
    except (OSError, redis.RedisError, AttributeError, TypeError, ValueError):
        return False


class SentCommands(Protocol):
    """Commands on their way, whose replies have not been read."""

    def replies(self) -> list[Any]:
        """Waits for the replies, and returns them; errors of Redis are among them."""
        ...

    def close(self) -> None:
        """Closes the connections over which replies are awaited. Redis may run the commands or not."""
        ...


class Pool(Protocol):
    """What a store knows of its connections: they lead to one server, or to the nodes of a cluster.

    Attributes:
        several: Whether there are several nodes.
        partial_errors: What Redis raises where it has a part of an answer only: it may refuse something, such as for a
            missing right, and one of several nodes may be away.
    """

    several: bool
    partial_errors: tuple[type[Exception], ...]

    def is_partial(self, error: object) -> bool:
        """Whether an error says only that one of several nodes is away at the moment, while others may answer."""
        ...

    def client(self) -> redis.Redis:
        """Returns a client that sends each command to where its keys are."""
        ...

    def node_of(self, key: str) -> redis.ConnectionPool:
        """Returns the pool of the server that has a key now.

        Raises:
            redis.exceptions.ConnectionError: No node of the cluster is known to have the key.
        """
        ...

    def clients(self, *, replicas: bool = False) -> dict[str, redis.Redis]:
        """Returns a client of each server, of replicas only if asked, by its address; connects to none of them."""
        ...

    def aside(self) -> redis.ConnectionPool:
        """Returns a pool over the same connections that waits for no node of a cluster for long."""
        ...

    def send(self, commands: Sequence[Command]) -> SentCommands:
        """Sends commands once, whatever errors the client is set to retry, and returns before Redis has run them."""
        ...


class OneServer:
    """The connections to one server: a plain one, the primary behind Sentinel, or a service that shows one node."""

    several = False
    partial_errors: tuple[type[Exception], ...] = (redis.ResponseError,)

    def __init__(self, pool: redis.ConnectionPool) -> None:
        self._pool = pool

    def is_partial(self, error: object) -> bool:
        """Returns False: there is no other node."""
        return False

    def client(self) -> redis.Redis:
        """Returns a plain client."""
        return redis.Redis(connection_pool=self._pool)

    def node_of(self, key: str) -> redis.ConnectionPool:
        """Returns the pool itself."""
        return self._pool

    def clients(self, *, replicas: bool = False) -> dict[str, redis.Redis]:
        """Returns one client, by ``host:port`` or the path of a socket."""
        at = self._pool.connection_kwargs
        return {at.get("path") or f"{at.get('host', 'localhost')}:{at.get('port', 6379)}": self.client()}

    def aside(self) -> redis.ConnectionPool:
        """Returns the pool itself."""
        return self._pool

    def send(self, commands: Sequence[Command]) -> SentCommands:
        """Sends commands over a connection, which goes back to the pool with their replies."""
        return _OnOneConnection(self._pool, commands)


class _OnOneConnection:
    """Commands on their way over one connection."""

    def __init__(self, pool: redis.ConnectionPool, commands: Sequence[Command]) -> None:
        self._pool, self._awaited = pool, len(commands)
        self._connection: Any = take(pool)
        try:
            self._connection.send_packed_command(packed_commands(self._connection, commands))
        except BaseException:
            self.close()
            raise

    def replies(self) -> list[Any]:
        """Waits for the replies."""
        try:
            replies = [reply_of(self._connection) for _ in range(self._awaited)]
        except BaseException:
            self.close()
            raise
        give_back(self._pool, self._connection)
        return replies

    def close(self) -> None:
        """Closes the connection."""
        self._connection.disconnect()
        give_back(self._pool, self._connection)


def reply_of(connection: Any) -> Any:
    """Reads one reply; an error of Redis is one, too."""
    try:
        return connection.read_response()
    except redis.ResponseError as error:
        return error


@singledispatch
def pool_of(pool: redis.ConnectionPool) -> Pool:
    """Returns what a store has to know of a pool. That of a cluster registers itself."""
    return OneServer(pool)


def connected_at(pool: redis.ConnectionPool) -> float:
    """Returns when the latest connection of a server's pool was made, in s of ``monotonic``."""
    open_now = [*getattr(pool, "_available_connections", ()), *getattr(pool, "_in_use_connections", ())]
    return max((getattr(connection, "connected_at", inf) for connection in open_now), default=inf)


def as_sent(command: Command) -> Command:
    """Returns a command with all its texts as bytes.

    This is the only place where names become bytes. The Redis client would refuse names that are not UTF-8, and other
    clients may have put such names into the registry of queues or into an announcement.
    """
    name, *args = command
    return name, *[as_bytes(argument) if isinstance(argument, str) else argument for argument in args]


def packed_commands(connection: Any, commands: Sequence[Command]) -> list[bytes]:
    """Returns commands as they go over a connection, in less time than the Redis client for many arguments.

    The client makes two words of a name such as ``OBJECT IDLETIME``.
    """
    if all(_PACKED.issuperset(map(type, command)) and " " not in str(command[0]) for command in commands):
        return [b"".join([packed((), command) for command in commands])]  # sent in one step
    found: list[bytes] = connection.pack_commands(map(as_sent, commands))
    return found


def packed(start: Command, rest: Command) -> bytes:
    """Returns a command as it goes over the wire, in less time than the Redis client where many have the same start.

    Args:
        start: Name and first arguments: texts, bytes and integers. Their bytes are kept for the next command.
        rest: The other arguments. The last may be ``Packed``.

    Source: RESP, an array of bulk strings; https://redis.io/docs/latest/develop/reference/protocol-spec/
    """
    if len(rest) == 1 and type(rest[0]) is str and rest[0].isascii():
        return b"*%d\r\n%b$%d\r\n%b\r\n" % (len(start) + 1, _packed_start(start), len(rest[0]), rest[0].encode())
    count = len(start) + len(rest)
    if rest and isinstance(rest[-1], Packed):
        count += rest[-1].number - 1
    return b"*%d\r\n%b%b" % (count, _packed_start(start), _packed_all(rest))


@lru_cache(maxsize=1000)
def _packed_start(start: Command) -> bytes:
    return _packed_all(start)


def _packed_all(arguments: Command) -> bytes:
    if _TEXTS.issuperset(map(type, arguments)):
        text = "".join([f"${len(one)}\r\n{one}\r\n" for one in map(str, arguments)])
        if text.isascii():  # else the lengths are not those in bytes
            return text.encode()
    return b"".join(map(_packed, arguments))


def _packed(argument: str | bytes | int | Packed) -> bytes:
    if isinstance(argument, Packed):
        return argument.data
    sent = b"%d" % argument if isinstance(argument, int) else as_bytes(argument)
    return b"$%d\r\n%b\r\n" % (len(sent), sent)


def checked(replies: Iterable[Any]) -> list[Any]:
    """Returns replies. Raises the first error among them."""
    found = list(replies)
    for reply in found:
        if isinstance(reply, Exception):
            raise reply
    return found


def check_reached(replies: Iterable[Any]) -> None:
    """Raises the first error that is none of Redis, but of the connection to a node: nobody knows what it has."""
    checked(reply for reply in replies if not isinstance(reply, ResponseError))


def time_ms(time: Sequence[Any]) -> float:
    """Returns a reply to ``TIME``, seconds and microseconds, in ms since the epoch."""
    seconds, microseconds = time
    return float(seconds) * 1000 + float(microseconds) / 1000
