"""Queues that a command is about."""

import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from typing import Any

import click
from click.shell_completion import CompletionItem
from redis.exceptions import ResponseError

from celery_ext.cli.complaints import complain
from celery_ext.cli.target import Target
from celery_ext.connecting import open_channel
from kombu_delayq.channel import connect_store
from kombu_delayq.store import DelayStore

#: How long the completion of a name may wait for the broker, in s.
COMPLETION_S = 0.5


def complete_queue(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offers the names of the queues that hold or held delayed messages; none if the broker does not answer soon."""
    try:
        with redirect_stdout(sys.stderr):  # an app may print when it is imported; the shell would take that for names
            target = Target.of_completion(context)
            timeouts = {"socket_connect_timeout": COMPLETION_S, "socket_timeout": COMPLETION_S}
            with target.connection(timeouts) as connection:
                channel = open_channel(connection)
                names = connect_store(channel, channel.pool).queues()
    except Exception:  # whatever it is, the command itself will say it
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete) and name.isprintable()]


def queues_argument(*, required: bool = False) -> Any:
    """Adds the argument ``QUEUE...``, a tuple ``queues``."""
    metavar = "QUEUE..." if required else "[QUEUE]..."
    return click.argument("queues", metavar=metavar, nargs=-1, required=required, shell_complete=complete_queue)


def known_queues(target: Target, store: DelayStore, given: Iterable[str]) -> list[str]:
    """Returns those of some queues that there are, each once, and complains of the others.

    A queue is known while it holds delayed messages, or when the transfer workers or the app know it.
    """
    known = {*store.queues(), *(target.app.amqp.queues if target.app is not None else ())}
    queues = []
    for name in dict.fromkeys(given):
        if name in known or _holds_some(store, name):
            queues.append(name)
        else:
            complain(f"queue {name!r} holds no delayed messages, and is not known")
    return queues


def _holds_some(store: DelayStore, queue: str) -> bool:
    try:
        return store.size(queue) > 0
    except ResponseError:  # a key of another type is in the way, of which the command will complain
        return True
