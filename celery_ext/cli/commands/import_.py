"""``delayq import``."""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import click

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.export_format import BadLine, Exported, parse
from celery_ext.cli.options import json_option, queue_name
from celery_ext.cli.output import LINES, escaped, json_line, print_stderr
from celery_ext.cli.progress import with_progress
from kombu_delayq.audit import audited
from kombu_delayq.errors import InvalidQueueName
from kombu_delayq.message import FillingPage, properties_of, read, with_properties
from kombu_delayq.store import DelayStore, Offer
from kombu_delayq.text import as_bytes


def readdressed(raw: bytes, old: str, new: str) -> bytes:
    """Returns a message that names the queue ``new`` as its own, if it named ``old``.

    A task sends its own retries to the queue that its message names. A message that came through another exchange than
    the default one stays as it is, because its routing key names no queue.
    """
    info = properties_of(read(raw)).get("delivery_info")
    if not isinstance(info, dict) or info.get("exchange") or info.get("routing_key") != old:
        return raw
    return with_properties(raw, {}, delivery_info={"routing_key": new})


#: Most messages in one call, and about the most bytes.
CHUNK, CHUNK_BYTES = 300, 500_000


#: What becomes of messages, as ``Offered`` names it, and in words.
_OUTCOMES = {
    "offered": "imported",
    "repeated": "were there already",
    "renamed": "imported beside others of the same id",
}


class Import:
    """One import. Memory does not grow with the number of messages.

    Args:
        store: Where the messages go.
        to: The queue into which all messages go; None for that which each has left.
        skip_bad: Whether to go on after a line that cannot be imported.

    Attributes:
        counts: What became of the messages, by queue.
        bad: Number of bad lines.
        incomplete: Whether messages seem to be missing in the export.
        line: Number of the last line that was read.
        stored: Number of the last line up to which all messages are in the store.
    """

    def __init__(self, store: DelayStore, to: str | None, *, skip_bad: bool) -> None:
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.bad = self.line = self.stored = 0
        self.incomplete = False
        self._store = store
        self._to = to
        self._skip_bad = skip_bad
        self._page = FillingPage[Exported](CHUNK, CHUNK_BYTES)
        #: Number of messages since a header; None outside of an export.
        self._since_header: int | None = None

    def run(self, lines: Iterable[bytes]) -> Iterator[str | None]:
        """Imports lines.

        Yields:
            For each line, and then for the end of the input: the problem, or None.
        """
        for self.line, text in enumerate(lines, 1):
            try:
                yield self._read(text)
            except BadLine as error:
                self.bad += 1
                yield f"line {self.line}: {error}"
                if not self._skip_bad:
                    break
        else:
            yield self._unclosed()
        self._offer()

    def _read(self, text: bytes) -> str | None:
        if not text.strip():
            return None
        inside = self._since_header is not None
        try:
            parsed = parse(text)
        except BadLine:
            self._since_header = (self._since_header or 0) + 1 if inside else None
            raise
        if isinstance(parsed, Exported):
            self._since_header = (self._since_header or 0) + 1
            self._take(parsed)
            return None if inside else self._missing("messages without a header; what was before them may be missing")
        if parsed is None:
            problem = self._unclosed()
            self._since_header = 0
            return problem
        found, self._since_header = self._since_header, None
        if found is None:
            return self._missing("the end of an export without its beginning")
        if found != parsed:
            return self._missing(f"the export had {parsed:,} messages, and {found:,} are here")
        return None

    def _take(self, message: Exported) -> None:
        queue, offer = message.queue, message.offer
        to = self._to or queue
        try:
            self._store.keys.check_queue(to)
        except InvalidQueueName as error:
            raise BadLine(str(error)) from None
        if to != queue:
            offer = offer._replace(body=readdressed(as_bytes(offer.body), queue, to))
        if self._page.add(Exported(to, offer), offer.size):
            self._offer()

    def _offer(self) -> None:
        by_queue: defaultdict[str, list[Offer]] = defaultdict(list)
        for message in self._page.take():
            by_queue[message.queue].append(message.offer)
        for queue, offers in by_queue.items():
            offered = self._store.delivery.offer(queue, *offers)
            self.counts[queue].update({name: getattr(offered, name) for name in _OUTCOMES})
        self.stored = self.line

    def _unclosed(self) -> str | None:
        if self._since_header is None and self.line:
            return None
        return self._missing("the export is cut off; messages may be missing" if self.line else "the export is empty")

    def _missing(self, what: str) -> str:
        self.incomplete = True
        return f"line {self.line}: {what}"


#: How many bytes at the end of a file are searched for its last line.
_TAIL = 200


@click.command("import")
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--queue",
    metavar="NEW",
    type=queue_name,
    help="Put all messages into the queue NEW instead of their own queues.",
)
@click.option("--skip-bad", is_flag=True, help="Continue after a line that cannot be imported.")
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


def _run(store: DelayStore, work: Import, file: BinaryIO) -> None:
    problems = 0
    of = _count_of_lines(file)
    with audited("import", {"file": str(getattr(file, "name", "-"))}, of=of or 0, unchanged=()) as counts:
        try:
            for problem in with_progress(work.run(file), "importing", of):
                problems += problem is not None
                if problem is not None and problems <= LINES:
                    print_stderr(problem)
        finally:
            counts.update({queue: of["offered"] + of["renamed"] for queue, of in work.counts.items()})
    if problems > LINES:
        print_stderr(f"… and {problems - LINES:,} more such lines")


def _print_counts(work: Import, *, as_json: bool) -> None:
    for queue, counts in work.counts.items():
        if as_json:
            click.echo(json_line({"queue": queue, **{name: counts[name] for name in _OUTCOMES}}))
        else:
            parts = [f"{counts[name]:,} {_OUTCOMES[name]}" for name in _OUTCOMES if counts[name] or name == "offered"]
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
    except (ValueError, TypeError, KeyError, OverflowError):  # the last: Infinity
        return None
