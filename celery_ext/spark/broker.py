"""How the driver and the executors reach the broker, with no password in what Spark keeps or shows."""

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

from celery_ext.connection import TRANSPORT, open_channel
from celery_ext.spark.errors import BrokerUnavailable, InvalidSparkOption
from kombu_delayq import urls
from kombu_delayq.channel import connect_store
from kombu_delayq.errors import DelayqError
from kombu_delayq.store import SparkStore

_PASSWORD_IN_QUERY = re.compile(r"[?&][^=&]*password[^=&]*=", re.IGNORECASE)
#: What kombu raises for a URL that it cannot read, or whose parameters neither it nor the client of Redis takes.
_UNREADABLE = (ValueError, KeyError, TypeError)


@dataclass(frozen=True)
class Broker:
    """A broker as it is handed to executors: its URL without a password, or where they find it.

    Attributes:
        url: The URL; None when ``env`` names it.
        env: Name of the environment variable that has it.
        transport_options: Options of the transport.
        tls: As ``broker_use_ssl`` of an app.
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
        """Takes a broker from options.

        Args:
            url: Its URL, or several, as ``broker_url`` of an app has them.
            env: Or the environment variable.
            transport_options: Options of the transport.
            tls: As ``broker_use_ssl`` of an app.
            option: Name of the option that may give the URL, for errors.

        Raises:
            InvalidSparkOption: Not exactly one is given, or it has a password that Spark would keep.
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
        """Connects to the broker, once. Whoever asks closes the store; nothing else stays connected.

        Raises:
            InvalidSparkOption: The environment variable is not set, or the URL is none.
            BrokerUnavailable: The broker does not answer.
        """
        url = self._url()
        try:
            shown = ";".join(map(_shown, urls.split(url)))
        except _UNREADABLE:
            where = f"the URL in the environment variable {self.env}" if self.url is None else "the broker URL"
            raise InvalidSparkOption(
                f"{where} cannot be read; it is not shown, for it may have a password. A password in a URL has % and "
                "two hex digits for each character that is neither a letter nor a digit"
            ) from None
        try:
            options = dict(self.transport_options)
            with Connection(urls.ours(url), transport=TRANSPORT, transport_options=options, ssl=self.tls) as connection:
                channel = open_channel(connection)
                store = connect_store(channel, channel.own_pool())
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
                f"the environment variable {self.env}, which is to have the broker URL, is not set in this process; "
                "it must be there before Spark starts, on the driver and on every executor "
                "(spark.executorEnv sets it there)"
            )
        return url


def _may_have_password(url: str) -> bool:
    try:
        return any(
            ":" in unquote(each.partition("://")[2].rpartition("@")[0]) or _PASSWORD_IN_QUERY.search(unquote(each))
            for each in url.split(";")
            if _shown(each)
        )
    except _UNREADABLE:
        return True


def _shown(url: str) -> str:
    """Returns one URL of a list without its user, password and parameters.

    Raises:
        ValueError: It is none, so that its password may be in any place.
        KeyError: It has a parameter of a value that kombu does not know.
        TypeError: It has a parameter that is also in its address.
    """
    address = url.partition("?")[0]
    scheme, mark, rest = address.partition("://")
    before, at, place = rest.rpartition("@")
    if "@" in url and (not at or "@" in url[len(address) :] or set(before) & set("/#")):
        raise ValueError("a character that is to be quoted ends the address before its @")
    if not parse_url(url)["hostname"] and at:
        raise ValueError("it has a user, but no host")
    return f"{scheme}{mark}{place}"


def _names_in(options: Any) -> Iterator[str]:
    """Yields the names of options, also of those within others, in lower case."""
    if isinstance(options, Mapping):
        yield from (str(name).lower() for name in options)
        options = options.values()
    elif not isinstance(options, (list, tuple)):
        return
    for each in options:
        yield from _names_in(each)
