"""Options and arguments that several commands have."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click

from kombu_delayq.audit import ids_named

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
    """Yields task ids as they come in.

    Args:
        given: Ids; ``-`` stands for those on the standard input, one a line.
    """
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


def ids_in_line(given: Sequence[str]) -> dict[str, Any]:
    """Returns the ids of a command for its line in the audit."""
    return ids_named((one for one in given if one != STDIN), more=STDIN in given)


def yes_option(command: F) -> F:
    """Adds ``--yes``, for ``confirm``."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(command)


def confirm(question: str, *, yes: bool, stdin_is_read: bool = False) -> None:
    """Asks before something destructive; a no ends the command with exit code 1.

    Args:
        question: Such as ``Cancel 3 tasks?``.
        yes: Whether ``--yes`` was given; then nobody is asked.
        stdin_is_read: Whether the command reads its ids from stdin, so that no answer can come from there.

    Raises:
        click.UsageError: Nobody can be asked.
    """
    if yes:
        return
    if stdin_is_read or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(f"{question} Nobody can be asked here: give --yes to go ahead")
    click.confirm(question, abort=True, err=True)
