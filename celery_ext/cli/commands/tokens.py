"""``delayq tokens``: makes and removes the tokens of ``delayq serve``."""

from pathlib import Path
from time import time

import click

from celery_ext.cli.group import Reader
from celery_ext.cli.options import Moment, json_option, moment
from celery_ext.cli.output import escaped, fit_table, json_line, print_stderr
from celery_ext.serve.access import tokens as files
from kombu_delayq.message import iso_of

#: What an action lets a token do. The order is that of the help text.
ACTIONS = ("read", "metrics", "enqueue", "cancel", "reschedule", "run", "pause", "replay", "drop", "consume")

_file = click.option(
    "--file",
    "path",
    metavar="FILE",
    envvar="DELAYQ_TOKENS",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of tokens, the one that `delayq serve --tokens` gets. By default the variable DELAYQ_TOKENS.",
)


@click.group()
def tokens() -> None:
    """Make and remove the tokens of `delayq serve`.

    The file has only hashes. A running server reads it again when it changes.
    """


@tokens.command()
@click.argument("name")
@_file
@click.option(
    "--action",
    "actions",
    type=click.Choice(ACTIONS),
    multiple=True,
    required=True,
    help="What the token is good for. May be repeated.",
)
@click.option(
    "-q",
    "--queue",
    "queues",
    metavar="PATTERN",
    multiple=True,
    default=("*",),
    show_default=True,
    help="Queues, such as 'orders.*'. May be repeated.",
)
@click.option(
    "--task",
    "tasks",
    metavar="PATTERN",
    multiple=True,
    help="Names of tasks, such as 'shop.*'; by default '*', but for enqueue, which runs code, it has to be given. "
    "May be repeated.",
)
@click.option("--rate", metavar="RATE", help="Most requests, such as 100/s, 5/m or 1000/h, for each server process.")
@click.option("--expires", type=moment, help="When it ends: ISO 8601, or from now, such as 90d.")
def add(
    name: str,
    path: Path,
    actions: tuple[str, ...],
    queues: tuple[str, ...],
    tasks: tuple[str, ...],
    rate: str | None,
    expires: Moment | None,
) -> None:
    """Make the token NAME, and print it.

    It is printed this once: the file has only its hash.
    """
    if "enqueue" in actions and not tasks:
        raise click.UsageError("to enqueue a task is to run code: give --task PATTERN, '*' for any")
    secret = files.new_secret()
    entry = {"name": name, "sha256": files.hash_of(secret), "actions": list(actions), "rate": rate}
    entry |= {"queues": list(queues), "tasks": list(tasks or ("*",)), "expires": _iso(expires)}
    try:
        there = files.read_tokens(path).all if path.exists() else ()
        if any(token.name == name for token in there):
            raise ValueError(f"there is a token {name} already; remove it first")
        files.write_tokens(path, [*there, files.Token.parse(entry)])
    except (OSError, ValueError) as error:
        raise click.ClickException(escaped(str(error))) from error
    print_stderr(f"token {name} is in {path}; nobody can read it there, so keep what follows")
    click.echo(secret)


@tokens.command("list", cls=Reader)
@_file
@json_option()
def list_(path: Path, as_json: bool) -> None:
    """List the tokens, without what would let anybody use them."""
    try:
        found = files.read_tokens(path).all
    except ValueError as error:
        raise click.ClickException(escaped(str(error))) from error
    rows = [{key: value for key, value in token.as_dict().items() if key != "sha256"} for token in found]
    if as_json:
        for row in rows:
            click.echo(json_line(row))
        return
    columns = ("name", "actions", "queues", "tasks", "rate", "expires")
    cells = [[escaped(_cell(row.get(column))) for column in columns] for row in rows]
    click.echo("\n".join(fit_table([column.upper() for column in columns], cells)))


@tokens.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_file
def remove(names: tuple[str, ...], path: Path) -> None:
    """Remove tokens. They end at once, and with them the sessions of those who logged in with them."""
    try:
        there = files.read_tokens(path).all
        if missing := [name for name in names if name not in {token.name for token in there}]:
            raise ValueError(f"there is no token {missing[0]!r} in {path}; nothing is removed")
        files.write_tokens(path, [token for token in there if token.name not in names])
    except (OSError, ValueError) as error:
        raise click.ClickException(escaped(str(error))) from error


def _cell(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value or "")


def _iso(moment: Moment | None) -> str | None:
    return None if moment is None else iso_of(moment.at(time() * 1000))
