"""Finds the broker of a command, and connects to it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click
from celery import Celery
from celery.app.utils import find_app
from celery.loaders.default import Loader
from click.core import ParameterSource
from kombu.connection import Connection
from redis.exceptions import RedisError

from celery_ext.cli.group import is_unwritable
from celery_ext.cli.output import escaped, logs_on_stderr
from celery_ext.connection import TRANSPORT, open_store, patient_options
from kombu_delayq import urls
from kombu_delayq.errors import DelayqError, StoreUnavailable
from kombu_delayq.options import CHECKED, number, or_none
from kombu_delayq.store import DelayStore


def given_app(app: Celery | None) -> Celery | None:
    """Returns the app of ``celery -A``, or None for the one that Celery makes where none is given.

    That one counts if it finds settings, in a module ``celeryconfig``.
    Source: celery._state._get_current_app
    """
    if app is None or app.main != "default" or not isinstance(app.loader, Loader):
        return app
    return app if app.loader.conf and app.loader.configured else None


class CliBroker:
    """A broker, named by URL or by an app, which URL and transport options override.

    Args:
        app: The app of ``celery -A``.
        broker: URL.
        options: Transport options.
        fallback: URL if neither ``broker`` nor the app names one.
    """

    def __init__(
        self, app: Celery | None, broker: str | None, options: dict[str, Any], fallback: str | None = None
    ) -> None:
        self.app = app
        self._broker = broker
        self._options = options
        self._fallback = fallback

    @classmethod
    def of(cls, context: click.Context, app: Celery | None) -> "CliBroker":
        """Returns the broker that the options of ``delayq`` name. An app's broker overrides environment variables."""
        broker, options = context.params.get("broker"), {}
        of_app = {} if app is None else app.conf.broker_transport_options or {}
        for name in CHECKED & context.params.keys():  # some transport options have an option of their own
            is_of_environment = context.get_parameter_source(name) is ParameterSource.ENVIRONMENT
            if context.params[name] and not (is_of_environment and name in of_app):
                options[name] = context.params[name]
        options |= context.params.get("options") or {}
        if context.get_parameter_source("broker") is ParameterSource.ENVIRONMENT:
            return cls(app, None, options, broker)
        return cls(app, broker, options)

    @classmethod
    def of_completion(cls, context: click.Context) -> "CliBroker":
        """Returns the broker of an incomplete command line, for shell completion."""
        while context.parent is not None and context.command.name != "delayq":
            context = context.parent
        app = context.parent and context.parent.params.get("app")
        return cls.of(context, find_app(app) if isinstance(app, str) else app)

    def connection(self, options: Mapping[str, Any] | None = None, *, hurried: bool = False) -> Connection:
        """Makes a connection through our transport, even if the app does not use it yet.

        Args:
            options: Transport options that override all others.
            hurried: Whether every answer has a time limit; otherwise only connecting has one.

        Raises:
            click.UsageError: There is no broker.
        """
        conf = self.app.conf if self.app is not None else None
        url = self._url
        given = {**((conf and conf.broker_transport_options) or {}), **self._options}
        options = {**patient_options(given, hurried=hurried), **(options or {})}
        if self.app is None:
            return Connection(url, transport=TRANSPORT, transport_options=options)
        connection: Connection = self.app.connection_for_read(url, transport=TRANSPORT, transport_options=options)
        return connection

    def publishing_app(self) -> Celery:
        """Returns an app that publishes to this broker: that of ``celery -A``, or else one without tasks.

        Raises:
            click.UsageError: There is no broker.
        """
        if self.app is not None and not self._broker and not self._options:
            return self.app
        url = self._url
        app = self.app if self.app is not None else Celery("delayq", set_as_current=False)
        options = {**(app.conf.broker_transport_options or {}), **self._options}
        app.conf.update(
            broker_url=url,
            broker_read_url=url,
            broker_write_url=url,
            broker_transport=TRANSPORT,
            broker_transport_options=options,
        )
        return app

    @property
    def _url(self) -> str:
        """URL of the broker, as Celery takes it for our transport."""
        conf = self.app.conf if self.app is not None else None
        url = self._broker or (conf and (conf.broker_read_url or conf.broker_url)) or self._fallback
        if not url:
            raise click.UsageError("which broker? Give --broker URL, or run it as `celery -A app delayq …`")
        return urls.ours(url)

    @contextmanager
    def store(self, *, hurried: bool = False) -> Iterator[tuple[Connection, DelayStore]]:
        """Connects, and yields the connection and the store. An error ends the command with a message.

        If it is hurried, every answer has a time limit; otherwise only connecting has one.
        """
        connection = self.connection(hurried=hurried)
        try:
            with connection, errors_in_words(connection), logs_on_stderr():
                yield connection, open_store(connection)
        except (DelayqError, ValueError) as error:  # a ValueError is kombu's, of a missing or odd option
            raise click.ClickException(escaped(str(error))) from error


def broker_in_words(connection: Connection) -> str:
    """Returns the broker's URL without its password, and the key prefix, for a question."""
    prefix = (connection.transport_options or {}).get("global_keyprefix")
    return escaped(f"{connection.as_uri()}{f' with key prefix {prefix!r}' if prefix else ''}")


@contextmanager
def errors_in_words(connection: Connection) -> Iterator[None]:
    """Turns errors of Redis, and of a database beside it, into one line without a password."""
    try:
        yield
    except BrokenPipeError:  # from stdout, as in `… | head`; redis-py raises its own errors instead
        raise
    except Exception as error:
        if is_unwritable(error):
            raise
        if isinstance(error, StoreUnavailable):  # some are also errors of a connection
            raise click.ClickException(escaped(error.in_words)) from error
        if not isinstance(error, (RedisError, OSError, *connection.connection_errors)):
            raise
        raise click.ClickException(escaped(f"{connection.as_uri()}: {error}")) from error


#: Transport options that are texts, also those that look like JSON, such as ``global_keyprefix=1``.
_TEXTS = frozenset(
    (
        *("global_keyprefix", "master_name", "client_name", "sep", "queue_order_strategy", "dead_letter_queue"),
        *("unacked_key", "unacked_index_key", "unacked_mutex_key"),
    )
)
#: Transport options of kombu in s. It does not check them itself.
_TIMES = ("socket_timeout", "socket_connect_timeout")
_time = or_none(number(0.001))


def parse_transport_options(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, Any]:
    """Turns ``NAME=VALUE`` into transport options."""
    options: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", context, parameter)
        try:
            found = json.loads(value)
        except ValueError:
            found = value
        options[name] = value if name in _TEXTS and not isinstance(found, str) else found
    for name in options.keys() & _TIMES:
        try:
            _time(options[name])
        except ValueError as error:
            raise click.BadParameter(f"{name}={options[name]!r} {error}", context, parameter) from error
    return options


#: How many prefixes are named.
PREFIXES_NAMED = 5


def prefixes_in_words(prefixes: Mapping[str, int], *, app: bool) -> str:
    """Returns a hint about delayed messages under other key prefixes, by their numbers; empty without any."""
    if not prefixes:
        return ""
    found = [f"{count:,} with {f'global_keyprefix {name!r}' if name else 'none'}" for name, count in prefixes.items()]
    found[PREFIXES_NAMED:] = ["…"] * (len(found) > PREFIXES_NAMED)
    [example, *_] = prefixes
    how = f"give -o global_keyprefix={example or repr('')}, or " if not app else ""
    return (
        f"delayed messages of other key prefixes, not looked at here: {', '.join(found)}. "
        f"To reach them, {how}run it as `celery -A app delayq …` with the app that has the prefix"
    )
