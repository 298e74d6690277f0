"""How driver and executors reach the broker, without a password in what Spark keeps or shows."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from kombu.connection import Connection
from kombu.exceptions import KombuError
from kombu.utils.url import parse_url
from redis.exceptions import RedisError

from celery_ext.connection import TRANSPORT, open_store
from celery_ext.spark.errors import BrokerUnavailable, InvalidSparkOption
from kombu_delayq import urls
from kombu_delayq.channel import DelayedChannel
from kombu_delayq.errors import DelayqError
from kombu_delayq.store import SparkStore

_PASSWORD_IN_QUERY = re.compile(r"[?&][^=&]*password[^=&]*=", re.IGNORECASE)
#: What kombu raises for a URL that it cannot parse, or whose parameters neither kombu nor redis-py accepts.
_UNREADABLE = (ValueError, KeyError, TypeError)


@dataclass(frozen=True)
class Broker:
    """A broker as executors get it: its URL without a password, or the environment variable that has the URL.

    Attributes:
        url: The URL; None when ``env`` is given.
        env: Name of the environment variable; None when ``url`` is given.
        transport_options: Transport options.
        tls: Value of the app's ``broker_use_ssl``.
    """

    url: str | None
    env: str | None
    transport_options: Mapping[str, Any]
    tls: Any = None

    @classmethod
    def of(
        cls,
        url: str | Sequence[str] | None,
        env: str | None,
        transport_options: Mapping[str, Any],
        tls: Any = None,
        option: str = "broker_url",
    ) -> "Broker":
        """Returns a broker from options.

        Args:
            url: Its URL, or several URLs, as ``broker_url`` of an app has them.
            env: Name of the environment variable that has the URL.
            transport_options: Transport options.
            tls: Value of the app's ``broker_use_ssl``.
            option: Name of the option for ``url``, for errors.

        Raises:
            InvalidSparkOption: Both or neither of ``url`` and ``env`` are given, or there is a password that Spark
                would keep.
        """
        if (url is None) == (env is None):
            raise InvalidSparkOption(f"which broker? Give either {option} or {option}_env")
        together = None if url is None else ";".join(urls.split(url))
        if together is not None and _may_have_password(together):
            raise InvalidSparkOption(
                f"{option} has a password, or cannot be read and may have one, which Spark would keep in plans and "
                "pickles. Put the URL into an environment variable of the driver and of all executors, and give its "
                f"name as {option}_env"
            )
        if any(word in name for name in _names_in([transport_options, tls]) for word in ("password", "credential")):
            raise InvalidSparkOption(
                f"broker_transport_options have a password, which Spark would keep; put it into the URL of {option}_env"
            )
        return cls(together, env, dict(transport_options), tls)

    def connect(self) -> SparkStore:
        """Connects to the broker, in one try. The caller closes the store; nothing else stays connected.

        Raises:
            InvalidSparkOption: The environment variable is not set, or its URL cannot be parsed.
            BrokerUnavailable: The broker does not answer.
        """
        url = self._url()
        try:
            shown = ";".join(map(_shown, urls.split(url)))
        except _UNREADABLE:
            where = f"the URL in the environment variable {self.env}" if self.url is None else "the broker URL"
            raise InvalidSparkOption(
                f"{where} cannot be read; it is not shown, because it may have a password. In a URL, write each "
                "character of a password that is neither a letter nor a digit as % and two hex digits"
            ) from None
        try:
            options = dict(self.transport_options)
            with Connection(urls.ours(url), transport=TRANSPORT, transport_options=options, ssl=self.tls) as connection:
                store = open_store(connection, pool=DelayedChannel.own_pool)
            store.client.ping()
        except DelayqError:
            raise
        except (RedisError, OSError, KombuError) as error:
            raise BrokerUnavailable(f"the broker {shown} cannot be used: {error}") from None
        except _UNREADABLE as error:
            raise InvalidSparkOption(f"the broker {shown} cannot be used: {error}") from None
        return store

    def _url(self) -> str:
        if self.url is not None:
            return self.url
        url = os.environ.get(self.env or "")
        if not url:
            raise InvalidSparkOption(
                f"the environment variable {self.env} for the broker URL is not set in this process. Set it before "
                "Spark starts, on the driver and on every executor (with spark.executorEnv)"
            )
        return url


def _may_have_password(url: str) -> bool:
    try:
        return any(
            ":" in unquote(single.partition("://")[2].rpartition("@")[0]) or _PASSWORD_IN_QUERY.search(unquote(single))
            for single in url.split(";")
            if _shown(single)
        )
    except _UNREADABLE:
        return True


def _shown(url: str) -> str:
    """Returns a URL without user, password and parameters.

    Raises:
        ValueError: The URL cannot be parsed, so that a password may be anywhere in it.
        KeyError: A parameter has a value that kombu does not know.
        TypeError: A parameter repeats a part of the address.
    """
    address = url.partition("?")[0]
    scheme, mark, rest = address.partition("://")
    before, at, place = rest.rpartition("@")
    if "@" in url and (not at or "@" in url[len(address) :] or set(before) & set("/#")):
        raise ValueError("an unquoted character ends the address before its @")
    if not parse_url(url)["hostname"] and at:
        raise ValueError("it has a user, but no host")
    return f"{scheme}{mark}{place}"


def _names_in(options: Any) -> Iterator[str]:
    """Yields the names of options in lower case, at any depth."""
    if isinstance(options, Mapping):
        yield from (str(name).lower() for name in options)
        options = options.values()
    elif not isinstance(options, (list, tuple)):
        return
    for option in options:
        yield from _names_in(option)
