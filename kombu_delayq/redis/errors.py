"""Errors of Redis: those that pass, those of one node or a full Redis, and those of a Redis that takes no writes now.

The last become a lost connection for kombu, Celery and publishers, which then connect again. After a loss of writes
they reach the primary wherever the address leads to it.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

from kombu.exceptions import OperationalError
from redis import Redis
from redis.connection import Connection
from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.sentinel import SentinelManagedConnection

from kombu_delayq.options import Options
from kombu_delayq.redis import connections

#: What a caller of the store or of kombu gets while Redis is away, or refuses.
AWAY = (RedisError, OSError, OperationalError)

#: After an error that passes, Redis is asked again so much later, in s.
PASSING_S = 1.0

#: Errors of a Redis that refuses commands for a while, and keeps its connections: it runs somebody's script for long,
#: or it could not write its latest snapshot. redis-py has no classes for them, and its pipelines put words before them;
#: so does Redis 6.2 where a script gets them.
_PASSING = re.compile(r"(.*(caused error: | -))?(BUSY|MISCONF) ")

#: Errors of a replica: for a write; for any command while its primary is down. redis-py cuts the codes off their texts.
OF_REPLICA: tuple[type[ResponseError], ...] = (ReadOnlyError, MasterDownError)
#: Other errors of a Redis that takes no writes, by text: Redis 6.2 has the codes inside the text of a script's error;
#: UNBLOCKED ends a BRPOP when a primary becomes a replica; NOREPLICAS refuses a write while ``min-replicas-to-write``
#: is not met.
_REFUSAL = re.compile(r"UNBLOCKED |NOREPLICAS |.* -(READONLY|MASTERDOWN|NOREPLICAS) ")

#: Errors of a Redis that does not let this user run a command, also inside a script.
_DENIED = re.compile("NOPERM|executing the script can't|Unknown Redis command")

#: Brokers, by URL, that took no writes when they were last used, though a connection to them succeeds.
_refusing: set[str] = set()

_Connection: Any = Connection if TYPE_CHECKING else object


class NotPrimary(ResponseError, OSError):
    """Redis takes no writes: it is a replica, a primary that has lost its replicas, or in a cluster that is down.

    For kombu and Celery it is an ``OSError``, so a lost connection. For the Redis client it is a reply: after a lost
    connection the client's transactions begin again at once, and would do so without end at the same Redis.
    """


class NotReached(RedisConnectionError):
    """No server was reached that could run a command, so none has run it."""


#: Errors of a node that has not run a command, but may run it soon: it lacks some of the keys while their slot moves,
#: the cluster lacks nodes, or a primary lacks replicas.
NOT_RUN = (TryAgainError, ClusterDownError, NotPrimary)


class _NoticesDemotion(_Connection):
    """A mixin, to the left of a class of connections, so that all commands and replies pass through it."""

    on_refusal: Callable[[], object]
    refusals: tuple[type[ResponseError], ...]
    socket_timeout: float | None
    _is_lost = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        connections.keep_from_children(self)

    def _connect(self) -> Any:
        self.connected_at, self._check_at_first = monotonic(), self.next_health_check
        # The TLS handshake is part of connecting, but redis-py lets it last as long as an answer, so often for ever.
        answer_s, self.socket_timeout = self.socket_timeout, self.socket_connect_timeout
        try:
            sock = super()._connect()
        finally:
            self.socket_timeout = answer_s
        sock.settimeout(answer_s)
        return sock

    def _send_ping(self) -> None:
        # redis-py does so before a connection is used that is new, or was not used for long. If such a one has gone
        # silent, as behind a NAT that has forgotten it, another takes its place: Redis has nothing to run twice.
        if self.next_health_check == self._check_at_first:  # nothing has come yet
            super()._send_ping()
            return
        self._sock.settimeout(min(self.socket_timeout or inf, Options.answer_s))
        try:
            super()._send_ping()
        except (RedisConnectionError, RedisTimeoutError):
            self.disconnect()
            self.connect()
        else:
            self._sock.settimeout(self.socket_timeout)

    def send_packed_command(self, *args: Any, **kwargs: Any) -> None:
        if self._is_lost:
            self._is_lost = False
            self.disconnect()
            self.connect()  # to wherever the name or the Sentinels lead now
        super().send_packed_command(*args, **kwargs)

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        # redis-py's class for Sentinel would turn READONLY into an error of its own.
        own: Any = SentinelManagedConnection if isinstance(self, SentinelManagedConnection) else _NoticesDemotion
        try:
            return super(own, self).read_response(*args, **kwargs)
        except ResponseError as error:
            if not isinstance(error, self.refusals) and not _REFUSAL.match(str(error)):
                raise
            self._is_lost = True
            self.on_refusal()
            raise NotPrimary(f"this Redis is not the primary, or takes no writes now: {error}") from error


def noticing_demotion(
    connection_class: type[Any],
    on_refusal: Callable[[], object],
    refusals: tuple[type[ResponseError], ...] = (*OF_REPLICA, ClusterDownError),
) -> type[Any]:
    """Returns a class of connections that end when Redis refuses a write because it is not the primary, or is down.

    Args:
        connection_class: The class to extend.
        on_refusal: Called when Redis refuses.
        refusals: The errors that are a refusal; by default those of the only Redis that one knows. If it has hash slots
            it refuses all commands for 2 s after its start, and while its cluster has lost too many nodes.
    """
    members = {"on_refusal": staticmethod(on_refusal), "refusals": refusals}
    return type(connection_class.__name__, (_NoticesDemotion, connection_class), members)


def note_refusal(broker: str) -> None:
    """Notes that a broker takes no writes, so that ``check_writes`` looks before its next use."""
    _refusing.add(broker)


def check_writes(broker: str, client: Callable[[], Redis], key: str) -> None:
    """Tries a write if a broker has refused one before. Raises its error, so that the caller pauses and connects again.

    kombu's own check is a PING, which a replica answers, too.

    Args:
        broker: URL of the broker.
        client: Returns a client of the broker; called only if the broker refused a write before.
        key: Name of a HASH; the write changes nothing in it.
    """
    if broker in _refusing:
        with suppress(NoPermissionError):  # this user's ACL forbids the try
            client().hdel(key, "")
        _refusing.discard(broker)


def is_denied(reply: Any) -> bool:
    """Whether a reply says that the user may not run a command, also one inside a script, or that there is none."""
    return isinstance(reply, NoPermissionError) or (
        isinstance(reply, ResponseError) and bool(_DENIED.search(str(reply)))
    )


def passes(reply: Any) -> bool:
    """Whether a reply is an error that passes without anybody's connecting again. The command was not run."""
    return isinstance(reply, ResponseError) and _PASSING.match(str(reply)) is not None


def is_full(reply: Any) -> bool:
    """Whether a reply says that Redis has no memory for a write. Redis 6.2 has the code inside a script's error."""
    return isinstance(reply, OutOfMemoryError) or (
        isinstance(reply, ResponseError) and "used memory > 'maxmemory'" in str(reply)
    )


def wrong_type(key: str, kind: str, kept: str) -> str:
    """Returns the text of an error about a key that has another type than ours, as scripts have it."""
    return f"WRONGTYPE key {key} holds a {kind}, kombu-delayq keeps a {kept} there"


def is_wrong_type(reply: Any) -> bool:
    """Whether a reply is an error about a key that has another type: somebody has to move the key away."""
    return isinstance(reply, ResponseError) and "WRONGTYPE" in str(reply)


def clears(reply: Any) -> bool:
    """Whether a reply is an error after which a consumer waits and asks again: it passes, or a key is in the way."""
    return passes(reply) or is_wrong_type(reply)


def raise_as_lost(error: ResponseError) -> None:
    """Raises an error that passes as that of a Redis that loads its data; any other one is left to the caller.

    kombu and Celery take this one for a lost connection, and connect again until it has passed. The other one would end
    a worker.

    Raises:
        redis.exceptions.BusyLoadingError: The error passes.
    """
    if passes(error):
        raise BusyLoadingError(str(error)) from error
