"""``delayq status``: a report once, or again and again in place."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import sleep
from typing import Any

import click

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.options import DURATION, json_option
from celery_ext.cli.output import for_terminal
from celery_ext.cli.queues import queues_argument
from celery_ext.cli.status_report import Report
from celery_ext.cli.status_report import report as report_of
from celery_ext.cli.status_text import text
from celery_ext.cli.stderr import print_stderr

#: The screen beside the usual one, without a cursor and without line breaks of its own; and back.
_BEGIN, _END = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
#: To the upper left corner; clears the rest of a line; clears the rest of the screen.
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def watch(look: Callable[[], str], every_s: float, *, in_place: bool) -> None:
    """Shows what ``look`` returns, until Ctrl-C or SIGTERM. A look that fails later than the first is shown, too.

    Args:
        look: Returns the text. A ClickException says why there is none.
        every_s: Time between two looks, in s.
        in_place: Whether the text may be shown in place, if stdout is a terminal that can.
    """
    in_place = in_place and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    shown = look()  # an error at the beginning, such as of a wrong URL, ends the command
    try:
        with _sigterm_as_interrupt(), _screen() if in_place else _stream():
            while True:
                _draw(shown, every_s) if in_place else click.echo(shown)
                sys.stdout.flush()
                shown = _wait_and_look(look, every_s, shown, in_place=in_place)
    except KeyboardInterrupt:
        if in_place:
            click.echo(shown)  # the last report stays on the usual screen


def _wait_and_look(look: Callable[[], str], every_s: float, shown: str, *, in_place: bool) -> str:
    """Returns the next text. Until there is one, shows why not."""
    while True:
        sleep(every_s)
        try:
            return look()
        except click.ClickException as error:
            if in_place:
                _draw(f"{error.message}\n\nas it was before:\n\n{shown}", every_s)
                sys.stdout.flush()
            else:
                print_stderr(error.message)


def _draw(text: str, every_s: float) -> None:
    height = shutil.get_terminal_size().lines
    lines = [f"every {every_s:g} s, Ctrl-C ends", "", *for_terminal(text).splitlines()]
    if len(lines) > height:
        lines[height - 1 :] = [f"… and {len(lines) - height + 1:,} more lines"]
    click.echo(_HOME + f"{_CLEAR_LINE}\n".join(lines) + _CLEAR_LINE + _CLEAR_BELOW, nl=False, color=True)


@contextmanager
def _screen() -> Iterator[None]:
    click.echo(_BEGIN, nl=False, color=True)
    try:
        yield
    finally:
        click.echo(_END, nl=False, color=True)
        sys.stdout.flush()


@contextmanager
def _stream() -> Iterator[None]:
    yield


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Makes SIGTERM end the command as Ctrl-C does, so that the terminal becomes as it was."""

    def interrupt(signum: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


#: How often ``--watch`` looks, in s: by default, and at most.
EVERY_S, LEAST_S = 2.0, 0.1


@click.command()
@queues_argument()
@json_option("Print one JSON object instead; with --watch, one a line.")
@click.option(
    "--watch",
    "every_s",
    type=DURATION,
    is_flag=False,
    flag_value=f"{EVERY_S:g}",
    metavar="[SECONDS]",
    help=f"Look again every so often, {EVERY_S:g} s if no time is given, until Ctrl-C. Write --watch=5 before a QUEUE.",
)
@click.pass_obj
def status(broker: CliBroker, queues: tuple[str, ...], as_json: bool, every_s: float | None) -> None:
    """Show each queue's delayed and ready messages, what is overdue, who transfers, and who consumes.

    Without QUEUE, it shows the queues that hold or held delayed messages and those of the app, all queues with dead
    letters, and all consumers. DELAYED messages wait in the store, overdue ones among them; READY messages wait for a
    consumer. CONSUMERS are those that are known: not those on the stock transport or with `consume="brpop"`. IN HAND
    are messages that a consumer has and has not acknowledged, of all its queues. With a journal, IN JOURNAL are
    those of the DELAYED messages that only the journal's database has. On a Redis Cluster, SLOT is the queue's hash
    slot and NODE the primary that has it; the nodes follow in a table of their own.
    """
    if every_s is None:
        report = _report(broker, queues)
        click.echo(json.dumps(report.values, indent=2) if as_json else _text(report, broker, queues))
        if report.failed:
            raise SystemExit(1)
        return
    if every_s < LEAST_S:
        raise click.UsageError(f"--watch looks every {LEAST_S:g} s at most")

    def look() -> str:
        report = _report(broker, queues, hurried=True)
        return json.dumps(report.values) if as_json else _text(report, broker, queues) + "\n"

    watch(look, every_s, in_place=not as_json)


def _report(broker: CliBroker, queues: tuple[str, ...], *, hurried: bool = False) -> Report:
    with broker.store(hurried=hurried) as (connection, store):
        return report_of(broker, connection, store, queues)


def _text(report: Report, broker: CliBroker, queues: tuple[str, ...]) -> str:
    return text(report.values, named=bool(queues), app=broker.app is not None)
