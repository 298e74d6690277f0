"""How the driver and the executors reach the broker, with no password in what Spark keeps or shows."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kombu.connection import Connection
from kombu.exceptions import KombuError
from kombu.utils.url import maybe_sanitize_url, parse_url
from redis.exceptions import RedisError

from celery_ext.connecting import TRANSPORT, open_channel
from celery_ext.spark.errors import BrokerUnavailable, InvalidSparkOption
from kombu_delayq import urls
from kombu_delayq.channel import connect_store
from kombu_delayq.store import DelayStore

_PASSWORD_IN_QUERY = re.compile(r"[?&][^=&]*password[^=&]*=", re.IGNORECASE)


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
        url: str | None,
        env: str | None,
        transport_options: Mapping[str, Any],
        tls: Any = None,
        option: str = "broker_url",
    ) -> "Broker":
        """Takes a broker from options.

        Args:
            url: Its URL.
            env: Or the environment variable.
            transport_options: Options of the transport.
            tls: As ``broker_use_ssl`` of an app.
            option: Name of the option that may give the URL, for errors.

        Raises:
            InvalidSparkOption: Not exactly one is given, or it has a password that Spark would keep.
        """
        if (url is None) == (env is None):
            raise InvalidSparkOption(f"which broker? Give either {option} or {option}_env")
        if url is not None and _has_password(url):
            raise InvalidSparkOption(
                f"{option} has a password, which Spark would keep in plans and pickles. Put the URL into an "
                f"environment variable of the driver and of all executors, and give its name as {option}_env"
            )
        if any("password" in name.lower() for name in _names_in({"options": transport_options, "tls": tls})):
            raise InvalidSparkOption(
                f"broker_transport_options have a password, which Spark would keep; put it into the URL of {option}_env"
            )
        return cls(url, env, dict(transport_options), tls)

    def connect(self) -> DelayStore:
        """Connects to the broker, once.

        Raises:
            InvalidSparkOption: The environment variable is not set.
            BrokerUnavailable: The broker does not answer.
        """
        url = self._url()
        try:
            options = dict(self.transport_options)
            connection = Connection(urls.ours(url), transport=TRANSPORT, transport_options=options, ssl=self.tls)
            channel = open_channel(connection)
            store = connect_store(channel, channel.pool)
            store.client.ping()
        except (RedisError, OSError, KombuError) as error:
            raise BrokerUnavailable(f"the broker {maybe_sanitize_url(url)} cannot be used: {error}") from None
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


def _has_password(url: str) -> bool:
    for each in url.split(";"):
        if _PASSWORD_IN_QUERY.search(each):
            return True
        try:
            if "@" in each and parse_url(each).get("password"):
                return True
        except ValueError:
            return True  # what cannot be read may have one
    return False


def _names_in(options: Mapping[str, Any]) -> list[str]:
    """Returns the names of options, also of those within others."""
    found = list(options)
    for value in options.values():
        if isinstance(value, Mapping):
            found += _names_in(value)
    return found
