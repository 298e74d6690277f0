"""``delayq journal check``."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.commands.journal.opened import opened, refuse_other
from celery_ext.cli.options import json_option
from celery_ext.cli.output import escaped, json_line, number_of
from celery_ext.cli.progress import by_row, with_progress
from celery_ext.cli.queues import queues_argument
from celery_ext.cli.status.journal import losses, values_of
from celery_ext.cli.stderr import print_stderr
from celery_ext.connection import look_at_journal

if TYPE_CHECKING:
    from celery_ext.journal.upkeep import Checked


@click.command()
@queues_argument()
@json_option("Print JSON instead, one object a queue.")
@click.pass_obj
def check(broker: CliBroker, queues: tuple[str, ...], as_json: bool) -> None:
    """Compare the journal with Redis, and change nothing.

    Without QUEUE, it looks at all queues. It counts messages that Redis was given, that are not due yet, and that Redis
    has no more; with journal="all", also messages in Redis that the journal does not have. It may run while both are in
    use.

    Exit code 1 means that messages are missing, in Redis or in the journal, or that a loss is to be restored.
    """
    with opened(broker) as (connection, store):
        from celery_ext.journal.upkeep import check as pages_of

        refuse_other(connection, store)
        total = sum(size.offered for size in store.journal.sizes().values())
        found = _by_queue(with_progress(by_row(pages_of(store, queues=queues)), "checking", total))
        for queue, values in found.items():
            click.echo(json_line({"queue": queue, **values}) if as_json else _text(queue, values))
        if not (found or as_json):
            click.echo("no message of the journal has to be in Redis now")
        _, state = look_at_journal(store)
        told = list(losses(values_of(state, store.now_ms(), store.options.journal_lead))) if state else []
        for text in told:
            print_stderr(text)
    if told or any(values["missing"] or values["unknown"] for values in found.values()):
        raise SystemExit(1)


def _by_queue(pages: "Iterable[Checked | None]") -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for page in pages:
        if page is None:
            continue
        none = {"looked": 0, "missing": 0, "unknown": 0, "missing_ids": [], "unknown_ids": []}
        values = found.setdefault(page.queue, none)
        for name, value in page._asdict().items():
            if name != "queue":
                values[name] += list(value) if isinstance(value, tuple) else value
        for name in ("missing_ids", "unknown_ids"):
            del values[name][5:]  # examples
    return found


def _text(queue: str, values: dict[str, Any]) -> str:
    said = [f"queue {escaped(queue)}: {number_of(values['looked'], 'message')} compared"]
    for kind, where in (("missing", "missing in Redis"), ("unknown", "not in the journal")):
        if count := values[kind]:
            ids = ", ".join(map(escaped, values[f"{kind}_ids"]))
            said.append(f"{count:,} {where}, such as {ids}")
    return ", ".join(said) if len(said) > 1 else f"{said[0]}, all there"
