"""How driver and executors reach the broker, without a password in what Spark keeps or shows, and try again."""

import logging
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic, sleep
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import unquote

from kombu.connection import Connection
from kombu.exceptions import KombuError
from kombu.utils.url import parse_url
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from celery_ext.connection import TRANSPORT, open_store
from celery_ext.spark.app_settings import AppSettings
from celery_ext.spark.errors import BrokerUnavailable, InvalidSparkOption
from celery_ext.spark.options import BrokerOptions
from celery_ext.spark.python_workers import log
from kombu_delayq import urls
from kombu_delayq.channel import DelayedChannel
from kombu_delayq.errors import AnswerLost, DelayqError, StoreUnavailable
from kombu_delayq.options import STORES
from kombu_delayq.redis import Backoff, NotPrimary, is_full, passes
from kombu_delayq.store import DelayStore

T = TypeVar("T")
#: Shortest and longest pause before another try, in s.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
#: Errors that go away by themselves, beside those that ``redis.errors`` knows by their texts.
_TEMPORARY = (BrokerUnavailable, AnswerLost, NotPrimary, RedisConnectionError, RedisTimeoutError)
_PASSWORD_IN_DATABASE = re.compile(r"^(?!sqlite).*://[^@]*:[^@]*@|[?&][^=&]*password[^=&]*=", re.IGNORECASE)
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
        env_options: By transport option that asks for a database beside Redis: name of the environment variable that
            has its value.
    """

    url: str | None
    env: str | None
    transport_options: Mapping[str, Any]
    tls: Any = None
    env_options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        url: str | Sequence[str] | None,
        env: str | None,
        transport_options: Mapping[str, Any],
        tls: Any = None,
        option: str = "broker_url",
        env_options: Mapping[str, str] = MappingProxyType({}),
    ) -> "Broker":
        """Returns a broker from options.

        Args:
            url: Its URL, or several URLs, as ``broker_url`` of an app has them.
            env: Name of the environment variable that has the URL.
            transport_options: Transport options.
            tls: Value of the app's ``broker_use_ssl``.
            option: Name of the option for ``url``, for errors.
            env_options: As the attribute.

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
        options = {name: value for name, value in transport_options.items() if name not in env_options}
        for name in STORES:
            if _PASSWORD_IN_DATABASE.search(unquote(str(options.get(name) or ""))):
                raise InvalidSparkOption(
                    f"the transport option {name} has a password, which Spark would keep in plans and pickles. Put the "
                    "URL into an environment variable of the driver and of all executors, and give its name as "
                    f"{name}_env"
                )
        return cls(together, env, options, tls, dict(env_options))

    @classmethod
    def named_by(cls, options: BrokerOptions, app: AppSettings) -> "Broker":
        """Returns the broker that options name, else that of the app.

        Raises:
            InvalidSparkOption: Neither names one, or it has a password that Spark would keep.
        """
        url = options.broker_url
        if url is None and options.broker_url_env is None:
            url = app.broker_url
        transport_options = {**app.transport_options, **(options.broker_transport_options or {})}
        return cls.of(url, options.broker_url_env, transport_options, app.tls, env_options=env_options(options))

    @property
    def keeps_elsewhere(self) -> bool:
        """Whether messages may wait beside Redis."""
        return any(name in self.env_options or self.transport_options.get(name) for name in STORES)

    def connect(self) -> DelayStore:
        """Connects to the broker, in one try. The caller closes the store; nothing else stays connected.

        Raises:
            InvalidSparkOption: The environment variable is not set, or its URL cannot be parsed or leads to no Redis; a
                transport option is wrong; or the packages for the journal are missing.
            BrokerUnavailable: The broker does not answer.
        """
        url = self.url if self.url is not None else _variable(self.env or "", "broker URL")
        try:
            shown = ";".join(map(_shown, urls.split(url)))
        except _UNREADABLE:
            where = f"the URL in the environment variable {self.env}" if self.url is None else "the broker URL"
            raise InvalidSparkOption(
                f"{where} cannot be read; it is not shown, because it may have a password. In a URL, write each "
                "character of a password that is neither a letter nor a digit as % and two hex digits"
            ) from None
        values = {name: _variable(env, f"URL of the {STORES[name]}") for name, env in self.env_options.items()}
        options = {**self.transport_options, **values}
        try:
            with Connection(urls.ours(url), transport=TRANSPORT, transport_options=options, ssl=self.tls) as connection:
                store = open_store(connection, pool=DelayedChannel.own_pool)
            store.client.ping()
        except (RedisError, OSError, KombuError) as error:
            raise BrokerUnavailable(f"the broker {shown} cannot be used: {error}") from None
        except DelayqError as error:  # the URL, or transport options
            raise InvalidSparkOption(str(error)) from None
        except _UNREADABLE as error:
            raise InvalidSparkOption(f"the broker {shown} cannot be used: {error}") from None
        return store

    @contextmanager
    def connected(self, timeout_s: float) -> Iterator[tuple[DelayStore, "Retry"]]:
        """Connects to the broker, trying again for so long, in s; yields the store, and what tries its calls again."""
        retry = Retry(timeout_s)
        store = retry.until_done(self.connect)
        try:
            yield store, retry
        finally:
            store.close()


def env_options(options: BrokerOptions) -> dict[str, str]:
    """Returns the environment variables that options name for values of transport options, by transport option."""
    return {name: env for name in STORES if (env := getattr(options, f"{name}_env", None))}


def _variable(name: str, what: str) -> str:
    """Returns the value of an environment variable. what: Of what it is, for the error.

    Raises:
        InvalidSparkOption: The variable is not set.
    """
    value = os.environ.get(name)
    if not value:
        raise InvalidSparkOption(
            f"the environment variable {name} for the {what} is not set in this process. Set it before Spark starts, "
            "on the driver and on every executor (with spark.executorEnv)"
        )
    return value


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
    if not parse_url(urls.with_one_host(url) if scheme.endswith("+cluster") else url)["hostname"] and at:
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


class Retry:
    """Tries again, with growing pauses, until something succeeds or takes too long.

    Args:
        timeout_s: Longest time without progress, in s.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._since: float | None = None
        self._is_told = False
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)

    def progress(self) -> None:
        """Starts the time anew, because something succeeded."""
        self._since = None
        self._backoff.succeeded()

    def wait(self, reason: object) -> None:
        """Pauses before another try.

        Args:
            reason: Why another try is needed.

        Raises:
            BrokerUnavailable: The time is over.
        """
        now = monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since >= self._timeout_s:
            raise BrokerUnavailable(
                f"no message could be sent for {self._timeout_s:g} s, the option write_timeout: {reason}"
            )
        sleep(self._backoff.failed() * random.uniform(0.5, 1))

    def until_done(self, call: Callable[[], T], is_progress: Callable[[T], bool] = lambda _: True) -> T:
        """Repeats a call while it fails with a temporary error, and returns its result.

        Args:
            call: The call.
            is_progress: Whether a result is progress. Without progress the time goes on.

        Raises:
            BrokerUnavailable: The time is over.
        """
        while True:
            try:
                result = call()
            except (RedisError, BrokerUnavailable, AnswerLost) as error:
                if not is_temporary(error):
                    raise
                self._wait_told(error)
            except StoreUnavailable as error:
                self._wait_told(f"the {error.feature}'s database fails with {type(error).__name__}")
            else:
                if is_progress(result):
                    self.progress()
                return result

    def _wait_told(self, reason: object) -> None:
        """Pauses as ``wait`` does. Logs the first time why."""
        if not self._is_told:
            self._is_told = True
            log(logging.WARNING, f"tries again, for up to {self._timeout_s:g} s, the option write_timeout: {reason}")
        self.wait(reason)


def is_temporary(error: Exception) -> bool:
    """Whether the next try may succeed: Redis is out of reach, takes no writes, is full, or runs a long script."""
    return isinstance(error, _TEMPORARY) or passes(error) or is_full(error)
