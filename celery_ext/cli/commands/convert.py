"""``delayq convert``: the messages of a queue in the other layout."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass

import click
from redis.exceptions import ResponseError

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.options import json_option, known_queues, queues_argument
from celery_ext.cli.output import escaped, json_line, number_of, print_stderr
from celery_ext.cli.progress import with_progress
from kombu_delayq.audit import audited
from kombu_delayq.options import LAYOUTS
from kombu_delayq.store import OperatorStore, WaitingStore


@dataclass
class Conversion:
    """The conversion of one queue, and how far it is.

    Attributes:
        queue: Name of the queue.
        to: Layout to which its messages go.
        moved: Number of messages moved.
        lost: Number of index entries without a body, which are removed: these messages are lost.
        came: At least how many messages came in the other layout meanwhile. They are moved, too.
        stranded: Number of bodies without an index entry, which stay where they are.
    """

    queue: str
    to: str
    moved: int = 0
    lost: int = 0
    came: int = 0
    stranded: int = 0


def convert_queue(store: WaitingStore, conversion: Conversion) -> Iterator[None]:
    """Moves messages until none is left in the other layout. Loses none if the queue is in use, and may run again.

    Args:
        store: The broker's store.
        conversion: Names the queue and the layout, and receives the counts.

    Yields:
        Once for each message that is moved or lost.
    """
    left = 0
    with suppress(ResponseError):  # a key has the wrong type; the conversion below raises an error that names it
        left = store.queues.convertible(conversion.queue, conversion.to)
    if left:
        store.queues.know(conversion.queue)  # the transfer workers may not know a queue of another client yet
    while True:
        done = store.queues.convert(conversion.queue, conversion.to)
        conversion.moved += done.moved
        conversion.lost += done.lost
        conversion.came += max(done.moved + done.lost + done.left - left, 0)
        conversion.stranded = done.stranded
        left = done.left
        for _ in range(done.moved + done.lost):
            yield
        if not left:
            return


@click.command()
@queues_argument(required=True)
@click.option(
    "--to",
    type=click.Choice(LAYOUTS),
    required=True,
    help="The layout in which to keep the messages, as of the transport option layout.",
)
@json_option()
@click.pass_obj
def convert(broker: CliBroker, queues: tuple[str, ...], to: str, as_json: bool) -> None:
    """Move delayed messages of queues to another layout.

    Stop workers, publishers and `delayq transfer`, set the transport option layout everywhere, run this command, and
    start them again. It moves the messages that wait in the other layout, the next due first. If consumers or a
    transfer worker are known, it warns and goes on: no message is lost then.

    You can stop the command at any time and run it again; it continues with the rest. Exit code 1 means that something
    could not be moved; stderr says what.
    """
    with broker.store() as (_, store):
        store.check_version()
        work = _Convert(store, to)
        names = known_queues(broker, store, queues, layouts=[to])
        _warn_if_in_use(store)
        work.run(names, as_json=as_json)
        if broker.app is not None and store.layout != to:
            print_stderr(
                f"the app has the transport option layout={store.layout!r}: it stores new messages in that layout, and "
                f"finds none of the moved ones, until the option is {to!r} wherever tasks are published and run"
            )
    raise SystemExit(int(work.failed or bool(set(queues) - set(names))))


def _warn_if_in_use(store: OperatorStore) -> None:
    consumers = sum(lease.left_ms > 0 for lease in store.consumers.all())
    leads = store.leases.leader() is not None
    if not (consumers or leads):
        return
    known = [number_of(consumers, "consumer")] * bool(consumers) + ["a leading transfer worker"] * leads
    print_stderr(
        f"the fleet is not at rest: {' and '.join(known)} {'is' if consumers + leads == 1 else 'are'} known. Messages "
        "are moved all the same; processes with another transport option layout do not find them any more"
    )


class _Convert:
    def __init__(self, store: WaitingStore, to: str) -> None:
        self.failed = False
        self._store = store
        self._to = to

    def run(self, queues: list[str], *, as_json: bool) -> None:
        """Converts queues one after the other, and prints what was done with each."""
        work = [Conversion(queue, self._to) for queue in queues]
        try:
            for _ in with_progress(self._each(work, as_json=as_json), "converting", sum(map(self._size, queues))):
                pass
        except BaseException:
            moved = sum(conversion.moved for conversion in work)
            so_far = number_of(moved, "message is", "messages are")
            print_stderr(f"stopped; {so_far} moved. Run the command again for the rest")
            raise

    def _each(self, work: list[Conversion], *, as_json: bool) -> Iterator[None]:
        for conversion in work:
            try:
                yield from self._one(conversion)
            except ResponseError as error:
                if not str(error).startswith("WRONGTYPE"):  # a key of another type concerns this queue alone
                    raise
                self.failed = True
                print_stderr(f"queue {conversion.queue!r}: {error}")
                continue
            click.echo(json_line(asdict(conversion)) if as_json else _line(conversion))
            self._report_problems(conversion)

    def _one(self, conversion: Conversion) -> Iterator[None]:
        what = {"queue": conversion.queue, "to": self._to}
        with audited("convert", what, of=self._size(conversion.queue)) as counts:
            try:
                yield from convert_queue(self._store, conversion)
            finally:
                counts["moved"] = conversion.moved

    def _size(self, queue: str) -> int:
        try:
            return self._store.queues.convertible(queue, self._to)
        except ResponseError:  # the conversion itself will report it
            return 0

    def _report_problems(self, done: Conversion) -> None:
        of = f"queue {done.queue!r}"
        [other] = {*LAYOUTS} - {done.to}
        self.failed = self.failed or bool(done.lost or done.stranded)
        if done.lost:
            what = number_of(
                done.lost,
                "index entry without a body is removed; this message is lost",
                "index entries without a body are removed; these messages are lost",
            )
            print_stderr(f"{of}: {what}")
        if done.stranded:
            what = number_of(done.stranded, "body without an index entry is", "bodies without an index entry are")
            print_stderr(
                f"{of}: {what} left in the layout {other!r}; `delayq -o layout={other} repair` finds the due times, "
                "then run this again"
            )
        if done.came:
            came = number_of(done.came, "message")
            print_stderr(
                f"{of}: at least {came} came in the layout {other!r} meanwhile, and moved too. Who publishes them has "
                f"the transport option layout={other!r}: set it to {done.to!r} there, then run this again"
            )


def _line(done: Conversion) -> str:
    of = f"queue {escaped(done.queue)}"
    if not done.moved:
        return f"{of}: nothing to move to the layout {done.to!r}"
    return f"{of}: {number_of(done.moved, 'message')} moved to the layout {done.to!r}"
