"""``delayq periodic``: lists periodic entries, pauses and resumes them, and runs them now."""

from collections.abc import Callable
from typing import Any

import click
from celery import states

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.group import Reader
from celery_ext.cli.options import json_option
from celery_ext.cli.output import bad, escaped, fit_table, json_line, number_of, print_stderr, warning
from celery_ext.delays import in_words
from celery_ext.periodic import control
from celery_ext.periodic.store import PeriodicStore
from kombu_delayq.message import iso_of

SECTION = "Change"
EXAMPLES = {
    "periodic list": {
        "delayq periodic list --json | jq -r 'select(.error != \"\") | .name'": "Those that cannot be sent",
    },
    "periodic pause": {"delayq periodic pause report cleanup": "Two entries"},
    "periodic resume": {"delayq periodic resume report cleanup": "Two entries"},
    "periodic run-now": {"delayq periodic run-now report": "One run now"},
}

_names = click.argument("names", metavar="ENTRY...", nargs=-1, required=True)


@click.group()
def periodic() -> None:
    """See and change periodic tasks: list, pause, resume, run now."""


@periodic.command("list", cls=Reader)
@json_option()
@click.pass_obj
def list_(broker: CliBroker, as_json: bool) -> None:
    """List the periodic entries, with their next and last runs.

    Those that a worker has armed are listed. NEXT is red where a run is
    overdue: no worker is there to send it, or to arm more. Behind LAST is
    what became of the latest run that has ended.
    """
    with broker.store() as (_, store):
        entries, now_ms, leader = control.list_entries(store), store.now_ms(), store.part(PeriodicStore).leader()
    if as_json:
        for entry in entries:
            times = {"next": _iso(entry.next_ms), "last": _iso(entry.last_ms)}
            shown = {name: value for name, value in entry._asdict().items() if name not in ("next_ms", "last_ms")}
            click.echo(json_line({**shown, **times}))
        return
    rows = [_row(entry, now_ms) for entry in entries]
    if rows:
        head = ("ENTRY", "STATE", "NEXT", "LAST", "TASK", "SCHEDULE")
        click.echo("\n".join(fit_table(head, rows)))
    for entry in entries:
        if entry.error:
            print_stderr(f"{entry.name!r}: {entry.error}")
    by = f"armed by {escaped(leader)}" if leader else bad("no worker arms")
    click.echo(f"{number_of(len(entries), 'entry', 'entries')}, {by}")


@periodic.command()
@_names
@click.pass_obj
def pause(broker: CliBroker, names: tuple[str, ...]) -> None:
    """Let entries rest, and cancel what waits of them, until `resume`."""
    _change(broker, control.pause, names)


@periodic.command()
@_names
@click.pass_obj
def resume(broker: CliBroker, names: tuple[str, ...]) -> None:
    """Let paused entries run again. What they missed is not made up for."""
    _change(broker, control.resume, names)


@periodic.command("run-now")
@_names
@click.pass_obj
def run_now(broker: CliBroker, names: tuple[str, ...]) -> None:
    """Let entries run once more now, also paused ones.

    The worker that arms sends the runs within two seconds. The schedule
    goes on as it was.
    """
    _change(broker, control.run_now, names)


def _change(broker: CliBroker, act: Callable[..., dict[str, Any]], names: tuple[str, ...]) -> None:
    with broker.store() as (_, store):
        found = act(store, names)
    for name, outcome in found.items():
        click.echo(f"{escaped(name)}: {outcome}")
    if "unknown" in found.values():
        raise SystemExit(1)


def _row(entry: control.Listed, now_ms: float) -> tuple[str, ...]:
    state: str = entry.state if entry.state == "on" else (bad if entry.state == "wrong" else warning)(entry.state)
    next_run = "" if entry.next_ms is None else in_words((entry.next_ms - now_ms) / 1000)
    if entry.next_ms is not None and entry.next_ms < now_ms:
        next_run = bad(next_run)
    last = "" if entry.last_ms is None else in_words((entry.last_ms - now_ms) / 1000)
    if entry.outcome:
        outcome = entry.outcome.lower()
        last = f"{last}, {bad(outcome) if entry.outcome == states.FAILURE else outcome}"
    return escaped(entry.name), state, next_run, last, escaped(entry.task), escaped(entry.schedule)


def _iso(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso_of(at_ms)


COMMANDS = (periodic,)
