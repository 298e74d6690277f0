"""Options and arguments that several commands have: times, durations, ids, and queues, with their completion."""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from datetime import datetime
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, TypeVar

import click
from click.shell_completion import CompletionItem
from redis.exceptions import ResponseError

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.output import print_stderr
from celery_ext.connection import open_store
from celery_ext.delays import durations
from celery_ext.waiting import LONG_LOOK_S, all_queues
from kombu_delayq.errors import quoted
from kombu_delayq.message import ms_of
from kombu_delayq.store import DelayStore


class GivenMoment(NamedTuple):
    """A point in time as it was given: in ms since the epoch, or if it is relative, in ms from now."""

    ms: float
    relative: bool

    def at(self, now_ms: float) -> float:
        """Returns the time in ms since the epoch, given Redis's clock in ms."""
        return now_ms + self.ms if self.relative else self.ms


def moment(text: str) -> GivenMoment:
    """Reads an ISO 8601 time, local where it has no zone, or a duration from now; a type of click's.

    Raises:
        click.BadParameter: It is neither.
    """
    try:
        return GivenMoment(durations.parse(text) * 1000, True)
    except durations.TooLong as error:
        raise click.BadParameter(str(error)) from error
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):  # the last two, for years at the ends of the calendar
        raise click.BadParameter(
            f"{quoted(text)} is neither a time in ISO 8601, such as 2026-11-21T15:04 or 2026-11-21T15:04:05+01:00,"
            " nor a duration from now with its unit, such as 10m or 1h30m"
        ) from None
    return GivenMoment(ms_of(at), False)


def duration(text: str) -> float:
    """Reads a duration in s: a number, or one with units such as ``10m``; a type of click's.

    Raises:
        click.BadParameter: It is neither.
    """
    try:
        return durations.parse(f"{text}s" if re.fullmatch(durations.NUMBER, text) else text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def shift(text: str) -> float:
    """Reads a duration in s with its unit, which may have a sign; a type of click's.

    Raises:
        click.BadParameter: It is none.
    """
    try:
        return durations.parse(text[text.startswith(("+", "-")) :]) * (-1 if text.startswith("-") else 1)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def queue_name(text: str) -> str:
    """Reads the name of a queue to which something goes; a type of click's.

    Raises:
        click.BadParameter: It is empty.
    """
    if not text:
        raise click.BadParameter("the name is empty")
    return text


F = TypeVar("F", bound=Callable[..., Any])

#: In place of an id: the ids come from the standard input.
STDIN = "-"


def json_option(help: str = "Print JSON instead, one object a line.") -> Callable[[F], F]:  # noqa: A002
    """Adds ``--json``, the argument ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def loglevel_option(help: str) -> Callable[[F], F]:  # noqa: A002
    """Adds ``--loglevel`` to a command that runs until it is ended."""
    levels = click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False)
    return click.option("-l", "--loglevel", type=levels, default="INFO", show_default=True, help=help)


def ids_argument(*, required: bool = True) -> Callable[[F], F]:
    """Adds the argument ``ID...``: a tuple ``ids`` for ``read_ids``."""
    return click.argument("ids", metavar="ID..." if required else "[ID]...", nargs=-1, required=required)


def read_ids(given: Sequence[str]) -> Iterator[str]:
    """Yields task ids as they come in; ``-`` stands for those on the standard input, one a line."""
    for given_id in given:
        if given_id != STDIN:
            yield given_id
            continue
        for line in sys.stdin.buffer:
            identity = line.rstrip(b"\r\n")
            if identity:
                # As in arguments: bytes that are no UTF-8 become surrogates, which the store turns back.
                yield identity.decode(errors="surrogateescape")


def count_of_ids(given: Sequence[str]) -> int | None:
    """Returns how many ids there are; None if some come from the standard input."""
    return None if STDIN in given else len(given)


def yes_option(command: F) -> F:
    """Adds ``--yes``, for ``confirm``."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(command)


def confirm(question: str, *, yes: bool, stdin_is_read: bool = False) -> None:
    """Asks before something destructive; a no ends the command with exit code 1.

    Nobody is asked if ``yes`` is given; nobody can be if the command reads its ids from stdin.

    Raises:
        click.UsageError: Nobody can be asked.
    """
    if yes:
        return
    if stdin_is_read or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(f"{question} Nobody can be asked here: give --yes to go ahead")
    click.confirm(question, abort=True, err=True)


def offer(find: Callable[[], Iterable[str]], incomplete: str) -> list[CompletionItem]:
    """Returns names that begin with what is typed; none if they cannot be found.

    Nothing is printed or logged meanwhile: an app may print at its import, which the shell would take for names, and
    what goes wrong would stand in the middle of the line. Celery's log goes to ``sys.__stderr__``, which no redirection
    reaches.
    """
    disabled = logging.root.manager.disable
    logging.disable()
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        try:
            names = list(find())
        except Exception:  # the command itself will report it
            return []
        finally:
            logging.disable(disabled)
    return [CompletionItem(name) for name in names if name.startswith(incomplete) and name.isprintable()]


def within(limit_s: float, find: Callable[[], list[str]]) -> list[str]:
    """Returns what is found, or nothing if that takes longer or fails. The process may end while the search waits."""
    found: SimpleQueue[list[str]] = SimpleQueue()

    def look() -> None:
        try:
            found.put(find())
        except Exception:  # the command itself will report it
            found.put([])

    Thread(target=look, daemon=True).start()
    try:
        return found.get(timeout=limit_s)
    except Empty:
        return []


#: Key of ``context.meta`` under which ``-q`` leaves its queues for the argument.
_OPTION = "delayq.queues"
#: How long the completion of a name may wait for the broker, in s.
_COMPLETION_S = 1.0


def complete_queue(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes the names of queues that hold or held delayed messages; none if the broker does not answer soon."""

    def find() -> list[str]:
        timeouts = {"socket_connect_timeout": _COMPLETION_S, "socket_timeout": _COMPLETION_S}
        connection = CliBroker.of_completion(context).connection(timeouts)
        connection.get_transport_cls()  # what has to be imported is not the broker's fault
        return within(_COMPLETION_S, lambda: open_store(connection).queues.names())

    return offer(find, incomplete)


def queue_option(text: str) -> Any:
    """Adds the option ``-q QUEUE``, a tuple ``queues``, with a help text."""
    return click.option(
        "-q", "--queue", "queues", metavar="QUEUE", multiple=True, shell_complete=complete_queue, help=text
    )


def queues_argument(*, required: bool = False) -> Any:
    """Adds the argument ``QUEUE...``, a tuple ``queues``, to which ``-q QUEUE`` adds."""
    metavar = "QUEUE..." if required else "[QUEUE]..."

    def join(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
        queues = (*given, *context.meta.pop(_OPTION, ()))
        if required and not queues and not context.resilient_parsing:
            raise click.MissingParameter(ctx=context, param=parameter)
        return queues

    def note(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> None:
        context.meta[_OPTION] = given

    argument = click.argument("queues", metavar=metavar, nargs=-1, callback=join, shell_complete=complete_queue)
    option = click.option(
        "-q",
        "--queue",
        metavar="QUEUE",
        multiple=True,
        expose_value=False,
        is_eager=True,  # before the argument, which joins these queues to its own
        callback=note,
        shell_complete=complete_queue,
        help="A queue, as the argument. Repeatable.",
    )
    return lambda command: argument(option(command))


def known_queues(
    broker: CliBroker, store: DelayStore, given: Iterable[str], *, ready: bool = False, layouts: Iterable[str] = ()
) -> list[str]:
    """Returns the given queues that are known, each once, and names the others on stderr.

    A queue is known while it holds delayed messages, or when the transfer workers or the app know it; if ``ready``,
    also while it holds messages for consumers, or is one of ``all_queues``; and while it holds what can be moved to one
    of the ``layouts``.
    """
    known = {*store.queues.names(), *(broker.app.amqp.queues if broker.app is not None else ())}
    wanted = dict.fromkeys(given)
    if ready and not known.issuperset(wanted):
        known.update(all_queues(store, broker.app, look_s=LONG_LOOK_S))
    queues = []
    for name in wanted:
        if name in known or _holds_some(store, name, ready, layouts):
            queues.append(name)
        else:
            print_stderr(f"queue {name!r} holds no {'' if ready else 'delayed '}messages, and is not known")
    return queues


def known_or_all(broker: CliBroker, store: DelayStore, given: Iterable[str]) -> list[str]:
    """Returns the given queues as ``known_queues`` does; if none is given, all that hold or held delayed messages."""
    names = tuple(given)
    return known_queues(broker, store, names) if names else store.queues.names()


def _holds_some(store: DelayStore, queue: str, ready: bool, layouts: Iterable[str]) -> bool:
    try:
        found = store.figures.overview([queue]) if ready else []  # counts under all names that a list may have
        return (
            store.queues.size(queue) > 0
            or any(stats.ready or stats.error for stats in found)
            or any(store.queues.convertible(queue, layout) for layout in layouts)
        )
    except ResponseError:  # a key has another type; the command will name it
        return True
