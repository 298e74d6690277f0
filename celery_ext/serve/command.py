"""``delayq serve``, and ``delayq tokens``, which makes and removes its tokens."""

import logging
from pathlib import Path
from time import time
from typing import Any

import click

from celery_ext.cli.broker import CliBroker, errors_in_words
from celery_ext.cli.daemon import log_to_stderr, needs_extra
from celery_ext.cli.group import Reader
from celery_ext.cli.options import GivenMoment, json_option, loglevel_option, moment
from celery_ext.cli.output import escaped, fit_table, json_line, print_stderr
from celery_ext.connection import is_permanent
from celery_ext.serve.access import tokens as files
from celery_ext.serve.access.identity import Action
from kombu_delayq.errors import DelayqError
from kombu_delayq.message import iso_of

logger = logging.getLogger("celery_ext.serve")

SECTION = "Run"
EXAMPLES = {
    "serve": {
        "delayq serve": "For this machine, to look at",
        "delayq serve --host 0.0.0.0 --tokens tokens.json --allow-write": "For others, with tokens",
    },
    "tokens add": {"delayq tokens add grafana --action read --file tokens.json": "A token that may look"},
    "tokens list": {"delayq tokens list --file tokens.json": "All of a file"},
    "tokens remove": {"delayq tokens remove grafana --file tokens.json": "It is refused from now on"},
}


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Name or address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=5556, show_default=True, help="Port; 0 for any that is free."
)
@click.option(
    "--allow-write",
    is_flag=True,
    help="Let callers change something, too. Needs --tokens or --trust-header.",
)
@click.option(
    "--tokens",
    metavar="FILE",
    envvar="DELAYQ_TOKENS",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of tokens, from `delayq tokens add`. It may change while the server runs.",
)
@click.option(
    "--trust-header",
    metavar="NAME",
    help="Header with the user's name from a proxy, such as X-Forwarded-User. Needs --trusted-proxy.",
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    metavar="ADDRESS",
    multiple=True,
    help="Address or network of that proxy, such as 10.0.0.0/8. Repeatable.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    metavar="NAME",
    multiple=True,
    help="Another name of the server for browsers, besides localhost; *.example.org for all below. Repeatable.",
)
@click.option("--root-path", metavar="PATH", default="", help="Path of the server behind a proxy, such as /delayq.")
@click.option("--hide-arguments", is_flag=True, help="Show no arguments of tasks.")
@click.option(
    "--dead-letters",
    "dead_letters",
    metavar="QUEUE",
    multiple=True,
    help="A queue of dead letters that Redis does not know as one. Repeatable.",
)
@loglevel_option("DEBUG logs every request, INFO those that change something or fail.")
@click.pass_obj
def serve(broker: CliBroker, /, host: str, port: int, loglevel: str, **given: Any) -> None:
    """Show what comes due when: a page, an HTTP API and metrics, on one port.

    Without options it listens on this machine alone, and shows without changing anything. It needs no token then.
    SIGTERM and Ctrl-C end it.

    The server waits for a Redis that is away. It ends with exit code 1 if its first connection cannot succeed, such as
    with a wrong password.
    """
    with needs_extra():
        from celery_ext.serve import server
        from celery_ext.serve.application import make_app
        from celery_ext.serve.service import ServeBroker
        from celery_ext.serve.settings import ServeSettings

    log_to_stderr(loglevel)
    if loglevel.upper() != "DEBUG":
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # it warns of each request that is no HTTP
    settings = ServeSettings(**given)
    try:
        server.check_safe(settings, host)
        shared = ServeBroker(broker.publishing_app(), lambda: broker.connection(hurried=True))
        application = make_app(shared, settings)
        with errors_in_words(broker.connection(hurried=True)):
            _try_to_connect(shared)
        listening = server.listen(host, port)
    except (DelayqError, ValueError) as error:
        raise click.ClickException(escaped(str(error))) from error
    server.serve(application, listening, lambda url: click.echo(f"delayq serve: {url}  (Ctrl-C ends it)"))


def _try_to_connect(shared: Any) -> None:
    """Connects, so that what somebody has to mend is known at the start. A Redis that is away may come back."""
    try:
        _ = shared.store
    except Exception as error:
        if is_permanent(error) or isinstance(error, (DelayqError, ValueError)):
            raise
        logger.warning("Redis does not answer yet: %s", error)


_file = click.option(
    "--file",
    "path",
    metavar="FILE",
    envvar="DELAYQ_TOKENS",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of tokens, as for `delayq serve --tokens`. By default the variable DELAYQ_TOKENS.",
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
    type=click.Choice([str(action) for action in Action]),
    multiple=True,
    required=True,
    help="An action that the token allows. Repeatable.",
)
@click.option(
    "-q",
    "--queue",
    "queues",
    metavar="PATTERN",
    multiple=True,
    default=("*",),
    show_default=True,
    help="Queues, such as 'orders.*'. Repeatable.",
)
@click.option(
    "--task",
    "tasks",
    metavar="PATTERN",
    multiple=True,
    help="Names of tasks, such as 'shop.*'; by default '*'. Required for enqueue, which runs code. Repeatable.",
)
@click.option("--rate", metavar="RATE", help="Most requests of each server process, such as 100/s, 5/m or 1000/h.")
@click.option("--expires", type=moment, help="When it ends: ISO 8601, or from now, such as 90d.")
def add(
    name: str,
    path: Path,
    actions: tuple[str, ...],
    queues: tuple[str, ...],
    tasks: tuple[str, ...],
    rate: str | None,
    expires: GivenMoment | None,
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


def _iso(moment: GivenMoment | None) -> str | None:
    return None if moment is None else iso_of(moment.at(time() * 1000))


COMMANDS = (serve, tokens)
