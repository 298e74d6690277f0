"""Makes checks, each by itself: one that fails is a finding, and hides no other."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from celery import Celery
from kombu.connection import Connection

from celery_ext.connection import database_errors, database_in_words, open_store
from celery_ext.doctor.checks import Check, Needs
from celery_ext.doctor.finding import Finding, Level
from celery_ext.doctor.subject import Subject

#: The check of the connection itself, which is made when another needs Redis.
BROKER = "broker"


def examine(checks: Sequence[Check], app: Celery | None, connect: Callable[[], Connection]) -> Iterator[Finding]:
    """Makes checks, and yields what they find as soon as it is known. A check that finds nothing yields ``OK``.

    Args:
        checks: The checks.
        app: The app; None leaves out what needs one.
        connect: Makes the connection, through our transport, to the broker; called if a check needs it.
    """
    subject = Subject(app)
    if app is not None:
        yield from _make(subject, [check for check in checks if check.needs == (Needs.APP,)])
    left = [check for check in checks if Needs.APP not in check.needs]
    if not left:
        return
    connection = connect()
    with connection:
        try:
            subject.store = open_store(connection)
            answers = f"{connection.as_uri()} answers"
        except Exception as error:  # any: whatever it is, it is what was found
            yield from _without_broker(connection, error, left)
            return
        yield Finding(Level.OK, answers, check=BROKER)
        yield from _make(subject, left)


def _without_broker(connection: Connection, error: Exception, left: Sequence[Check]) -> Iterator[Finding]:
    at = ""
    with suppress(Exception):  # a URL that cannot be read cannot be shown either; the error says what is wrong with it
        at = f"{connection.as_uri()}: "
    yield Finding(
        Level.ERROR,
        at + _in_words(error),
        "start it, or mend the URL, the password or the rights",
        "troubleshooting.md#a-worker-or-publisher-does-not-start-or-cannot-publish",
        BROKER,
    )
    skipped = ", ".join(check.name for check in left)
    yield Finding(Level.NOTICE, f"without it these were not checked: {skipped}", check=BROKER)


def _make(subject: Subject, checks: Sequence[Check]) -> Iterator[Finding]:
    for check in checks:
        found = False
        try:
            for finding in check.look(subject):
                found = True
                yield replace(finding, check=check.name)
        except Exception as error:  # any: the other checks go on, and this one is reported
            found = True
            yield Finding(Level.ERROR, f"the check failed: {_in_words(error)}", check=check.name)
        if not found:
            yield Finding(Level.OK, check.question, check=check.name)


def _in_words(error: Exception) -> str:
    """Returns an error as one line, which shows no password of a database."""
    if isinstance(error, database_errors()):
        return database_in_words(error)
    return f"{type(error).__name__}: {error}"
