"""The group of all commands, and its help, with examples for each command."""

import errno
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import click

#: For each command, lines for a shell and what they do. Features add those of their commands.
EXAMPLES: dict[str, dict[str, str]] = {
    "delayq": {
        "celery -A shop delayq status": "The broker and options of an app",
        "delayq -b redis://localhost:6379/0 list": "A broker by its URL",
    },
    "status": {
        "delayq status --watch": "What waits, again every 2 s",
        "delayq status orders --json": "One queue, for a script",
    },
    "list": {
        "delayq list orders": "The next 20 messages of a queue",
        "delayq list --due-to 1h --limit 0": "All that comes due in the next hour",
        "delayq list --task 'shop.*' --arg kwargs.user_id=17": "Tasks of a user",
        "delayq list --limit 0 --json | jq -r .id": "The ids of all",
    },
    "count": {
        "delayq count": "What waits, queue by queue",
        "delayq count --task shop.charge --due-to 1h": "How often a task runs in the next hour",
    },
    "show": {
        "delayq show 3f2a1c9e": "All about a task",
        "delayq show --json 3f2a1c9e | jq .args": "Its arguments",
    },
    "cancel": {
        "delayq cancel 3f2a1c9e 7b44d0aa": "Two tasks",
        "delayq cancel -y - < ids.txt": "Those whose ids are in a file, without a question",
        "delayq cancel --task shop.charge --arg 0=17": "All of a task with an argument, after a question",
    },
    "reschedule": {
        "delayq reschedule --countdown 10m 3f2a1c9e": "Due in ten minutes",
        "delayq reschedule --eta 2026-12-24T18:00 3f2a1c9e": "Due at a time, of the local zone",
        "delayq reschedule -q orders --due-to 1h --countdown 2h": "What comes due too soon, after a question",
        "delayq reschedule --task shop.remind --arg kwargs.customer=7 --by 1d": "Each a day later, after a question",
    },
    "run-now": {
        "delayq run-now 3f2a1c9e": "A task",
        "delayq run-now - < ids.txt": "Those whose ids are in a file",
        "delayq run-now --task shop.report": "All of a task, after a question",
    },
    "queues purge": {"delayq queues purge orders mails": "Two queues, after a question"},
    "queues pause": {"delayq queues pause orders mails": "Two queues"},
    "queues resume": {"delayq queues resume orders mails": "Two queues"},
    "export": {
        "delayq export --output backlog.jsonl": "All queues into a file",
        "delayq export orders | gzip > orders.jsonl.gz": "One queue, packed",
    },
    "import": {
        "delayq import backlog.jsonl": "What an export has written",
        "delayq import --queue orders-eu backlog.jsonl": "All of its messages into one queue",
        "zcat orders.jsonl.gz | delayq import": "A packed export",
    },
    "convert": {"delayq convert orders --to redisson": "Messages of a queue into the layout that Redisson shares"},
    "transfer": {
        "celery -A shop delayq transfer": "For an app",
        "delayq transfer --also reports --metrics-port 9464": "With a queue of a JVM service, and metrics",
    },
}


def add_examples(command: click.Command, name: str = "delayq") -> None:
    """Adds examples to the help text of a command and of all commands below; a group shows those of its commands."""
    found = EXAMPLES.get(name, {})
    for sub in command.commands.values() if isinstance(command, click.Group) else ():
        path = str(sub.name) if name == "delayq" else f"{name} {sub.name}"
        add_examples(sub, path)
        found = found if name == "delayq" else found | EXAMPLES[path]
    lines = [line for example, what in found.items() for line in (f"  # {what}", f"  {example}")]
    command.epilog = "\n".join(["\b", "Examples:", *lines, "", command.epilog or ""])


#: Longest summary of a command, in characters: click cuts those that are longer.
_WHOLE = 1000


class Reader(click.Command):
    """A command that only looks: without a reader of its output, as in ``… | head``, it is done, and ends with 0."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command. A command that changes something is not done then: click ends it with 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _drop_unwritten()
            raise SystemExit(0) from None


#: What the system says of an output that has no room, or fails; it says none of it of a connection.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def is_unwritable(error: BaseException) -> bool:
    """Whether an error says that the output cannot be written, such as because the disk is full."""
    return isinstance(error, OSError) and error.errno in _UNWRITABLE


def _drop_unwritten() -> None:
    """Lets the standard streams that cannot be written lead nowhere.

    Python flushes them when it ends, and would report the error once more.
    Source: the note on SIGPIPE in the documentation of Python's module signal
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())


def open_closed() -> None:
    """Lets the standard streams that are closed, as by ``<&-`` in a shell, lead nowhere: Python has None for them."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


class SectionedGroup(click.Group):
    """The group of all commands. Its help lists them by what they do, each with its whole summary.

    Args:
        sections: Titles, and the commands below each.
    """

    def __init__(self, *, sections: Mapping[str, Sequence[click.Command]], **kwargs: Any) -> None:
        super().__init__(commands=[*chain.from_iterable(sections.values())], **kwargs)
        self._sections = sections

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands, section by section."""
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(str(each.name), each.get_short_help_str(_WHOLE)) for each in commands])

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command. An output that cannot be written ends it with a message.

        An option of all commands behind the command is an error that says where the option stands.
        """
        try:
            return super().invoke(ctx)
        except OSError as error:
            if not is_unwritable(error):
                raise
            _drop_unwritten()
            raise click.ClickException(f"the output cannot be written: {error}") from error
        except click.NoSuchOption as error:
            names = [name for parameter in self.params for name in parameter.opts]
            if error.option_name not in names:
                raise
            where = f"{ctx.command_path} {error.option_name} … {ctx.invoked_subcommand}"
            raise click.UsageError(f"{error.option_name} comes before the command: {where}", error.ctx) from error
