"""``delayq export``."""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import BinaryIO

import click
from redis.exceptions import ResponseError

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.export_format import closing_line, header_line, message_line
from celery_ext.cli.group import Reader
from celery_ext.cli.options import confirm, json_option, known_or_all, queues_argument, yes_option
from celery_ext.cli.output import escaped, json_line, number_of, print_stderr
from celery_ext.cli.progress import with_progress
from celery_ext.cli.selecting import Criteria, criteria_options, report_unreadable
from celery_ext.cli.signals import signals_as_interrupt
from celery_ext.waiting import DelayedTask, Selection, by_id, sizes_of
from kombu_delayq.store import DelayStore, Waiting


@click.command(cls=Reader)
@queues_argument()
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file, which appears when the export is complete, instead of to the standard output.",
)
@criteria_options
@yes_option
@json_option("With --output, print the number of messages of each queue as JSON. The export is always JSON.")
@click.pass_obj
def export(
    broker: CliBroker,
    queues: tuple[str, ...],
    output: Path | None,
    criteria: Criteria,
    yes: bool,
    as_json: bool,
) -> None:
    """Write waiting messages as JSON lines, to be kept or imported elsewhere.

    Without QUEUE, it writes the messages of all queues. Those of a queue are in the order of their due times. The first
    line says when and from which broker the export was made, the last line how many messages there are. The export is
    no snapshot: it may or may not have the messages that come or go meanwhile.
    """
    if output == Path():
        raise click.UsageError("the name of the file in --output is empty")
    if output is not None and output.is_file():
        confirm(f"Replace {escaped(str(output))}?", yes=yes)
    with broker.store() as (connection, store), _writing(output) as file:
        now_ms = store.now_ms()
        names = known_or_all(broker, store, queues)
        work = _Export(store, file, criteria.selection(now_ms))
        work.run(connection.as_uri(), datetime.fromtimestamp(now_ms / 1000, UTC), names)
    if output is not None and as_json:
        for queue, count in work.counts.items():
            click.echo(json_line({"queue": queue, "messages": count}))
    elif output is not None:
        what = f"{number_of(work.counts.total(), 'message')} of {number_of(len(work.counts), 'queue')}"
        click.echo(f"{what} written to {escaped(str(output))}")
    if work.lost:
        print_stderr(f"not in it: {number_of(work.lost, 'message')} whose body is lost; `delayq repair` removes such")
    if work.endless:
        why = "whose due time is infinite; `delayq reschedule` gives them another"
        print_stderr(f"not in it: {number_of(work.endless, 'message')} {why}")
    report_unreadable(work.unreadable)
    if work.failed or work.endless or set(queues) - set(names):
        raise SystemExit(1)


class _Export:
    def __init__(self, store: DelayStore, file: BinaryIO, selection: Selection) -> None:
        self.counts: Counter[str] = Counter()
        self.lost = self.unreadable = self.endless = 0
        self.failed = False
        self._store = store
        self._file = file
        self._selection, self._bounds = selection, (selection.from_ms, selection.to_ms)

    def run(self, broker: str, now: datetime, queues: Iterable[str]) -> None:
        self._write(header_line(broker, now))
        sizes, _ = sizes_of(self._store, replace(self._selection, queues=tuple(queues)))  # reading reports what fails
        # No bar stands among the lines if they themselves go to a terminal.
        to_stdout = self._file is sys.stdout.buffer
        for line in with_progress(self._lines(queues), "exporting", sum(sizes.values()), printing=to_stdout):
            if line is not None:
                self._write(line)
        self._write(closing_line(self.counts.total()))

    def _lines(self, queues: Iterable[str]) -> Iterator[str | None]:
        """Yields a line for each message, None for one that is not selected."""
        for queue in queues:
            try:
                for message in by_id.browse(self._store, queue, *self._bounds):
                    yield self._line(message)
            except ResponseError as error:  # such as for a key of another type; the other queues go on
                self.failed = True
                print_stderr(f"queue {queue!r}: {error}")

    def _line(self, message: Waiting) -> str | None:
        if message.body is None:
            self.lost += 1
            return None
        if not isfinite(message.due_ms):
            self.endless += 1
            return None
        if self._selection.reads_bodies and not self._selection.accepts(task := DelayedTask(message)):
            self.unreadable += self._selection.cannot_read(task)
            return None
        self.counts[message.queue] += 1
        return message_line(message)

    def _write(self, line: str) -> None:
        self._file.write(line.encode() + b"\n")


@contextmanager
def _writing(output: Path | None) -> Iterator[BinaryIO]:
    """Opens the output. A file gets its name, and replaces an older one, only when it is complete."""
    if output is None:
        stdout = sys.stdout.buffer
        yield stdout
        stdout.flush()
    elif output.exists() and not output.is_file():  # a pipe or a device
        with output.open("wb") as file:
            yield file
    else:
        part = output.with_name(output.name + ".part")
        try:
            with part.open("ab") as file, _alone(file, part), signals_as_interrupt():
                yield file
                file.flush()
                os.fsync(file.fileno())
                part.replace(output)
        except BaseException as error:
            if isinstance(error, OSError):
                raise click.ClickException(escaped(f"{output} is not written: {error}")) from error
            print_stderr(f"stopped; {output} is not written")
            raise


@contextmanager
def _alone(file: BinaryIO, part: Path) -> Iterator[None]:
    """Keeps other exports from writing into a part, which is empty first, and goes if the block fails."""
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock  # not on Windows

        flock(file, LOCK_EX | LOCK_NB)
        is_ours = os.path.samestat(os.fstat(file.fileno()), part.stat())  # else another one has just ended
    except (BlockingIOError, FileNotFoundError):
        is_ours = False
    except (ImportError, OSError):  # a system, or a file system, without locks
        is_ours = True
    if not is_ours:
        raise OSError("another export writes it")
    file.truncate(0)
    try:
        yield
    except BaseException:
        # A later export could not continue this file, because messages come and go. Without it, a full disk has space
        # again.
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
