"""``delayq move``."""

from itertools import chain

import click

from celery_ext.cli.audited import audited
from celery_ext.cli.broker import CliBroker, broker_in_words
from celery_ext.cli.options import confirm, json_option, yes_option
from celery_ext.cli.output import escaped, json_line, number_of
from celery_ext.cli.progress import Bar
from celery_ext.cli.queues import complete_queue, known_queues
from celery_ext.cli.selecting import stoppable
from celery_ext.cli.stderr import print_stderr
from celery_ext.maintenance.move import QueueMove, move_ready
from celery_ext.maintenance.move import move as move_queue
from kombu_delayq.store import OperatorStore


@click.command()
@click.argument("old", shell_complete=complete_queue)
@click.argument("new", shell_complete=complete_queue)
@click.option("--ready", is_flag=True, help="Also move messages that are ready for a consumer.")
@yes_option
@json_option()
@click.pass_obj
def move(broker: CliBroker, old: str, new: str, ready: bool, yes: bool, as_json: bool) -> None:
    """Move all waiting messages of the queue OLD to the queue NEW, such as after a queue got a new name.

    Messages keep their ids, due times, priorities and places in delay chains. Those that name OLD as their queue name
    NEW, so that their retries go there. A queue that is spread over several moves with all of its parts. Messages that
    are ready for a consumer stay without --ready: let a worker consume OLD until it is empty.

    Each message moves once, whatever happens meanwhile: workers may run, and the command may be ended at any time and
    called again. First let publishers use NEW: what comes into OLD after the command has passed stays there.
    """
    if old == new:
        raise click.UsageError("OLD and NEW are the same queue")
    if not new:
        raise click.UsageError("the name NEW is empty")
    with broker.store() as (connection, store):
        store.check_version()
        if new in store.queues.spread():
            raise click.UsageError(f"{new!r} is spread over several queues; move to one of them, such as {new}.0")
        figures = store.figures if ready else None
        names = [name for name in known_queues(broker, store, [old], figures=figures) if name != new]
        if not names:
            raise SystemExit(1)
        total = _size(store, names, ready=ready)
        what = f"{number_of(total, 'message')} of queue {escaped(old)} to {escaped(new)}"
        confirm(f"Move {what} on {broker_in_words(connection)}?", yes=yes)
        work = [QueueMove(name, new) for name in names]
        ended = _run(store, work, old, total, ready=ready)
        moved, left = sum(one.moved for one in work), _size(store, names, ready=ready)
        # Leaving the store ends the command if anything was logged as an error, such as a note that Redis refused.
        if as_json:
            click.echo(json_line({"queue": old, "to": new, "moved": moved, "left": left, "ended": ended}))
        else:
            click.echo(f"queue {escaped(old)}: {number_of(moved, 'message')} moved to queue {escaped(new)}")
        if not ended:
            print_stderr(f"stopped; left in queue {old!r}: {number_of(left, 'message')}. Call it again for the rest")
        elif left:
            print_stderr(
                f"left in queue {old!r}: {number_of(left, 'message')}, come meanwhile, or without a body. Call it "
                f"again when nobody publishes to {old!r} any more"
            )
    raise SystemExit(int(not ended or bool(left)))


def _size(store: OperatorStore, queues: list[str], *, ready: bool) -> int:
    delayed = sum(map(store.queues.size, queues))
    return delayed + (sum(one.ready for one in store.figures.overview(queues)) if ready else 0)


def _run(store: OperatorStore, work: list[QueueMove], old: str, total: int, *, ready: bool) -> bool:
    try:
        with (
            stoppable() as stop,
            Bar("moving", total) as bar,
            audited(store.audit, "move", {"queue": old, "to": work[0].to}, of=total) as counts,
        ):
            for one in work:
                ready_ones = move_ready(store, one, stop) if ready else ()
                for count in chain(ready_ones, move_queue(store, one, stop)):
                    counts["moved"] += count
                    bar(counts["moved"], total)
            return not stop()
    except Exception:  # such as a Redis that refuses a write, or does not answer
        moved = sum(one.moved for one in work)
        print_stderr(f"moved {moved:,} of {number_of(total, 'message')} when it failed: call it again for the rest")
        raise
