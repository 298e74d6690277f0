"""``delayq limits``: lists limits and keys, sets, pauses and resets them."""

from typing import Any

import click

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.group import Reader
from celery_ext.cli.options import json_option, offer, queue_option
from celery_ext.cli.output import escaped, fit_table, json_line, number_of, warning
from celery_ext.connection import open_store
from celery_ext.delays import in_words
from celery_ext.limits import control
from celery_ext.limits.limit import Limit
from celery_ext.limits.store import LimitStore

SECTION = "Change"
EXAMPLES = {
    "limits list": {
        "delayq limits list --queue orders": "The keys of a queue, the longest first",
        "delayq limits list --limit account:7": "A key, in all queues",
    },
    "limits set": {
        "delayq limits set account --running 1": "For each account, until a reset",
        "delayq limits set account:7 --rate 50,100": "For one account",
    },
    "limits pause": {"delayq limits pause account:7": "No more task of an account begins"},
    "limits reset": {"delayq limits reset account:7": "What workers declare holds again"},
}


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> Any:
    def find() -> list[str]:
        store = open_store(CliBroker.of_completion(context).connection({}))
        return [each.name for each in control.list_limits(store)]

    return offer(find, incomplete)


_name = click.argument("name", metavar="LIMIT|KEY", shell_complete=_complete)


@click.group()
def limits() -> None:
    """See and change limits by key: list, set, pause, reset.

    A worker that starts declares the limits of its transport option `limits`. KEY is one such as `account:7`: the name
    of a limit, and the values.
    """


@limits.command("list", cls=Reader)
@queue_option("Only keys of this queue. Repeatable.")
@click.option("--limit", "name", metavar="LIMIT|KEY", default="", help="Only this limit and its keys, or this key.")
@click.option(
    "--most", type=click.IntRange(min=0), default=20, show_default=True, help="Most keys to print; 0 for all."
)
@json_option()
@click.pass_obj
def list_(broker: CliBroker, queues: tuple[str, ...], name: str, most: int, as_json: bool) -> None:
    """List limits, and the keys of queues that have most messages.

    WAITING are messages that are ready, and wait for their turn; RUNNING are in the hands of workers. SET BY PEOPLE is
    what holds in place of what workers declare, until `reset`.
    """
    with broker.store() as (_, store):
        found, part = control.list_limits(store), store.part(LimitStore)
        if name:
            control.check_known(part.limits(), name)
            found = [each for each in found if name.partition(":")[0] == each.name.partition(":")[0]]
        longest = control.longest_keys(store, queues or sorted(part.queues()), limit=name, most=most or None)
    if as_json:
        for line in (*({"limit": each.as_json()} for each in found), *({"key": row.as_json()} for row in longest.rows)):
            click.echo(json_line(line))
        return
    if not found:
        click.echo("no limit is declared: see the transport option limits")
    else:
        words = [(escaped(each.name), _words(each.declared), warning(_words(each.set))) for each in found]
        click.echo("\n".join(fit_table(("LIMIT", "DECLARED", "SET BY PEOPLE"), words)))
    if longest.rows:
        head = ("QUEUE", "KEY", "WAITING", "RUNNING", "RESTS", "LIMIT")
        click.echo("\n".join(["", *fit_table(head, [_row(row) for row in longest.rows], right={2, 3})]))
    if len(longest.rows) == most and longest.of > most and not name:
        click.echo(f"… of {number_of(longest.of, 'key')}")


@limits.command("set")
@_name
@click.option("--running", type=int, metavar="N", help="Most tasks of a key that run at once; 0 pauses it.")
@click.option("--rate", metavar="R[,BURST]", help="Most starts of a key a second, and how many at once after a pause.")
@click.option("--weight", type=float, metavar="W", help="Turns of a key for each one of others.")
@click.pass_obj
def set_(broker: CliBroker, name: str, running: int | None, rate: str | None, weight: float | None) -> None:
    """Set a limit for all its keys, or for one key, until `reset`.

    It holds at once, in all queues, in place of what was set before. What you do not give stays as workers declare it.
    """
    given = {"running": running, "rate": None if rate is None else _rate(rate), "weight": weight}
    if all(value is None for value in given.values()):
        raise click.UsageError("set what? Give --running, --rate or --weight")
    try:
        limit = Limit.checked(given)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    _change(broker, control.set_limit, name, limit)


@limits.command()
@_name
@click.pass_obj
def pause(broker: CliBroker, name: str) -> None:
    """Let no more task of a key, or of all keys of a limit, begin, until `reset`.

    Tasks that run go on. It is `set` with `--running 0`.
    """
    _change(broker, control.pause, name)


@limits.command()
@_name
@click.pass_obj
def reset(broker: CliBroker, name: str) -> None:
    """Let hold again what workers declare, for a limit or for a key."""
    _change(broker, control.reset, name)


def _change(broker: CliBroker, act: Any, name: str, *args: Any) -> None:
    with broker.store() as (_, store):
        kept, outcome = act(store, name, *args)
        holds = store.part(LimitStore).limits().of(kept)
    click.echo(f"{escaped(kept)}: {outcome}, {'no worker declares it' if holds is None else holds.words}")


def _rate(text: str) -> list[float] | float:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"rate={text!r} is no number a second, nor that and a burst, such as 50,200") from None
    return numbers[0] if len(numbers) == 1 else numbers


def _words(limit: Limit | None) -> str:
    return "-" if limit is None else limit.words


def _row(row: control.KeyRow) -> tuple[str, ...]:
    state = row.state
    rests = in_words(state.rests_s, plain=True) if state.rests_s else "-"
    limit = warning(row.words) if row.is_set or (state.key and row.limit is None) else row.words
    key = escaped(state.key) or "-"
    return escaped(row.queue), key, f"{state.waiting:,}", f"{state.running:,}", rests, limit


COMMANDS = (limits,)
