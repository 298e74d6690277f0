"""What makes checks: on an app, on a broker, when a worker starts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from celery import Celery
from kombu.connection import Connection
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from celery_ext.connection import TRANSPORT, open_store, patient_options
from celery_ext.doctor import app as app_checks
from celery_ext.doctor.check import Check, Needs
from celery_ext.doctor.checks import all_checks
from celery_ext.doctor.finding import Finding, Findings, named
from celery_ext.doctor.subject import Subject
from celery_ext.doctor.workers import ask
from celery_ext.health import Level
from kombu_delayq import urls
from kombu_delayq.channel import DelayedChannel
from kombu_delayq.errors import DelayqError, InvalidOptions, StoreUnavailable
from kombu_delayq.store import DelayStore

#: The check of the connection itself, which is made when another needs Redis.
BROKER = "broker"
_NODE_AWAY = "troubleshooting.md#a-node-of-the-cluster-is-away"
#: The check of the options; also what stands among what was said once it has found an error, which names them all.
_OPTIONS = "options"
_MEND_OPTIONS = "mend broker_transport_options", "reference/options.md"
_NO_START = "troubleshooting.md#a-worker-or-publisher-does-not-start-or-cannot-publish"
#: How long to wait for workers to answer, in s.
ANSWERS_S = 2.0


def examine(
    checks: Sequence[Check],
    app: Celery | None,
    connect: Callable[[], Connection],
    timeout_s: float = ANSWERS_S,
    *,
    imports: bool = True,
) -> Iterator[Finding]:
    """Makes checks, and yields what they find as soon as it is known. A check that finds nothing yields ``OK``.

    Args:
        checks: The checks.
        app: The app; None leaves out what needs one.
        connect: Makes the connection, through our transport, to the broker; called if a check needs it.
        timeout_s: How long to wait for workers to answer, s.
        imports: Whether to import the modules of the app with its tasks first, as a worker does.
    """
    subject = Subject(app)
    said: list[str] = []
    if app is not None and imports:
        yield from _import_tasks(subject)
    if app is not None:
        yield from _make(subject, [check for check in checks if check.needs == (Needs.APP,)], said)
    left = [check for check in checks if Needs.APP not in check.needs]
    if not left:
        return
    connection = connect()
    with connection:
        try:
            subject.store, subject.channel = open_store(connection), connection.default_channel
            answers = f"{connection.as_uri()} answers"
        except Exception as error:  # an error of any kind is a finding
            # A URL that cannot be used is found by a check of the app already.
            if not _is_said(error, said):
                yield _no_broker(connection, error)
            skipped = ", ".join(check.name for check in left)
            yield Finding(Level.NOTICE, f"without a broker these were not checked: {skipped}", check=BROKER)
            return
        yield Finding(Level.OK, answers, check=BROKER)
        with suppress(RedisError, OSError):
            subject.store.nodes()  # no check waits long for a node of a cluster that is away
        if any(check.asks for check in left):
            yield from _ask(subject, connection, timeout_s)
        made = [check for check in left if subject.workers is not None or Needs.WORKERS not in check.needs]
        yield from _make(subject, made, said)


def examine_app(app: Celery, checks: Sequence[Check], timeout_s: float = ANSWERS_S) -> Iterator[Finding]:
    """Makes checks of an app, and of the broker that its settings name. Arguments as those of ``examine``.

    It imports no tasks: the fixup of Celery for Django makes all checks of Django when it does.
    """
    conf = app.conf

    def connect() -> Connection:
        options = patient_options(conf.broker_transport_options or {}, hurried=True)
        url = urls.ours(conf.broker_read_url or conf.broker_url or "")
        return app.connection_for_read(url, transport=TRANSPORT, transport_options={**options, "transfer": False})

    return examine(checks, app, connect, timeout_s, imports=False)


def examine_start(app: Celery, channel: DelayedChannel) -> list[Finding]:
    """Makes the few quick checks that a worker makes when it starts.

    Args:
        app: The worker's app.
        channel: The worker's channel.

    Returns:
        What is bad.
    """
    subject = Subject(app, channel.store, channel)
    # A node of a cluster that is away would hold the start up.
    several = channel.store.pool.several
    made = [check for check in all_checks() if check.at_start and not (several and Needs.REDIS in check.needs)]
    return [finding for finding in _make(subject, made, []) if finding.level.is_bad]


def examine_servers(store: DelayStore) -> list[Finding]:
    """Returns what is bad about the memory and the disk of the servers behind a store.

    Raises:
        RedisError, OSError: A server does not answer.
    """
    subject = Subject(store=store)
    made = [check for check in all_checks() if check.name in ("eviction", "persistence", "memory")]
    found = [replace(finding, check=check.name) for check in made for finding in check.look(subject)]
    return [finding for finding in found if finding.level.is_bad]


def _import_tasks(subject: Subject) -> Iterator[Finding]:
    """Imports the modules of the app with its tasks. If that is impossible, yields why."""
    try:
        subject.the_app.loader.import_default_modules()
        subject.has_tasks = True
    except Exception as error:  # of any kind: the module of a task is anybody's
        yield Finding(
            Level.ERROR,
            f"the modules of the app with its tasks cannot be imported: {_in_words(error)}",
            "mend what the error says: no worker of the app starts",
            check="app",
        )


def _ask(subject: Subject, connection: Connection, timeout_s: float) -> Iterator[Finding]:
    """Asks the workers. If that is impossible, yields why."""
    try:
        subject.workers = ask(subject.app, connection, timeout_s)
    except Exception as error:  # an error of any kind, such as a missing right, is a finding
        refused = isinstance(error, NoPermissionError)
        yield Finding(
            Level.NOTICE if refused else Level.WARNING,
            f"the workers cannot be asked, so checks of them are left out: {_in_words(error)}",
            "run it as the user of the app, who has the rights of remote control"
            if refused
            else "mend what the error says, and look again",
            "reference/acl.md" if refused else "troubleshooting.md",
            "workers",
        )


def _no_broker(connection: Connection, error: Exception) -> Finding:
    """Returns why the broker cannot be used."""
    at = ""
    with suppress(Exception):  # a URL that cannot be read cannot be shown either; the error says what is wrong with it
        at = f"{connection.as_uri()}: "
    return Finding(Level.ERROR, at + _in_words(error), *_mend_broker(error), BROKER)


def _mend_broker(error: Exception) -> tuple[str, str]:
    """Returns what to do about a broker that cannot be used, and the page about it."""
    if isinstance(error, InvalidOptions):
        return _MEND_OPTIONS
    if isinstance(error, (DelayqError, ValueError)):
        return "mend the URL as the message says", "reference/servers.md#traps"
    if isinstance(error, AuthenticationError):
        return "mend the user and the password in the URL", "reference/servers.md#traps"
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return (
            "name a certificate of who signed the server's: ?ssl_ca_certs=PATH at the end of the URL",
            "how-to/cluster.md#tls",
        )
    if isinstance(error, (RedisConnectionError, RedisTimeoutError)):
        return (
            "start it, or mend host, port and scheme of the URL: rediss:// or delayqs:// only where the server speaks "
            "TLS, and always there",
            _NO_START,
        )
    return "mend what the error says: the URL, the password or the rights", _NO_START


def _make(subject: Subject, checks: Sequence[Check], said: list[str]) -> Iterator[Finding]:
    """Makes checks, and adds what they find to ``said``: an option that stops several checks is named once."""
    stopped: dict[str, Exception] = {}
    waiting: list[str] = []
    for check in checks:
        found = False
        try:
            for finding in _look(subject, check, said):
                found = True
                yield finding
        except InvalidOptions as error:
            found = True
            if _is_said(error, said):
                waiting.append(check.name)
            else:
                said.append(str(error))
                yield Finding(Level.ERROR, str(error), *_MEND_OPTIONS, check=check.name)
        except Exception as error:  # an error of any kind is a finding; the other checks go on
            found = True
            if subject.store is not None and subject.store.pool.is_partial(error):
                stopped[check.name] = error
            else:
                said.append(str(error))
                yield Finding(Level.ERROR, f"the check failed: {_in_words(error)}", *_mend(error), check=check.name)
        if not found:
            yield Finding(Level.OK, check.question, check=check.name)
    if waiting:
        yield Finding(Level.NOTICE, f"not checked until the options are mended: {', '.join(waiting)}", check=_OPTIONS)
    if stopped:
        yield from _without_node(subject.the_store, stopped)


def _look(subject: Subject, check: Check, said: list[str]) -> Findings:
    for finding in check.look(subject):
        said.append(finding.found)
        if check.look is app_checks.options and finding.level is Level.ERROR:
            said.append(_OPTIONS)
        yield replace(finding, check=check.name)


def _is_said(error: Exception, said: Sequence[str]) -> bool:
    """Whether a finding has named this error already, or the check of the options all that are wrong."""
    return str(error) in said or (isinstance(error, InvalidOptions) and _OPTIONS in said)


def _without_node(store: DelayStore, stopped: Mapping[str, Exception]) -> Findings:
    """Yields which nodes of a cluster are away, and which checks they have stopped, with the error of each."""
    found = f"a node of the cluster cannot be asked: {next(iter(stopped.values()))}"
    with suppress(RedisError, OSError):
        cluster = store.nodes()
        if cluster is not None and cluster.down:
            found = named([f"the {node.role} {node.name} is {node.state}" for node in cluster.down])
    yield Finding(Level.ERROR, found, "restart it, or mend what keeps this process from it", _NODE_AWAY, BROKER)
    yield Finding(Level.NOTICE, f"without it these were not checked: {', '.join(stopped)}", check=BROKER)


def _mend(error: Exception) -> tuple[str, str]:
    """Returns what to do about an error in a check, and the page about it."""
    if isinstance(error, NoPermissionError):
        return "give the user the rights of the page, or run it as the user of the app", "reference/acl.md"
    return "mend what the error says, and look again", "troubleshooting.md"


def _in_words(error: Exception) -> str:
    """Returns an error as one line, which shows no password of a database."""
    if isinstance(error, StoreUnavailable):
        return error.in_words
    if isinstance(error, (RedisConnectionError, RedisTimeoutError)):
        return str(error)
    return f"{type(error).__name__}: {error}"
