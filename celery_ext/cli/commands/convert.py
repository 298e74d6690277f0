"""``delayq convert``: the messages of a queue in the other layout."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

import click
from redis.exceptions import ResponseError

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.options import json_option, known_queues, queues_argument
from celery_ext.cli.output import escaped, json_line, number_of, print_stderr
from celery_ext.cli.progress import with_progress
from kombu_delayq.audit import audited
from kombu_delayq.options import LAYOUTS
from kombu_delayq.store import DelayStore


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


def convert_queue(store: DelayStore, conversion: Conversion) -> Iterator[int]:
    """Moves messages until none is left in the other layout. Loses none if the queue is in use, and may run again.

    Yields:
        The number of messages that a call of Redis has moved or found lost. The conversion gets all counts.
    """
    left = _left(store, conversion)
    if left:
        store.queues.know(conversion.queue)  # the transfer workers may not know a queue of another client yet
    while True:
        done = store.queues.convert(conversion.queue, conversion.to)
        conversion.moved += done.moved
        conversion.lost += done.lost
        conversion.came += max(done.moved + done.lost + done.left - left, 0)
        conversion.stranded = done.stranded
        left = done.left
        yield done.moved + done.lost
        if not left:
            return


def _left(store: DelayStore, conversion: Conversion) -> int:
    try:
        return store.queues.convertible(conversion.queue, conversion.to)
    except ResponseError:  # a key has the wrong type; the conversion itself raises an error that names it
        return 0


@click.command()
@queues_argument(required=True)
@click.option(
    "--to",
    type=click.Choice(LAYOUTS),
    required=True,
    help="The new layout, as in the transport option layout.",
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
        names = known_queues(broker, store, queues, layouts=[to])
        _warn_if_in_use(store)
        work = [Conversion(name, to) for name in names]
        failed: list[str] = []
        steps = _convert(store, work, failed, as_json=as_json)
        try:
            for _step in with_progress(steps, "converting", sum(_left(store, one) for one in work), size=int):
                pass
        except BaseException:
            so_far = number_of(sum(one.moved for one in work), "message is", "messages are")
            print_stderr(f"stopped; {so_far} moved. Run the command again for the rest")
            raise
        if broker.app is not None and store.layout != to:
            print_stderr(
                f"the app has the transport option layout={store.layout!r}: it stores new messages in that layout, and "
                f"finds none of the moved ones, until the option is {to!r} wherever tasks are published and run"
            )
    raise SystemExit(int(bool(failed or set(queues) - set(names))))


def _warn_if_in_use(store: DelayStore) -> None:
    consumers = sum(lease.left_ms > 0 for lease in store.consumers.all())
    leads = store.leases.leader() is not None
    if not (consumers or leads):
        return
    known = [number_of(consumers, "consumer")] * bool(consumers) + ["a leading transfer worker"] * leads
    print_stderr(
        f"the fleet is not at rest: {' and '.join(known)} {'is' if consumers + leads == 1 else 'are'} known. Messages "
        "are moved all the same; processes with another transport option layout do not find them any more"
    )


def _convert(store: DelayStore, work: Iterable[Conversion], failed: list[str], *, as_json: bool) -> Iterator[int]:
    """Converts queues one after the other, and prints what was done with each. Notes those with a problem."""
    for one in work:
        try:
            what = {"queue": one.queue, "to": one.to}
            with audited("convert", what, of=_left(store, one)) as counts:
                try:
                    yield from convert_queue(store, one)
                finally:
                    counts["moved"] = one.moved
        except ResponseError as error:
            if not str(error).startswith("WRONGTYPE"):  # a key of another type concerns this queue alone
                raise
            failed.append(one.queue)
            print_stderr(f"queue {one.queue!r}: {error}")
            continue
        moved = f"{number_of(one.moved, 'message')} moved" if one.moved else "nothing to move"
        text = f"queue {escaped(one.queue)}: {moved} to the layout {one.to!r}"
        click.echo(json_line(asdict(one)) if as_json else text)
        for problem in _problems(one):
            print_stderr(f"queue {one.queue!r}: {problem}")
        if one.lost or one.stranded:
            failed.append(one.queue)


def _problems(done: Conversion) -> Iterator[str]:
    [other] = {*LAYOUTS} - {done.to}
    if done.lost:
        yield number_of(
            done.lost,
            "index entry without a body is removed; this message is lost",
            "index entries without a body are removed; these messages are lost",
        )
    if done.stranded:
        what = number_of(done.stranded, "body without an index entry is", "bodies without an index entry are")
        yield (
            f"{what} left in the layout {other!r}; `delayq -o layout={other} repair` finds the due times, then run "
            "this again"
        )
    if done.came:
        yield (
            f"at least {number_of(done.came, 'message')} came in the layout {other!r} meanwhile, and moved too. Who "
            f"publishes them has the transport option layout={other!r}: set it to {done.to!r} there, then run this "
            "again"
        )
