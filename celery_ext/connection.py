"""Connects to a broker, named by an app or by its URL."""

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from kombu.connection import Connection
from kombu.exceptions import OperationalError
from kombu.utils.url import maybe_sanitize_url
from redis import ConnectionPool
from redis.exceptions import AuthenticationError, InvalidResponse, NoPermissionError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from celery_ext.features import key_names
from kombu_delayq.channel import DelayedChannel, connect_store
from kombu_delayq.errors import OtherTransport
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.urls import SCHEMES, split

TRANSPORT = "kombu_delayq.transport:Transport"

#: How often to connect: these options of a retry policy, such as the setting ``task_publish_retry_policy``.
RETRY_OPTIONS = ("max_retries", "interval_start", "interval_step", "interval_max")

#: Beginnings of Redis errors that last until somebody changes a password, a right, a URL or the server.
_PERMANENT = (
    *("NOAUTH", "WRONGPASS", "NOPERM", "DB index is out of range", "invalid DB index", "value is out of range"),
    *("SELECT is not allowed", "MOVED", "CROSSSLOT", "unknown command"),
)
#: TLS errors that may pass, because only the connection was lost.
_PASSING_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ssl.SSLWantReadError)


#: Exchanges of remote control, its replies and events.
_OF_CELERY = ("celery.pidbox", "reply.celery.pidbox", "celeryev")


def open_store(
    connection: Connection,
    *,
    pool: Callable[[DelayedChannel], ConnectionPool] | None = None,
    retry_policy: Mapping[str, Any] | None = None,
    on_error: Callable[[Exception], object] = lambda error: None,
) -> DelayStore:
    """Connects to the first broker that answers, and returns the store of its delayed messages.

    Args:
        connection: A connection to one broker, or to several of a failover list.
        pool: Makes the pool that the store uses, such as ``DelayedChannel.own_pool``; the caller closes that store.
            None for the pool of the connection's channel, which closes with the connection.
        retry_policy: How often to connect, with ``RETRY_OPTIONS``; None to try each broker once.
        on_error: Gets the error of each broker that does not answer, but not the last error, which is raised.

    Raises:
        OtherTransport: The connection uses another transport, or with a pool that in memory of tests.
        kombu.exceptions.OperationalError: With a retry policy: no broker answered.
        RedisError, OSError: Without a retry policy: no broker answered; this is the error of the last one.
    """
    if not connection.connected:
        once = {"max_retries": max(len(connection.alt), 1), "interval_start": 0, "interval_step": 0}
        policy = once if retry_policy is None else retry_policy
        connection.ensure_connection(
            errback=lambda error, _: on_error(error),
            reraise_as_library_errors=retry_policy is not None,
            **{name: policy[name] for name in RETRY_OPTIONS if name in policy},
        )
    channel = connection.default_channel
    if not keeps_delayed(type(channel)):
        raise OtherTransport(
            f"{connection.as_uri()} does not use kombu-delayq, so no task waits there; "
            f'set broker_transport = "{TRANSPORT}"'
        )
    if pool is None:
        return _store_of(channel)
    if not isinstance(channel, DelayedChannel):
        raise OtherTransport(
            "the broker of this test is in memory, and has only what apps and tasks use; `delayq`, the page and Spark "
            'need a Redis: let the fixture delayed_tasks_broker return "redis"'
        )
    return connect_store(channel, pool(channel))


@contextmanager
def as_operational_errors() -> Iterator[None]:
    """Raises kombu's ``OperationalError``, as ``apply_async`` does, where Redis or a database beside it is away.

    Errors with which Redis answers stay those of redis-py.
    """
    try:
        yield
    except (RedisConnectionError, RedisTimeoutError, ConnectionError) as error:  # a database's is the built-in one
        raise OperationalError(str(error)) from error


def patient_options(given: Mapping[str, Any], *, hurried: bool) -> dict[str, Any]:
    """Returns transport options with limits to how long a connection waits for Redis.

    Without limits, kombu waits minutes for a host that is away, and forever for a server that does not answer.

    Args:
        given: Transport options, which override the limits.
        hurried: Whether every answer has a time limit; otherwise only connecting has one.
    """
    limits = ("socket_connect_timeout", "socket_timeout")[: 1 + hurried]
    return {**dict.fromkeys(limits, given.get("socket_timeout") or Options.answer_s), **given}


def store_of_consumer(consumer: Any) -> DelayStore | None:
    """Returns the store of a worker's broker, over the worker's own connections.

    Args:
        consumer: The worker's ``Consumer``.

    Returns:
        The store; None while the consumer is not connected, or if it uses another transport.
    """
    channel = getattr(consumer.task_consumer, "channel", None)
    return _store_of(channel) if keeps_delayed(type(channel)) else None


def channel_of_consumer(consumer: Any) -> DelayedChannel | None:
    """Returns a worker's own channel to Redis; None while it is not connected, or if it uses another transport."""
    channel = getattr(consumer.task_consumer, "channel", None)
    return channel if isinstance(channel, DelayedChannel) else None


def wrong_keys(store: Any, app: Any) -> list[str]:
    """Returns errors of keys of another type in the place of those of all queues (see ``Queues.wrong_keys``).

    Args:
        store: The store of the broker.
        app: The app, which knows queues and exchanges; None without one.
    """
    queues = {} if app is None else app.amqp.queues
    exchanges = {queue.exchange.name for queue in queues.values() if queue.exchange} | {*queues, "celery"}
    found: list[str] = store.queues.wrong_keys(queues, [*sorted(exchanges - {""}), *_OF_CELERY], key_names())
    return found


def uses_delayq(connection: Connection) -> bool:
    """Whether a connection uses our transport. Connects to nothing."""
    return keeps_delayed(connection.get_transport_cls().Channel)


def keeps_delayed(channel: type) -> bool:
    """Whether channels of a class keep delayed messages in a store: ours on Redis, and that in memory for tests."""
    return hasattr(channel, "store")


def stock_transport(app: Any) -> str | None:
    """Returns the name of the transport that an app itself uses, if it is not ours; else None."""
    if app is None:
        return None
    for connect in (app.connection_for_write, app.connection_for_read):
        name = app.conf.broker_transport
        try:
            connection = connect()
            name = connection.transport_cls
            ours = uses_delayq(connection)
        except (ImportError, KeyError, AttributeError):  # the app's transport does not exist, so it is not ours
            ours = False
        if not ours:
            return str(name)
    return None


def bypasses(conf: Any) -> Iterator[tuple[str, str]]:
    """Yields the broker URLs of an app that make kombu overlook our transport, and what to write instead.

    kombu takes a scheme with ``+``, such as ``redis+socket``, for the transport, and drops ``broker_transport``.

    Args:
        conf: The settings of the app.

    Yields:
        The URL without its password, and the scheme to write.
    """
    if not str(conf.broker_transport or "").startswith("kombu_delayq."):
        return
    for given in (conf.broker_read_url, conf.broker_write_url, conf.broker_url):
        for url in split(given or ""):
            scheme = url.partition("://")[0].lower()
            if "+" in scheme and scheme not in SCHEMES:
                yield str(maybe_sanitize_url(url)), "delayq+socket" if scheme == "redis+socket" else "delayq"


def is_permanent(error: BaseException) -> bool:
    """Whether an error of a first connection lasts until somebody mends something.

    A wrong password, database, right or certificate lasts, and so does a server that is no Redis. An unknown host does
    not: where containers start together, its name may be known in a moment.
    """
    if isinstance(error, (AuthenticationError, NoPermissionError, InvalidResponse)):
        return True
    if isinstance(error, ResponseError):
        return str(error).removeprefix("ERR ").startswith(_PERMANENT)
    return any(isinstance(cause, ssl.SSLError) and not isinstance(cause, _PASSING_TLS) for cause in _causes(error))


def _store_of(channel: Any) -> DelayStore:
    return cast(DelayStore, channel.store)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
