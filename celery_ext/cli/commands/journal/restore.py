"""``delayq journal restore``."""

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Any

import click

from celery_ext.cli.audited import audited
from celery_ext.cli.broker import CliBroker, broker_in_words
from celery_ext.cli.commands.journal.opened import opened, refuse_other
from celery_ext.cli.options import confirm, json_option, yes_option
from celery_ext.cli.output import json_line, number_of
from celery_ext.cli.param_types import MOMENT, Moment
from celery_ext.cli.progress import by_row, with_progress
from celery_ext.cli.stderr import print_stderr

if TYPE_CHECKING:
    from celery_ext.journal import JournaledStore

#: What to do with overdue messages, as in ``celery_ext.journal.upkeep``, which needs an extra.
OVERDUE = ("run", "skip", "dead-letter")


@click.command()
@click.option("-q", "--queue", "queues", metavar="QUEUE", multiple=True, help="Only this queue. May be repeated.")
@click.option("--due-from", type=MOMENT, help="Only messages due at this time or later: ISO 8601, or from now.")
@click.option(
    "--overdue",
    type=click.Choice(OVERDUE),
    default="run",
    show_default=True,
    help="What becomes of messages whose due time is past: they run as soon as they can, they are left away, or they "
    "go to the dead letters.",
)
@click.option(
    "--dead-letters",
    metavar="QUEUE",
    help="Where they go then; by default the transport option delivery_limit_queue.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing, and say what would be done.")
@yes_option
@json_option("Print one JSON object instead.")
@click.pass_obj
def restore(
    broker: CliBroker,
    queues: tuple[str, ...],
    due_from: Moment | None,
    overdue: str,
    dead_letters: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Put back what Redis has lost: messages that had not left it by then and were not cancelled.

    A promoter notices that Redis has lost its data; `delayq status` tells it. Then this command lets the messages wait
    in the journal again, from where the promoter gives them to Redis. Messages that Redis still has are left alone. It
    may be ended at any time, and run again.

    First it looks for itself, as `delayq journal check` does: what that finds missing comes back, too.

    With --queue or --due-from, the loss stays noted until a restore of everything.
    """
    with opened(broker) as (connection, store):
        refuse_other(connection, store)
        unnoted = _unnoted(store, queues) if dry_run else _look(store, queues)
        count = sum(store.journal.count_lost(loss.epoch) for loss in store.journal.unrestored())
        count += store.journal.count_missing() + unnoted
        if not count and not store.journal.unrestored():
            click.echo(json_line({"restored": 0}) if as_json else "nothing is to be restored")
            return
        if not dry_run:
            confirm(f"Restore about {number_of(count, 'message')} for {broker_in_words(connection)}?", yes=yes)
        given = {
            "queues": queues,
            "from_ms": due_from.at(store.now_ms()) if due_from else -inf,
            "overdue": overdue,
            "dead_letters": dead_letters,
            "dry_run": dry_run,
        }
        done = Counter(looked=unnoted, restored=unnoted, skipped=0, dead_letters=0, in_redis=0)
        if dry_run:
            _restore(store, given, count, done)
        else:
            what = {"queues": list(queues), "overdue": overdue}
            with audited(store.audit, "journal restore", what, ("looked", "in_redis"), count) as counts:
                try:
                    _restore(store, given, count, done)
                finally:
                    counts.update(done)
        if as_json:
            click.echo(json_line({**done, "dry_run": dry_run}))
        else:
            click.echo(_text(done, dry_run=dry_run))
        if not dry_run and done["restored"] and not store.promotion.promoter():
            print_stderr(
                "nobody promotes: what was restored waits in the journal until a worker, or `delayq journal run`, runs"
            )


def _look(store: "JournaledStore", queues: tuple[str, ...]) -> int:
    """Notes what Redis has lost, as far as no promoter has. Returns how much is left that nobody has noted: nothing."""
    from celery_ext.journal.promotion import OutOfOffice, notice
    from celery_ext.journal.state import fault_of
    from celery_ext.journal.upkeep import look

    try:
        if fault_of(store) in ("lost", "behind"):
            notice(store)
    except OutOfOffice as error:
        raise click.ClickException(f"Redis cannot be looked at: {error}; try again") from error
    total = sum(size.offered for size in store.journal.sizes().values())
    for _ in with_progress(by_row(look(store, queues)), "comparing", total):
        pass
    return 0


def _unnoted(store: "JournaledStore", queues: tuple[str, ...]) -> int:
    """Returns how many messages are missing that nobody has noted."""
    from celery_ext.journal.upkeep import check

    return sum(page.missing for page in check(store, queues=queues))


def _restore(store: "JournaledStore", given: dict[str, Any], total: int, done: Counter[str]) -> None:
    from celery_ext.journal.upkeep import restore as pages_of

    for page in with_progress(by_row(pages_of(store, **given)), "restoring", total):
        if page is not None:
            done.update(page._asdict())


def _text(done: Counter[str], *, dry_run: bool) -> str:
    one, many = ("would wait", "would wait") if dry_run else ("waits", "wait")
    parts = [f"{number_of(done['restored'], one, many)} again"]
    for name, words in (
        ("skipped", "overdue and left away"),
        ("dead_letters", "overdue and sent to the dead letters"),
        ("in_redis", "still in Redis"),
    ):
        if done[name]:
            parts.append(f"{done[name]:,} {words}")
    return f"{number_of(done['looked'], 'message')} looked at: {', '.join(parts)}"
