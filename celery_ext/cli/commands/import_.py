"""``delayq import``."""

import json
import os
from dataclasses import asdict
from typing import BinaryIO

import click

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.importing import Import
from celery_ext.cli.options import json_option
from celery_ext.cli.output import escaped, json_line
from celery_ext.cli.progress import with_progress
from celery_ext.cli.stderr import LINES, print_stderr
from kombu_delayq.audit import audited
from kombu_delayq.store import OperatorStore

#: How many bytes at the end of a file are searched for its last line.
_TAIL = 200


@click.command("import")
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--queue",
    metavar="NEW",
    help="Put all messages into the queue NEW. By default each goes into the queue that it left.",
)
@click.option("--skip-bad", is_flag=True, help="Go on after a line that cannot be imported.")
@json_option("Print JSON instead, one object a queue.")
@click.pass_obj
def import_(
    broker: CliBroker,
    file: BinaryIO,
    queue: str | None,
    skip_bad: bool,
    as_json: bool,
) -> None:
    """Put exported messages into the store, by default those on the standard input.

    The messages keep their due times; overdue ones are delivered at once. A message that waits there already, byte for
    byte, is not added again, so you can repeat an import that was stopped. The input may be several exports, one after
    the other.

    The import stops at a line that it cannot read: the lines before it are imported, those after it are not, and the
    exit code is 1. All lines of an export that is cut off are imported, and the exit code is also 1.
    """
    with broker.store() as (_, store):
        store.check_version()
        work = Import(store, queue, skip_bad=skip_bad)
        try:
            _run(store, work, file)
        except BaseException:
            print_stderr(f"stopped; the lines up to {work.stored:,} are imported. Repeat the import for the rest")
            raise
        finally:
            _print_counts(work, as_json=as_json)
    raise SystemExit(int(work.incomplete or bool(work.bad and not skip_bad)))


def _run(store: OperatorStore, work: Import, file: BinaryIO) -> None:
    problems = 0
    of = _count_of_lines(file)
    with audited("import", {"file": str(getattr(file, "name", "-"))}, of=of or 0, unchanged=()) as counts:
        try:
            for problem in with_progress(work.run(file), "importing", of):
                problems += problem is not None
                if problem is not None and problems <= LINES:
                    print_stderr(problem)
        finally:
            counts.update({queue: of.offered + of.renamed for queue, of in work.counts.items()})
    if problems > LINES:
        print_stderr(f"… and {problems - LINES:,} more such lines")


def _print_counts(work: Import, *, as_json: bool) -> None:
    for queue, counts in work.counts.items():
        if as_json:
            click.echo(json_line({"queue": queue, **asdict(counts)}))
            continue
        parts = [f"{counts.offered:,} imported"]
        if counts.repeated:
            parts.append(f"{counts.repeated:,} were there already")
        if counts.renamed:
            parts.append(f"{counts.renamed:,} imported beside others of the same id")
        click.echo(f"queue {escaped(queue)}: {', '.join(parts)}")
    if not work.counts and not as_json:
        click.echo("nothing was imported")


def _count_of_lines(file: BinaryIO) -> int | None:
    """Returns how many lines a file has, by its closing line; None if it has no such line or cannot be read twice."""
    if not file.seekable():
        return None
    file.seek(0, os.SEEK_END)
    file.seek(max(file.tell() - _TAIL, 0))
    _, _, last = file.read().rstrip().rpartition(b"\n")
    file.seek(0)
    try:
        return int(json.loads(last)["messages"]) + 2
    except (ValueError, TypeError, KeyError):
        return None
