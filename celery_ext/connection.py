"""How a broker is reached by its URL, with or without an app."""

import ssl
from collections.abc import Callable, Iterator
from typing import Any

from kombu.connection import Connection
from redis.exceptions import AuthenticationError, InvalidResponse, NoPermissionError, ResponseError

from kombu_delayq.channel import DelayedChannel

TRANSPORT = "kombu_delayq.transport:Transport"

#: How errors of a server begin that no waiting ends: what it was asked for, it does not have.
_LASTING = (
    *("NOAUTH", "WRONGPASS", "NOPERM", "DB index is out of range", "invalid DB index", "value is out of range"),
    *("SELECT is not allowed", "MOVED", "CROSSSLOT", "unknown command"),
)
#: Reasons of TLS errors that may end by themselves: a connection that was lost meanwhile.
_PASSING_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ssl.SSLWantReadError)


def uses_delayq(app: Any) -> bool:
    """Whether an app's workers consume by our transport. Connects to nothing."""
    with app.connection_for_read() as connection:
        return issubclass(connection.get_transport_cls().Channel, DelayedChannel)


def open_channel(connection: Connection, failed: Callable[[Exception], object] = lambda error: None) -> Any:
    """Connects to the first broker of a connection that answers, each tried once, and returns a channel.

    Args:
        connection: To one broker or several.
        failed: Told the error of each that does not answer, but the last one, whose error is raised.
    """
    connection.ensure_connection(
        errback=lambda error, _: failed(error),
        max_retries=max(len(connection.alt), 1),
        interval_start=0,
        interval_step=0,
        reraise_as_library_errors=False,
    )
    return connection.default_channel


def is_lasting(error: BaseException) -> bool:
    """Tells whether waiting does not end an error of a first connection, because somebody has to mend something.

    So it is for a password, a database, rights or TLS that do not fit, and for what is no Redis at all. A host that is
    unknown may be known in a moment, as where containers start together.
    """
    if isinstance(error, (AuthenticationError, NoPermissionError, InvalidResponse)):
        return True
    if isinstance(error, ResponseError):
        return str(error).removeprefix("ERR ").startswith(_LASTING)
    return any(isinstance(cause, ssl.SSLError) and not isinstance(cause, _PASSING_TLS) for cause in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
