"""The argument ``QUEUE...`` of the commands, and which of the queues exist."""

import os
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import click
from click.shell_completion import CompletionItem
from redis.exceptions import ResponseError

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.stderr import print_stderr
from celery_ext.connection import open_store
from kombu_delayq.store import WaitingStore
from kombu_delayq.store.figures import Figures


def offer(find: Callable[[], Iterable[str]], incomplete: str) -> list[CompletionItem]:
    """Returns names that begin with what is typed; none if they cannot be found.

    Nothing is printed meanwhile: an app may print at its import, which the shell would take for names, and what goes
    wrong would stand in the middle of the line.

    Args:
        find: Returns all names.
        incomplete: What is typed.
    """
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        try:
            names = list(find())
        except Exception:  # the command itself will report it
            return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete) and name.isprintable()]


def within(limit_s: float, find: Callable[[], list[str]]) -> list[str]:
    """Returns what is found, or nothing if that takes longer. The process may end while the search still waits.

    Args:
        limit_s: How long to wait, in s.
        find: Looks for names. Its errors are raised here.
    """
    found: SimpleQueue[list[str] | Exception] = SimpleQueue()

    def look() -> None:
        try:
            found.put(find())
        except Exception as error:
            found.put(error)

    Thread(target=look, daemon=True).start()
    try:
        result = found.get(timeout=limit_s)
    except Empty:
        return []
    if isinstance(result, Exception):
        raise result
    return result


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
        *("-q", "--queue"),
        metavar="QUEUE",
        multiple=True,
        expose_value=False,
        is_eager=True,  # before the argument, which joins these queues to its own
        callback=note,
        shell_complete=complete_queue,
        help="A queue, as the argument. May be repeated.",
    )
    return lambda command: argument(option(command))


def known_queues(
    broker: CliBroker, store: WaitingStore, given: Iterable[str], *, figures: Figures | None = None
) -> list[str]:
    """Returns the given queues that are known, each once, and names the others on stderr.

    A queue is known while it holds delayed messages, or when the transfer workers or the app know it.

    Args:
        broker: The broker of the command.
        store: The broker's store.
        given: Names of queues.
        figures: With these, a queue that only has messages ready for a consumer is known, too.
    """
    known = {*store.queues.names(), *(broker.app.amqp.queues if broker.app is not None else ())}
    queues = dict[str, None]()
    for name in dict.fromkeys(given):
        if name in known or _holds_some(store, name, figures):
            queues[name] = None
        else:
            print_stderr(f"queue {name!r} holds no {'' if figures else 'delayed '}messages, and is not known")
    return list(queues)


def known_or_all(broker: CliBroker, store: WaitingStore, given: Iterable[str]) -> list[str]:
    """Returns the given queues as ``known_queues`` does; if none is given, all that hold or held delayed messages."""
    names = tuple(given)
    return known_queues(broker, store, names) if names else store.queues.names()


def _holds_some(store: WaitingStore, queue: str, figures: Figures | None) -> bool:
    try:
        found = [] if figures is None else figures.overview([queue])  # counts under all names that a list may have
        return store.queues.size(queue) > 0 or any(stats.ready or stats.error for stats in found)
    except ResponseError:  # a key has another type; the command will name it
        return True
