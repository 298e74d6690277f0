"""``delayq dead-letters``: ``list``, ``replay`` and ``drop``."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, TypeVar

import click
from celery.utils.functional import chunks
from click.shell_completion import CompletionItem
from redis.exceptions import ResponseError

from celery_ext.cli.broker import CliBroker, broker_in_words
from celery_ext.cli.group import Reader
from celery_ext.cli.options import STDIN, confirm, duration, json_option, offer, queue_name, read_ids, yes_option
from celery_ext.cli.output import (
    ARGUMENTS_WIDTH,
    LINES,
    cell,
    escaped,
    fit_table,
    json_line,
    number_of,
    print_stderr,
    task_name,
    when,
)
from celery_ext.cli.progress import with_progress
from celery_ext.dead_letters import Choice, DeadLetter, Letter, LetterAction, routes
from celery_ext.dead_letters import letters as letters_of
from kombu_delayq.audit import audited
from kombu_delayq.store import DelayStore

F = TypeVar("F", bound=Callable[..., Any])

SECTION = "Change"
EXAMPLES = {
    "dead-letters list": {
        "delayq dead-letters list failed": "What is in a queue of dead letters",
        "celery -A shop delayq dead-letters list --task shop.charge": "Those of a task, in the queues of the app",
    },
    "dead-letters replay": {
        "delayq dead-letters replay failed --task shop.charge": "Run those of a task again",
        "delayq dead-letters replay failed --all --to-queue slow": "Run all again, in another queue",
    },
    "dead-letters drop": {"delayq dead-letters drop failed --id 3f2a1c9e": "One dead letter"},
}

#: The columns of a listing, and the cell of a letter in each.
COLUMNS: dict[str, Callable[[DeadLetter, float], str]] = {
    "BURIED": lambda letter, now_ms: "-" if letter.at is None else when(letter.at.timestamp() * 1000, now_ms),
    "TASK": lambda letter, _: cell(task_name(letter.task)),
    "ID": lambda letter, _: cell(letter.id),
    "FROM": lambda letter, _: cell(letter.routing_key or "-"),
    "RETRIES": lambda letter, _: "-" if letter.reason is None else str(letter.retries),
    "ERROR": lambda letter, _: cell(letter.error or letter.reason or "-", 60),
    "ARGUMENTS": lambda letter, _: cell(letter.task.arguments, ARGUMENTS_WIDTH),
}
#: Rows that are set in columns together.
ROWS = 500


def letter_condition_options(command: F) -> F:
    """Adds ``--task``, ``--error``, ``--older-than`` and ``--newer-than``: the conditions of a ``Choice``."""
    for option in (
        click.option(
            "--newer-than",
            "newer_than_s",
            type=duration,
            help="Only letters buried at most so long ago, such as 1h.",
        ),
        click.option(
            "--older-than",
            "older_than_s",
            type=duration,
            help="Only letters buried longer ago than this, such as 7d.",
        ),
        click.option(
            "-e", "--error", metavar="TEXT", help="Only dead letters with this text in their error, in any case."
        ),
        click.option(
            "-t",
            "--task",
            "tasks",
            metavar="NAME",
            multiple=True,
            help="Only dead letters of this task; the name may be a pattern, such as 'shop.*'. Repeatable.",
        ),
    ):
        command = option(command)
    return command


def letter_filter_options(command: F) -> F:
    """Adds ``--id``, ``--all`` and the conditions: the arguments of ``letter_filter``."""
    command = letter_condition_options(command)
    for option in (
        click.option("-a", "--all", "every", is_flag=True, help="All dead letters."),
        click.option(
            "-i",
            "--id",
            "ids",
            metavar="ID",
            multiple=True,
            help="The dead letter with this task id; - reads ids from the standard input, one a line. Repeatable.",
        ),
    ):
        command = option(command)
    return command


def letter_filter(ids: Sequence[str], *, every: bool, **conditions: Any) -> Choice:
    """Returns the choice that the options of ``letter_filter_options`` describe. All of them have to match.

    Raises:
        click.UsageError: There is no ``--all``, id or condition, or ``--all`` together with one; or no id on stdin.
    """
    if every == (bool(ids) or any(conditions.values())):
        raise click.UsageError(
            "which of the dead letters? Give --id, --task, --error, --older-than, --newer-than or --all"
        )
    chosen = list(read_ids(ids))
    if ids and not chosen:
        raise click.UsageError("there is no id on the standard input")
    return Choice(chosen or None, **conditions)


def dead_letter_queues(broker: CliBroker, given: Sequence[str]) -> list[str]:
    """Returns the given queues of dead letters, or else every queue that a task or the delivery limit of the app names.

    Raises:
        click.UsageError: No queue is given, and the app names none.
    """
    if given:
        return list(dict.fromkeys(given))
    if broker.app is None:
        raise click.UsageError("which queue? Give its name, or run it as `celery -A app delayq dead-letters …`")
    queues = routes.named_by(broker.app)
    if not queues:
        raise click.UsageError("which queue? No task of the app has a dead_letter_queue")
    return queues


def known_dead_letter_queues(broker: CliBroker, store: DelayStore, names: Sequence[str]) -> list[str]:
    """Returns those that are queues of dead letters, and names the others on stderr.

    A queue is one if dead letters were put into it, as Redis knows, or if the app names it. The messages of any other
    queue are tasks that workers run. An empty queue is known also when the app or the transfer workers know it.
    """
    letters, known = letters_of.queues(store), set(store.queues.names())
    if broker.app is not None:
        named = routes.named_by(broker.app)
        letters, known = letters.union(named), known.union(named, broker.app.amqp.queues)
    queues = []
    for name in names:
        held = _count(store, name)
        if held is None or name in (letters if held else known | letters):
            queues.append(name)
        elif held:
            why = "no dead letter was put into it, and no task of the app names it"
            print_stderr(f"queue {name!r} is no queue of dead letters: {why}")
        else:
            print_stderr(f"queue {name!r} holds no dead letters, and is not known")
    return queues


def _count(store: DelayStore, queue: str) -> int | None:
    try:
        return letters_of.count(store, queue)
    except ResponseError:  # a key has another type; the command will name it
        return None


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return offer(lambda: dead_letter_queues(CliBroker.of_completion(context), ()), incomplete)


def dead_letter_queues_argument(command: F) -> F:
    """Adds the argument ``[QUEUE]...``, a tuple ``queues``, which ``dead_letter_queues`` reads."""
    return click.argument("queues", metavar="[QUEUE]...", nargs=-1, shell_complete=_complete)(command)


@click.group("dead-letters")
def dead_letters() -> None:
    """Look at tasks that have failed for good, replay them, or drop them.

    A task with a `dead_letter_queue` goes there when it has no retry left, or after any final failure, as its
    `dead_letter_on` says. QUEUE is such a queue. With `celery -A app delayq dead-letters` you can leave out QUEUE; then
    the command looks at every queue that a task of the app names.
    """


@dead_letters.command("list", cls=Reader)
@dead_letter_queues_argument
@letter_condition_options
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Most dead letters of a queue to print; 0 for all.",
)
@json_option()
@click.pass_obj
def list_(broker: CliBroker, /, queues: tuple[str, ...], limit: int, as_json: bool, **conditions: Any) -> None:
    """List dead letters, of each priority the oldest first.

    FROM is the routing key by which the task came to its worker. Messages that were not put there by kombu-delayq have
    no reason.
    """
    choice = Choice(**conditions)
    with broker.store() as (_, store):
        names = dead_letter_queues(broker, queues)
        known = known_dead_letter_queues(broker, store, names)
        failed = len(known) < len(names)
        for queue in known:
            try:
                total = letters_of.count(store, queue)
                wanted = filter(choice, letters_of.browse(store, queue))
                of = None if choice.narrow else total
                found = with_progress(islice(wanted, limit or None), "listing", of, printing=True)
                _print(queue, found, total, as_json=as_json, now_ms=store.now_ms())
            except ResponseError as error:  # such as for a key of another type; the other queues go on
                failed = True
                print_stderr(f"queue {queue!r}: {error}")
    if failed:
        raise SystemExit(1)


def _print(queue: str, found: Iterable[DeadLetter], total: int, *, as_json: bool, now_ms: float) -> None:
    shown = 0
    if not as_json:
        click.echo(f"queue {escaped(queue)}: {number_of(total, 'dead letter')}")
    for part in chunks(iter(found), ROWS):
        shown += len(part)
        rows = [[cell_of(letter, now_ms) for cell_of in COLUMNS.values()] for letter in part]
        lines = map(json_line, map(_fields, part)) if as_json else fit_table([*COLUMNS], rows, right={4})
        click.echo("\n".join(lines))
    if shown < total:
        click.echo(f"… {shown:,} of {total:,} {'shown' if shown else 'match'}", err=as_json)


def _fields(letter: DeadLetter) -> dict[str, Any]:
    task = letter.task
    return {
        "id": letter.id,
        "task": letter.name,
        "dead_letter_queue": letter.buried_in,
        **letter.record.written(),
        "priority": letter.priority,
        "delay_chain": task.delay_chain,
        "argsrepr": task.argsrepr,
        "kwargsrepr": task.kwargsrepr,
    }


def _rate(text: str) -> float:
    try:
        return letters_of.rate_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@dead_letters.command()
@dead_letter_queues_argument
@letter_filter_options
@click.option(
    "--to-queue",
    "to",
    metavar="NAME",
    type=queue_name,
    help="Send the letters to this queue instead of their own.",
)
@click.option(
    "--rate",
    metavar="NUMBER",
    type=_rate,
    help="Most letters a second, from 0.1 on; by default all at once.",
)
@json_option()
@click.pass_obj
def replay(
    broker: CliBroker, /, queues: tuple[str, ...], to: str | None, rate: float | None, as_json: bool, **given: Any
) -> None:
    """Send dead letters to the queues from which they came, to be run again with all their retries.

    The oldest goes first. All others stay where they are, and so do letters that come meanwhile. If the command is
    killed, no letter is lost; up to 100 may be sent twice.
    """
    selection = letter_filter(**given)
    names = dead_letter_queues(broker, queues)
    if to in names:
        raise click.UsageError(f"{to!r} is a queue of dead letters itself; give another --to-queue")
    with broker.store() as (connection, store):
        known = known_dead_letter_queues(broker, store, names)
        send = routes.sending(connection.default_channel, broker.app, to)
        work = _LetterJob(store, selection, send, "replay", "replayed", as_json=as_json)
        work.count(known)
        work.do("replaying", rate)
    work.end("nobody knows from which queue they came: give --to-queue", missing=len(names) - len(known))


@dead_letters.command()
@dead_letter_queues_argument
@letter_filter_options
@yes_option
@json_option()
@click.pass_obj
def drop(
    broker: CliBroker, /, queues: tuple[str, ...], ids: tuple[str, ...], yes: bool, as_json: bool, **given: Any
) -> None:
    """Remove dead letters: they will never run.

    All others stay where they are, and so do letters that come meanwhile.
    """
    selection = letter_filter(ids, **given)
    names = dead_letter_queues(broker, queues)
    with broker.store() as (connection, store):
        work = _LetterJob(store, selection, letters_of.away, "drop", "dropped", as_json=as_json)
        known = known_dead_letter_queues(broker, store, names)
        work.count(known)
        if work.wanted:
            of = ", ".join(f"{chosen.total():,} of queue {escaped(name)}" for name, chosen in work.wanted.items())
            confirm(f"Drop dead letters, {of}, on {broker_in_words(connection)}?", yes=yes, stdin_is_read=STDIN in ids)
        work.do("dropping")
    work.end("", missing=len(names) - len(known))


class _LetterJob:
    """Replays or drops the chosen dead letters of some queues, and remembers what it could not do."""

    def __init__(
        self, store: DelayStore, selection: Choice, action: LetterAction, name: str, word: str, *, as_json: bool
    ) -> None:
        self.wanted: dict[str, Counter[str]] = {}
        self._store = store
        self._selection = selection
        self._action = action
        self._name, self._word = name, word
        self._as_json = as_json
        self._left = 0
        self._failed = False

    def count(self, queues: Iterable[str]) -> None:
        """Counts the chosen letters of queues, so that a round is made only where there are some."""
        for queue in queues:
            try:
                total = letters_of.count(self._store, queue)
                letters = with_progress(letters_of.browse(self._store, queue), "reading", total)
                wanted, unroutable = letters_of.choose(letters, self._selection, self._action)
            except ResponseError as error:  # such as for a key of another type; the other queues go on
                self._failed = True
                print_stderr(f"queue {queue!r}: {error}")
                continue
            self._left += unroutable
            if wanted:
                self.wanted[queue] = wanted

    def do(self, label: str, rate: float | None = None) -> None:
        """Replays or drops the letters, at most ``rate`` a second, and prints what it did."""
        for queue, chosen in self.wanted.items():
            wanted = chosen.total()
            round_ = letters_of.replay(self._store, queue, chosen, self._action, rate)
            printing, sent = self._as_json or bool(self._selection.ids), False
            with audited(self._name, {"queue": queue}, of=wanted, unchanged=()) as done:
                for letter, what in with_progress(round_, label, wanted, printing=printing):
                    done[what.queue or self._word] += 1
                    sent = sent or bool(what.queue)
                    self._print_outcome(letter, what)
            if not self._as_json and not self._selection.ids:
                where = ", ".join(f"{count:,} to {escaped(name)}" for name, count in done.items())
                click.echo(f"queue {escaped(queue)}: {done.total():,} {self._word}" + (f" ({where})" if sent else ""))
            if done.total() < wanted:
                print_stderr(
                    f"queue {queue!r}: {wanted - done.total():,} of {wanted:,} were taken by another meanwhile"
                )

    def end(self, why_left: str, *, missing: int) -> None:
        """Ends the command: with 1 if it found none, had to leave some, or ``missing`` queues are unknown."""
        self._failed = self._failed or missing > 0
        unmet = sorted(self._selection.ids - self._selection.met)
        for task_id in unmet[:LINES]:
            print_stderr(f"{task_id}: not among the dead letters")
        if len(unmet) > LINES:
            print_stderr(f"… and {len(unmet) - LINES:,} more are not among the dead letters")
        if self._left:
            print_stderr(f"{self._left:,} stay, because {why_left}")
        if not self.wanted and not self._left and not self._selection.ids and not self._failed:
            print_stderr("there are no such dead letters")
        nothing = self._selection.narrow and not self.wanted
        raise SystemExit(int(self._failed or bool(self._left) or nothing))

    def _print_outcome(self, letter: DeadLetter, what: Letter) -> None:
        if self._as_json:
            fields = {"id": letter.id, "task": letter.name, "outcome": self._word}
            click.echo(json_line({**fields, **({"queue": what.queue} if what.queue else {})}))
        elif self._selection.ids:
            click.echo(f"{escaped(letter.id)}: {self._word}" + (f" to {escaped(what.queue)}" if what.queue else ""))


COMMANDS = (dead_letters,)
