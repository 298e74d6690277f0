"""``delayq journal``: looks after the journal, the SQL database beside Redis."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click
from kombu.connection import Connection

from celery_ext.cli.broker import CliBroker, broker_in_words
from celery_ext.cli.options import GivenMoment, confirm, json_option, moment, queue_name, queues_argument, yes_option
from celery_ext.cli.output import escaped, json_line, number_of, print_stderr, when
from celery_ext.cli.progress import with_progress
from celery_ext.journal.status import losses, state_seen
from kombu_delayq.audit import audited
from kombu_delayq.message import iso_of

if TYPE_CHECKING:
    from celery_ext.journal.recovery import Checked
    from celery_ext.journal.store import JournaledStore

SECTION = "Run"
OPTIONS = (
    click.Option(
        ["--journal-url"],
        metavar="URL",
        envvar="DELAYQ_JOURNAL_URL",
        help="Database of the journal, as in the transport option journal_url.",
    ),
)
EXAMPLES = {
    "journal check": {"celery -A shop delayq journal check orders": "One queue"},
    "journal restore": {
        "celery -A shop delayq journal restore --dry-run": "Only look",
        "celery -A shop delayq journal restore --overdue skip": "Without what should have run by now",
    },
}
NO_JOURNAL = (
    "there is no journal: set the transport option journal_url of the app, or give `delayq --journal-url URL journal …`"
)

#: What to do with overdue messages, as in ``celery_ext.journal``, which needs an extra.
OVERDUE = ("run", "skip", "dead-letter")


@click.group()
def journal() -> None:
    """Look after the journal: the database with the messages that are due late, or with all.

    Its URL is the transport option journal_url of the app, or `delayq --journal-url URL journal …`. Workers and
    `delayq transfer` promote its messages, and `delayq status` shows how it is.
    """


@journal.command()
@queues_argument()
@json_option("Print JSON instead, one object a queue.")
@click.pass_obj
def check(broker: CliBroker, queues: tuple[str, ...], as_json: bool) -> None:
    """Compare the journal with Redis, and change nothing.

    Without QUEUE, it looks at all queues. It counts messages that Redis was given, that are not due yet, and that Redis
    has no more. It may run while both are in use.

    Exit code 1 means that messages are missing, or that a loss is to be restored.
    """
    with _opened(broker) as (_, store):
        from celery_ext.journal.recovery import check as pages_of

        total = sum(size.offered for size in store.journal.sizes().values())
        pages = with_progress(pages_of(store, queues=queues), "checking", total, size=attrgetter("looked"))
        found = _by_queue(pages)
        for queue, values in found.items():
            click.echo(json_line({"queue": queue, **values}) if as_json else _checked_text(queue, values))
        told = list(losses(state_seen(store.reading())))
        if not (found or told or as_json):
            click.echo("no message of the journal has to be in Redis now")
        for text in told:
            print_stderr(text)
    if told or any(values["missing"] for values in found.values()):
        raise SystemExit(1)


def _by_queue(pages: "Iterable[Checked]") -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for page in pages:
        values = found.setdefault(page.queue, {"looked": 0, "missing": 0, "missing_ids": []})
        values["looked"] += page.looked
        values["missing"] += page.missing
        values["missing_ids"] = [*values["missing_ids"], *page.missing_ids][:5]  # examples
    return found


def _checked_text(queue: str, values: dict[str, Any]) -> str:
    ids = ", ".join(map(escaped, values["missing_ids"]))
    found = f"{values['missing']:,} missing in Redis, such as {ids}" if ids else "all there"
    return f"queue {escaped(queue)}: {number_of(values['looked'], 'message')} compared, {found}"


@journal.command()
@click.option("-q", "--queue", "queues", metavar="QUEUE", multiple=True, help="Only this queue. Repeatable.")
@click.option("--due-from", type=moment, help="Only messages due at this time or later: ISO 8601, or from now.")
@click.option(
    "--overdue",
    type=click.Choice(OVERDUE),
    default="run",
    show_default=True,
    help="Overdue messages: run them now, skip them, or put them among the dead letters.",
)
@click.option(
    "--dead-letters",
    metavar="QUEUE",
    type=queue_name,
    help="The queue for them; by default the transport option dead_letter_queue.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing, and say what would be done.")
@yes_option
@json_option("Print one JSON object instead.")
@click.pass_obj
def restore(
    broker: CliBroker,
    queues: tuple[str, ...],
    due_from: GivenMoment | None,
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
    with _opened(broker) as (connection, store):
        from celery_ext.journal.recovery import count_noted
        from celery_ext.journal.recovery import restore as pages_of

        from_ms = due_from.at(store.now_ms()) if due_from else -inf
        conditions: dict[str, Any] = {"queues": queues, "from_ms": from_ms}
        count = None
        if not dry_run:
            _note_losses(store, queues)
            count = count_noted(store, **conditions)
            if not count and not store.journal.unrestored():
                click.echo(json_line({"restored": 0}) if as_json else "nothing is to be restored")
                return
            confirm(f"Restore about {number_of(count, 'message')} for {broker_in_words(connection)}?", yes=yes)
        pages = pages_of(store, **conditions, overdue=overdue, dead_letters=dead_letters, dry_run=dry_run)
        done = Counter(looked=0, restored=0, skipped=0, dead_letters=0, in_redis=0, unsure=0)
        unsure_from_ms = inf
        what = {"queues": list(queues), "overdue": overdue}
        noted = audited("journal restore", what, of=count or 0, unchanged=("looked", "in_redis", "unsure"))
        with nullcontext(Counter[str]()) if dry_run else noted as counts:
            try:
                for page in with_progress(pages, "restoring", count, size=attrgetter("looked")):
                    done.update({name: getattr(page, name) for name in done})
                    unsure_from_ms = min(unsure_from_ms, page.unsure_from_ms)
            finally:
                counts.update(done)
        if as_json:
            click.echo(json_line({**done, "unsure_from": iso_of(unsure_from_ms), "dry_run": dry_run}))
        elif dry_run and not done["looked"]:
            click.echo("nothing is to be restored")
        else:
            click.echo(_restored_text(done, dry_run=dry_run))
            if done["unsure"]:
                were = "it was" if done["unsure"] == 1 else "they were"
                click.echo(
                    f"{done['unsure']:,} of these may have run: {were} due from {when(unsure_from_ms, store.now_ms())} "
                    "on, before the loss was noticed"
                )
        if not dry_run and done["restored"] and not store.promotion.promoter():
            print_stderr(
                "nobody promotes: what was restored waits in the journal until a worker, or `delayq transfer`, runs"
            )


def _note_losses(store: "JournaledStore", queues: tuple[str, ...]) -> None:
    """Notes what Redis has lost, as far as no promoter has."""
    from celery_ext.journal.leadership import NotLeading, notice
    from celery_ext.journal.recovery import find_missing
    from celery_ext.journal.state import fault_of

    try:
        if fault_of(store) in ("lost", "behind"):
            notice(store)
    except NotLeading as error:
        raise click.ClickException(f"Redis cannot be looked at: {error}; try again") from error
    total = sum(size.offered for size in store.journal.sizes().values())
    for _ in with_progress(find_missing(store, queues), "comparing", total, size=attrgetter("looked")):
        pass


def _restored_text(done: Counter[str], *, dry_run: bool) -> str:
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


@contextmanager
def _opened(broker: CliBroker) -> "Iterator[tuple[Connection, JournaledStore]]":
    """Connects, and yields the connection and a store with a journal; ends the command if either is another's."""
    with broker.store() as (connection, store):
        found: Any = store
        if getattr(found, "journal", None) is None:
            raise click.ClickException(NO_JOURNAL)
        from celery_ext.journal.state import leader_elsewhere

        found.journal.allow_long_calls()
        marker = found.promotion.marker()
        if marker is not None and marker.id != found.journal.id:
            raise click.ClickException(
                escaped(
                    f"{connection.as_uri()} belongs to another journal than {found.journal.url}: is it the right "
                    "broker, and the right database?"
                )
            )
        if leader := leader_elsewhere(found.journal, found.promotion, found.journal.heartbeat()):
            raise click.ClickException(escaped(f"{connection.as_uri()}: {leader}"))
        yield connection, found


COMMANDS = (journal,)
