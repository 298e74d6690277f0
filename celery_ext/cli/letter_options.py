"""The options that choose dead letters, and the argument that names their queues."""

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import click
from celery import Celery
from click.shell_completion import CompletionItem
from redis.exceptions import ResponseError

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.options import offer, read_ids
from celery_ext.cli.output import print_stderr
from celery_ext.dead_letters import DeadLetter
from celery_ext.dead_letters import letters as letters_of
from kombu_delayq.options import Options
from kombu_delayq.store import OperatorStore

F = TypeVar("F", bound=Callable[..., Any])


class LetterFilter:
    """Chooses dead letters, and remembers which ids it has met.

    Args:
        ids: Task ids; none for any.
        tasks: Task names, or patterns of such; none for any.
    """

    def __init__(self, ids: Iterable[str], tasks: Sequence[str]) -> None:
        self.ids = frozenset(ids)
        self.met: set[str] = set()
        self._tasks = tasks

    @property
    def narrow(self) -> bool:
        """Whether only some letters are chosen, not all."""
        return bool(self.ids or self._tasks)

    def __call__(self, letter: DeadLetter) -> bool:
        """Whether a letter is chosen."""
        chosen = (not self.ids or letter.id in self.ids) and is_of(letter, self._tasks)
        if chosen and self.ids:
            self.met.add(letter.id)
        return chosen


def is_of(letter: DeadLetter, tasks: Sequence[str]) -> bool:
    """Whether a letter is of one of the tasks, which may be patterns; of any if there are none."""
    name = letter.name
    return not tasks or (name is not None and any(name == task or fnmatchcase(name, task) for task in tasks))


def letter_task_option(command: F) -> F:
    """Adds ``--task``: the argument ``tasks``."""
    text = "Only dead letters of this task; the name may be a pattern, such as 'shop.*'. May be repeated."
    return click.option("-t", "--task", "tasks", metavar="NAME", multiple=True, help=text)(command)


def letter_filter_options(command: F) -> F:
    """Adds ``--id``, ``--task`` and ``--all``: the arguments ``ids``, ``tasks`` and ``every`` of ``letter_filter``."""
    for option in (
        click.option("-a", "--all", "every", is_flag=True, help="All dead letters."),
        letter_task_option,
        click.option(
            "-i",
            "--id",
            "ids",
            metavar="ID",
            multiple=True,
            help="The dead letter with this task id; - reads ids from the standard input, one a line. May be repeated.",
        ),
    ):
        command = option(command)
    return command


def letter_filter(ids: Sequence[str], tasks: Sequence[str], *, every: bool) -> LetterFilter:
    """Returns the filter that the options of ``letter_filter_options`` describe. Ids and tasks both have to match.

    Raises:
        click.UsageError: There is no ``--all``, id or task; there is ``--all`` together with an id or a task; or the
            standard input, which should have the ids, has none.
    """
    if every == bool(ids or tasks):
        raise click.UsageError("which of the dead letters? Give --id, --task or --all")
    chosen = list(read_ids(ids))
    if ids and not chosen:
        raise click.UsageError("there is no id on the standard input")
    return LetterFilter(chosen, tasks)


def dead_letter_queues(broker: CliBroker, given: Sequence[str]) -> list[str]:
    """Returns the given queues of dead letters, or else every queue that a task or the delivery limit of the app names.

    Raises:
        click.UsageError: No queue is given, and the app names none.
    """
    if given:
        return list(dict.fromkeys(given))
    if broker.app is None:
        raise click.UsageError("which queue? Give its name, or run it as `celery -A app delayq dead-letters …`")
    queues = named_by(broker.app)
    if not queues:
        raise click.UsageError("which queue? No task of the app has a dead_letter_queue")
    return queues


def known_dead_letter_queues(broker: CliBroker, store: OperatorStore, names: Sequence[str]) -> list[str]:
    """Returns those that are queues of dead letters, and names the others on stderr.

    A queue is one if dead letters were put into it, as Redis knows, or if the app names it. The messages of any other
    queue are tasks that workers run. An empty queue is known when the app or the transfer workers know it.
    """
    letters, known = letters_of.queues(store), set(store.queues.names())
    if broker.app is not None:
        named = named_by(broker.app)
        letters, known = letters.union(named), known.union(named, broker.app.amqp.queues)
    queues = []
    for name in names:
        held = _count(store, name)
        if held is None or name in (letters if held else known):
            queues.append(name)
        elif held:
            why = "no dead letter was put into it, and no task of the app names it"
            print_stderr(f"queue {name!r} is no queue of dead letters: {why}")
        else:
            print_stderr(f"queue {name!r} holds no dead letters, and is not known")
    return queues


class LatestLetters:
    """The dead letters that Redis knows, by their ids; read when the first is asked for.

    Args:
        store: The broker's store.
    """

    def __init__(self, store: OperatorStore) -> None:
        self._store = store
        self._found: dict[str, DeadLetter] | None = None

    def get(self, task_id: str) -> DeadLetter | None:
        """Returns the dead letter of an id; None if there is none among the latest."""
        if self._found is None:
            self._found = {letter.id: letter for letter in letters_of.latest(self._store)}
        return self._found.get(task_id)


def _count(store: OperatorStore, queue: str) -> int | None:
    try:
        return sum(store.letters.lists(queue).values())
    except ResponseError:  # a key has another type; the command will name it
        return None


def named_by(app: Celery) -> list[str]:
    """Returns the queues of dead letters that a task or the delivery limit of an app names."""
    app.loader.import_default_modules()
    named = {getattr(task, "dead_letter_queue", None) for task in app.tasks.values()}
    options = app.conf.broker_transport_options or {}
    if options.get("delivery_limit", Options().delivery_limit) is not None:
        named.add(options.get("dead_letter_queue", Options().dead_letter_queue))
    return sorted(name for name in named if isinstance(name, str))


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return offer(lambda: dead_letter_queues(CliBroker.of_completion(context), ()), incomplete)


def dead_letter_queues_argument(command: F) -> F:
    """Adds the argument ``[QUEUE]...``, a tuple ``queues``, which ``dead_letter_queues`` reads."""
    return click.argument("queues", metavar="[QUEUE]...", nargs=-1, shell_complete=_complete)(command)
