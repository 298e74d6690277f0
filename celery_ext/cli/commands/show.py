"""``delayq show``."""

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import click

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.group import Reader
from celery_ext.cli.options import count_of_ids, ids_argument, json_option, read_ids
from celery_ext.cli.output import escaped, json_line, number_of, print_stderr, task_name, when_due
from celery_ext.cli.progress import with_progress
from celery_ext.delays import DelayChain, in_words
from celery_ext.waiting import DelayedTask, by_id, places

#: How many of the next delays of a chain are printed.
NEXT_DELAYS = 10


@click.command(cls=Reader)
@ids_argument()
@click.option("--raw", is_flag=True, help="Print only the message, as it is stored.")
@json_option()
@click.pass_obj
def show(broker: CliBroker, ids: tuple[str, ...], raw: bool, as_json: bool) -> None:
    """Show all about waiting messages, found by task id in any queue.

    `-` reads the ids from the standard input, one a line.
    """
    if raw and as_json:
        raise click.UsageError("give either --raw or --json")
    with broker.store() as (_, store):
        now_ms = store.now_ms()
        asked = found = 0
        elsewhere = places()
        for identity, messages in with_progress(
            by_id.get(store, read_ids(ids)), "searching", count_of_ids(ids), printing=True
        ):
            asked += 1
            if not messages:
                found_there = (place.find(store, [identity]).values() for place in elsewhere)
                where = [sighting.words for sightings in found_there for sighting in sightings]
                print_stderr(", but ".join([f"{identity}: not waiting", *where]))
            for task in map(DelayedTask, messages):
                found += 1
                if raw:
                    _print_raw(task)
                    continue
                chain = DelayChain.read(task.delay_chain)
                if as_json:
                    click.echo(json_line(_fields(task, chain, now_ms)))
                else:
                    click.echo("\n".join([""] * (found > 1) + _text(task, chain, now_ms)))
    if asked and not found:
        raise SystemExit(1)


def _print_raw(task: DelayedTask) -> None:
    body = task.message.body or b""
    click.echo(escaped(body.decode(errors="surrogateescape")) if sys.stdout.isatty() else body)


def _fields(task: DelayedTask, chain: DelayChain | None, now_ms: float) -> dict[str, Any]:
    """Returns the JSON fields of a message."""
    body = task.body
    return {
        **task.as_json(now_ms),
        "stored_id": task.message.id,
        "eta": task.eta,
        "delay_chain": None
        if chain is None
        else {"text": chain.text, "step": task.retries, "steps": len(chain), "next_delays_s": _next_s(task, chain)},
        "args": task.args,
        "kwargs": task.kwargs,
        "headers": task.headers,
        "properties": task.properties,
        "content_type": body.get("content-type"),
        "content_encoding": body.get("content-encoding"),
        "size": len(task.message.body or b""),
    }


def _text(task: DelayedTask, chain: DelayChain | None, now_ms: float) -> list[str]:
    pairs = {
        "id": task.id,
        "stored as": task.message.id if task.message.id != task.id else None,
        "task": task_name(task),
        "queue": task.queue,
        "waits in": task.elsewhere,
        "due": when_due(task, now_ms),
        "eta": task.eta,
        "priority": task.priority,
        "retries": task.retries,
        "failed": task.last_error,
        "chain": chain and _position(task, chain),
        "args": task.argsrepr,
        "kwargs": task.kwargsrepr,
        "content": task.body.get("content-type"),
        "size": number_of(len(task.message.body or b""), "byte"),
    }
    shown = {name: value if name == "due" else escaped(str(value)) for name, value in pairs.items()}
    lines = [f"{name:<9}  {value}" for name, value in shown.items() if pairs[name] not in (None, "")]
    return lines + list(_mapping("headers", task.headers)) + list(_mapping("properties", task.properties))


def _mapping(title: str, mapping: dict[str, Any]) -> Iterator[str]:
    if mapping:
        yield title
    width = max(map(len, map(escaped, mapping)), default=0)
    for name, value in mapping.items():
        yield f"  {escaped(name):<{width}}  {escaped(value if isinstance(value, str) else json_line(value))}"


def _position(task: DelayedTask, chain: DelayChain) -> str:
    first = f"first run, then {number_of(len(chain), 'step')}"
    where = f"waits for step {task.retries} of {len(chain)}" if task.retries else first
    delays = [in_words(delay, plain=True).removesuffix(" 0s") for delay in islice(_next_s(task, chain), NEXT_DELAYS)]
    more = len(chain) - task.retries - len(delays)
    then = ", ".join([*delays, *([f"… and {more:,} more"] if more > 0 else [])]) or "nothing"
    return f"{chain.text} ({where}; next: {then})"


def _next_s(task: DelayedTask, chain: DelayChain) -> list[float]:
    return [delay.total_seconds() for delay in chain.delays[max(task.retries, 0) :]]
