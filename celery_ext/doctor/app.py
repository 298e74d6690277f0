"""Checks of an app and its settings. They connect to nothing."""

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import metadata
from typing import Any

from kombu.connection import Connection
from kombu.utils.imports import symbol_by_name
from kombu.utils.url import maybe_sanitize_url

from celery_ext import stopping
from celery_ext.connection import TRANSPORT, bypasses, stock_transport
from celery_ext.dead_letters import burying
from celery_ext.delays import idle_chains, in_words, on_commit, own_tasks, unread
from celery_ext.doctor.finding import Finding, Findings, counted, named
from celery_ext.doctor.fleet import faults_of
from celery_ext.doctor.subject import Subject
from celery_ext.facts import versions
from celery_ext.health import Level
from kombu_delayq import urls
from kombu_delayq.errors import InvalidBrokerURL, InvalidOptions, did_you_mean
from kombu_delayq.options import Options, parse
from kombu_delayq.transport import DelayedTransport, SentinelChannel

#: How long a stock worker may hold a message before another gets it, in s. Source: kombu.transport.redis.Channel.
VISIBILITY_TIMEOUT_S = 3600
#: Variables that Celery reads before an app's settings, and the settings. Source: celery.app.utils.Settings.
_VARIABLES = {
    "CELERY_BROKER_URL": "broker_url",
    "CELERY_BROKER_READ_URL": "broker_read_url",
    "CELERY_BROKER_WRITE_URL": "broker_write_url",
}
#: Packages that read the broker's URL themselves, and what gives each of them another one.
_READ_THE_URL = {
    "celery-redbeat": "set redbeat_redis_url to the URL with redis:// or rediss://",
    "celery-singleton": "set singleton_backend_url to the URL with redis:// or rediss://",
    "celery-exporter": "give it the URL with redis:// or rediss://",
    "apache-airflow-providers-celery": "set broker_transport in Airflow's extra_celery_config, and leave its URL",
}
#: Settings of an app that kombu-delayq has added.
SETTINGS = ("delayq_levels", "delayq_patch_celery", burying.SETTING, on_commit.SETTING, stopping.SETTING)
#: Settings of Django, which no app reads.
_OF_DJANGO = ("DELAYQ_APP", "DELAYQ_SERVE")
_TRAPS = "reference/servers.md#traps"
#: The longest time to wait for an answer, in s, with which a worker goes on within a minute or so.
LONGEST_ANSWER_S = 60.0
_SILENCE = "how-to/outage.md#when-nothing-answers"


def transport(subject: Subject) -> Findings:
    """Is the transport that the app really gets ours?"""
    name = stock_transport(subject.the_app)
    if name is not None:
        yield Finding(
            Level.ERROR,
            f"the app itself uses the stock transport {name!r}: its delayed tasks wait in the memory of workers",
            f'set broker_transport = "{TRANSPORT}"',
            "how-to/migrate.md#switch",
        )


def broker_url(subject: Subject) -> Findings:
    """Does kombu read each broker URL as it is meant?"""
    conf = subject.the_app.conf
    found = dict[Finding, None]()  # most apps have one URL for both purposes
    for url, scheme in dict.fromkeys(bypasses(conf)):
        yield Finding(
            Level.ERROR, f"the broker URL {url} makes kombu overlook broker_transport", f"write {scheme}://…", _TRAPS
        )
    yield from _variables(conf)
    for url in dict.fromkeys(url for given in _given_urls(conf) for url in urls.split(given)):
        if "#" in url:
            yield Finding(
                Level.ERROR,
                "a broker URL has the character '#': all behind it is ignored, such as the host behind a password",
                "write %23 in its place",
                _TRAPS,
            )
    for connect in (subject.the_app.connection_for_write, subject.the_app.connection_for_read):
        found |= dict.fromkeys(_settled(connect, str(conf.broker_transport)))
    yield from found
    yield from _readers_of(conf)
    read, write = conf.broker_read_url, conf.broker_write_url
    if read != write:
        yield Finding(
            Level.NOTICE,
            f"the app publishes to {_shown(write)} and consumes from {_shown(read)}: the checks look at the second",
            page="how-to/cluster.md#two-ways-to-switch",
        )


def _readers_of(conf: Any) -> Findings:
    """Finds installed packages that read the URL themselves, where it has a scheme that only kombu-delayq knows."""
    if not any(urls.scheme_of(url) in urls.SCHEMES for given in _given_urls(conf) for url in urls.split(given)):
        return
    for package, remedy in _READ_THE_URL.items():
        with suppress(metadata.PackageNotFoundError):
            metadata.version(package)
            yield Finding(
                Level.WARNING,
                f"{package} reads the broker URL itself, and knows no scheme such as delayq and valkey",
                f"{remedy}; or set broker_transport, and leave the broker URL as it was",
                "how-to/cluster.md#which-of-the-two",
            )


def _given_urls(conf: Any) -> Iterator[Any]:
    yield from filter(None, (conf.broker_url, conf.broker_read_url, conf.broker_write_url))


def _shown(given: Any) -> str:
    return "; ".join(str(maybe_sanitize_url(url)) for url in urls.split(given or ""))


def _variables(conf: Any) -> Findings:
    """Finds variables of the environment that hide a setting."""
    for variable, setting in _VARIABLES.items():
        taken, given = os.environ.get(variable), conf.get(setting)
        if taken and given and taken != given:
            yield Finding(
                Level.NOTICE,
                f"the variable {variable} takes the place of the setting {setting}: {_shown(taken)} instead of "
                f"{_shown(given)}",
                "unset it, unless it is meant. All processes of the app need the same broker",
                "troubleshooting.md#delayq-asks-the-wrong-broker",
            )


def _settled(connect: Callable[[], Connection], name: str) -> Findings:
    """Lets a connection of ours read its URL, as the first use of it would; ``name`` is that of the transport."""
    try:
        connection = connect()
        made: Any = connection.transport
    except InvalidBrokerURL as error:
        yield Finding(Level.ERROR, str(error), "write the URL as the message says", _TRAPS)
        return
    except (ImportError, KeyError, AttributeError) as error:
        yield Finding(Level.ERROR, f"kombu cannot load the transport {name!r}: {error}", page=_TRAPS)
        return
    if not isinstance(made, DelayedTransport):
        return
    if issubclass(made.Channel, SentinelChannel) and not connection.transport_options.get("master_name"):
        yield Finding(
            Level.ERROR,
            "the broker URL names Sentinels, and no option says which primary they watch",
            'set broker_transport_options = {"master_name": …} to the name in sentinel.conf',
            "how-to/cluster.md#sentinel",
        )
    database = str(connection.virtual_host or "").strip("/")
    if database and not database.isdigit() and not str(connection.hostname).startswith(("/", "socket")):
        yield Finding(
            Level.ERROR,
            f"the broker URL {connection.as_uri()} names the database {database!r}, which is no number",
            "write the number of the database at its end, such as /0",
            _TRAPS,
        )
    if connection.ssl and connection.ssl.get("ssl_cert_reqs") in (ssl.CERT_NONE, "none"):
        yield Finding(
            Level.NOTICE,
            "TLS does not check the certificate of the server: who is between can read and change everything",
            "write delayqs://…, or set broker_use_ssl",
            "how-to/cluster.md#tls",
        )


def options(subject: Subject) -> Findings:
    """Are the transport options known, and do they fit together?"""
    kinds = map(symbol_by_name, {scheme.transport for scheme in urls.SCHEMES.values()})
    of_kombu = {option for kind in kinds for option in kind.Channel.from_transport_options}
    try:
        _, warning = parse(subject.transport_options, of_kombu)
    except InvalidOptions as error:
        yield Finding(Level.ERROR, str(error), "mend broker_transport_options", "reference/options.md")
        return
    if warning:
        yield Finding(Level.WARNING, warning, "take them out, or mend their names", "reference/options.md")


def timeouts(subject: Subject) -> Findings:
    """Does each wait for a Redis that has gone silent end?"""
    given, conf = subject.transport_options, subject.the_app.conf
    waits_s = given.get("socket_timeout", Options.late_answer_s)
    # The check of the options names what is no number.
    if waits_s is None or (isinstance(waits_s, (int, float)) and waits_s > LONGEST_ANSWER_S):
        yield Finding(
            Level.WARNING,
            f"socket_timeout={waits_s}: a worker or publisher whose connection has gone silent, as behind a NAT that "
            f"has forgotten it, stands still {'for ever' if waits_s is None else 'for so many seconds'}",
            f"take socket_timeout out of broker_transport_options, which means {Options.late_answer_s:g} s",
            _SILENCE,
        )
    if str(conf.result_backend or "").startswith(("redis", "sentinel")) and not conf.redis_socket_timeout:
        yield Finding(
            Level.WARNING,
            "redis_socket_timeout is not set: a task that stores its result over a connection that has gone silent "
            "stands still for ever",
            "leave it at Celery's default, 120 s, or below",
            _SILENCE,
        )


def settings(subject: Subject) -> Findings:
    """Are the settings of kombu-delayq named as the app reads them?"""
    app = subject.the_app
    prefix = f"{app.namespace}_".lower() if app.namespace else ""
    for given in sorted(name for name in app.conf if name.lower().removeprefix(prefix).startswith("delayq_")):
        name = given.lower().removeprefix(prefix)
        is_read = name in SETTINGS and (given == name or app.conf.get(name) is not None)
        if is_read or given in _OF_DJANGO:
            continue
        if name in SETTINGS:
            why = f"the app has namespace={app.namespace!r}" if prefix else "Celery reads it in lower case"
            yield Finding(
                Level.WARNING,
                f"the setting {given} is not read: {why}",
                f"name it {prefix.upper()}{name.upper()}" if prefix else f"name it {name}",
                "how-to/django.md#settings",
            )
        else:
            known = (*SETTINGS, *map(str.lower, _OF_DJANGO))
            yield Finding(
                Level.WARNING,
                f"nothing reads the setting {given}{did_you_mean(name, known)}",
                "take it out, or mend its name",
                "how-to/django.md#settings",
            )


def install(subject: Subject) -> Findings:
    """Was ``celery_ext.install`` called where something needs it?"""
    if subject.installed:
        return
    app = subject.the_app
    users = []
    if tasks := unread(app):
        users.append(f"delay_chain or dead_letter_queue of {named(tasks)}")
    if getattr(app.conf, "delayq_levels", None) is not None:
        users.append("delayq_levels")
    if users:
        yield Finding(
            Level.WARNING,
            "celery_ext.install(app) is not called where the app is made, so publishers do not read "
            f"{', '.join(users)}. Workers call it themselves",
            "call celery_ext.install(app) behind the line that makes the app",
            "how-to/retry-schedule.md#switch-it-on",
        )


def chains(subject: Subject) -> Findings:
    """Does a failure of each task with a delay chain wait for the chain?"""
    if idle := idle_chains(subject.the_app):
        yield Finding(
            Level.WARNING,
            f"delay_chain has no effect in {named(idle)}: no failure waits for its next step",
            "add autoretry_for to the task, or call its retry()",
            "how-to/retry-schedule.md#which-failures-count",
        )


def visibility_timeout(subject: Subject) -> Findings:
    """Is the visibility timeout above the longest task, where one counts?"""
    app = subject.the_app
    ours = stock_transport(app) is None and subject.options.consume == "reliable"  # names a timeout that is no number
    timeout_s = float(subject.transport_options.get("visibility_timeout", VISIBILITY_TIMEOUT_S))
    if ours and timeout_s <= subject.options.consumer_ttl:
        yield Finding(
            Level.WARNING,
            f"visibility_timeout={timeout_s:g} is not above consumer_ttl={subject.options.consumer_ttl:g}: what a "
            "living consumer holds may come a second time",
            "raise visibility_timeout, or lower consumer_ttl",
            "how-to/migrate.md#what-is-different-afterwards",
        )
    if ours:
        return
    limits = {task.name: _limit_s(app, task) for task in own_tasks(app)}
    longer = [name for name, limit_s in limits.items() if limit_s and limit_s >= timeout_s]
    if longer:
        longest_s = max(limits[name] or 0 for name in longer)
        yield Finding(
            Level.WARNING,
            f"visibility_timeout is {in_words(timeout_s, plain=True)}, and tasks may run for "
            f"{in_words(longest_s, plain=True)}: {named(longer)}. What is not acknowledged by then runs twice",
            "raise visibility_timeout above the longest task, or switch to consume='reliable', which has none",
            "how-to/outage.md#of-stock-workers",
        )
    unlimited = [task.name for task in own_tasks(app) if not limits[task.name] and task.acks_late]
    if unlimited:
        yield Finding(
            Level.NOTICE,
            f"{counted(len(unlimited), 'task is', 'tasks are')} acknowledged late, without a time limit: "
            f"{named(unlimited)}. What runs for longer than {in_words(timeout_s, plain=True)}, the visibility_timeout, "
            "runs twice",
            "set a time_limit below visibility_timeout",
            "how-to/outage.md#of-stock-workers",
        )


def kombu(subject: Subject) -> Findings:
    """Has the kombu of this process no known faults?"""
    takes = stock_transport(subject.the_app) is None and subject.options.consume == "reliable"
    version = versions()["kombu"]
    for fault in faults_of(version, ours=takes):
        yield Finding(
            Level.NOTICE if fault.ours else Level.WARNING,
            f"kombu {version}: {fault.effect}. See {fault.issue}",
            f"upgrade kombu to {fault.mended} or later",
            "reference/compatibility.md",
        )


def _limit_s(app: Any, task: Any) -> float | None:
    """Returns how long a task may run, in s; None if no limit is set."""
    conf = app.conf
    limit: float | None = task.time_limit or conf.task_time_limit or task.soft_time_limit or conf.task_soft_time_limit
    return limit
