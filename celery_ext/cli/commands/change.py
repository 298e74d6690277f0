"""``delayq cancel``, ``reschedule`` and ``run-now``: of tasks by their ids, or of all that the options select."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial, wraps
from typing import Any, NamedTuple, TypeVar

import click
from celery import Celery

from celery_ext.cli.broker import CliBroker, broker_in_words
from celery_ext.cli.options import (
    STDIN,
    GivenMoment,
    confirm,
    count_of_ids,
    duration,
    ids_argument,
    json_option,
    known_queues,
    moment,
    queue_option,
    read_ids,
    shift,
    yes_option,
)
from celery_ext.cli.output import escaped, json_line, local_time, number_of, print_stderr, when
from celery_ext.cli.progress import Bar, with_progress
from celery_ext.cli.selecting import Criteria, criteria_options, report_skipped, report_unreadable
from celery_ext.cli.signals import stoppable
from celery_ext.delays import durations
from celery_ext.waiting import (
    Bulk,
    BulkAction,
    BulkOutcome,
    Outcome,
    Selection,
    Snapshot,
    audited_bulk,
    by_id,
    places,
    revoke,
    take_snapshot,
)
from kombu_delayq.audit import NOT_DONE, audited, ids_named
from kombu_delayq.store import DelayStore

F = TypeVar("F", bound=Callable[..., Any])

#: Each outcome in words, of one task or of many.
WORDS: Mapping[Outcome | BulkOutcome, str] = {
    "cancelled": "cancelled",
    "chain_ended": "not waiting, but the delay chain takes no further step",
    "asked_to_stop": "running, and asked to stop",
    "rescheduled": "rescheduled",
    "transferred": "sent to be run",
    "not_delayed": "not waiting",
    "dead_letter": "not waiting, but a dead letter: drop it there, or a replay runs it with all its retries",
    "unreadable": "not changed, because the message cannot be rewritten",
    "too_long": "not changed, because max_delay forbids the new time",
    "gone": "no longer there: come due, or changed meanwhile",
}
#: Outcomes of a selected task with which a command has failed.
_FAILED: tuple[BulkOutcome, ...] = ("unreadable", "too_long")
_NO_RESULTS = "results stay as they are: only `celery -A app delayq cancel` knows the result backend"


class Asked(NamedTuple):
    """Which tasks a command is to change: those of ``ids``, or without any, those that the rest selects.

    Attributes:
        ids: The ids as they were given.
        queues: Names of queues; none for all.
        criteria: The other conditions.
        yes: As of ``confirm``.
        as_json: Whether to print JSON.
    """

    ids: tuple[str, ...]
    queues: tuple[str, ...]
    criteria: Criteria
    yes: bool
    as_json: bool


def choosing_tasks(command: F) -> F:
    """Adds the argument ``ID...``, and instead of it ``--queue`` and the options of ``criteria_options``: ``asked``.

    The command ends with a usage error where there are both, or none.
    """

    @wraps(command)
    def with_tasks(*args: Any, **given: Any) -> Any:
        asked = Asked(*(given.pop(name) for name in Asked._fields))
        selects = bool(asked.queues) or any(asked.criteria)
        if selects and asked.ids:
            raise click.UsageError("give either ids, or --queue, --task, --due-from, --due-to and --arg")
        if not selects and not asked.ids:
            raise click.UsageError("which tasks? Give ids, or --queue, --task, --due-from, --due-to or --arg")
        return command(*args, asked, **given)

    queue = queue_option("Instead of ids: tasks of this queue that match the next options. Repeatable.")
    found: Any = ids_argument(required=False)(queue(criteria_options(yes_option(json_option()(with_tasks)))))
    return found  # type: ignore[no-any-return]


@click.command()
@choosing_tasks
@click.pass_obj
def cancel(broker: CliBroker, asked: Asked) -> None:
    """Cancel waiting tasks, by id in any queue, or all that the options select.

    A cancelled task will never run. If a step of a delay chain runs just now and the task is named by its id, the chain
    ends with this step. A running task that asks `celery_ext.cancelled()` is asked to stop. With `celery -A app delayq
    cancel` the results become REVOKED; without an app they stay as they are. `-` reads the ids from the standard input,
    one a line.

    With options it counts the tasks first, and asks. Tasks that come meanwhile stay. It may be stopped with Ctrl-C, and
    called again.
    """
    ids = asked.ids
    if not ids:
        _change_selected(broker, asked, lambda now_ms: BulkAction("cancel"), "Cancel", "cancelling")
    named = f"task {escaped(ids[0])}" if len(ids) == 1 else number_of(len(ids), "task")
    in_stdin = STDIN in ids
    with broker.store() as (connection, store):
        question = f"Cancel {'tasks' if in_stdin else named} on {broker_in_words(connection)}?"
        confirm(question, yes=asked.yes, stdin_is_read=in_stdin)
        done = revoke.cancel(lambda: nullcontext(store), read_ids(ids), broker.app, places=places())
        counts = _report_ids("cancel", asked, ((one.id, one.outcome) for one in done), "cancelling")
        if counts["cancelled"] and broker.app is None:
            print_stderr(_NO_RESULTS)
    raise SystemExit(_exit_code(counts))


@click.command()
@choosing_tasks
@click.option("--eta", type=moment, help="New due time: ISO 8601, or from now, such as 10m.")
@click.option("--countdown", type=duration, help="Instead of --eta: s from now, or a duration such as 10m.")
@click.option(
    "--by", type=shift, help="Instead of --eta: how much later each task is due, such as 1d, or -1h for earlier."
)
@click.pass_obj
def reschedule(
    broker: CliBroker, asked: Asked, eta: GivenMoment | None, countdown: float | None, by: float | None
) -> None:
    """Change when waiting tasks are due: all get one time with --eta or --countdown, --by moves each one.

    They are named by id, in any queue, or all that the options select. A past time sends the tasks to their queues now.
    `-` reads the ids from the standard input, one a line.

    With options it counts the tasks first, and asks. Tasks that come later stay as they are. You can stop it with
    Ctrl-C, and call it again; with --by that moves all again.
    """
    if sum(value is not None for value in (eta, countdown, by)) != 1:
        raise click.UsageError("give one of --eta, --countdown and --by")

    def action_at(now_ms: float) -> BulkAction:
        if by is not None:
            return BulkAction("reschedule", shift_s=by)
        return BulkAction("reschedule", eta.at(now_ms) if eta is not None else now_ms + (countdown or 0) * 1000)

    words, label = {**WORDS, "transferred": "due already, sent to be run"}, "rescheduling"
    if not asked.ids:
        _change_selected(broker, asked, action_at, "Reschedule", label, words)
    with broker.store() as (_, store):
        now_ms = store.now_ms()
        action = action_at(now_ms)
        sign = "-" if (by or 0) < 0 else ""
        new = f"by {sign}{durations.in_words(abs(by), plain=True)}" if by else f"to {when(action.due_ms or 0, now_ms)}"
        words["rescheduled"] = f"rescheduled {new}"
        outcomes = by_id.reschedule(store, read_ids(asked.ids), action.due_ms, shift_s=action.shift_s)
        counts = _report_ids("reschedule", asked, outcomes, label, words, **action.times())
    raise SystemExit(_exit_code(counts))


@click.command("run-now")
@choosing_tasks
@click.pass_obj
def run_now(broker: CliBroker, asked: Asked) -> None:
    """Send waiting tasks to their queues now, by id in any queue, or all that the options select.

    `-` reads the ids from the standard input, one a line.

    With options it counts the tasks first, and asks. Tasks that come meanwhile go on waiting. It may be stopped with
    Ctrl-C, and called again.
    """
    if not asked.ids:
        _change_selected(broker, asked, lambda now_ms: BulkAction("run_now"), "Run now", "sending")
    with broker.store() as (_, store):
        counts = _report_ids("run", asked, by_id.run_now(store, read_ids(asked.ids)), "sending")
    raise SystemExit(_exit_code(counts))


def _report_ids(
    action: str,
    asked: Asked,
    outcomes: Iterable[tuple[str, Outcome]],
    label: str,
    words: Mapping[Any, str] = WORDS,
    **what: Any,
) -> Counter[Outcome]:
    """Prints what became of each task, and leaves a line in the audit. Returns how often each outcome came.

    For ids from the standard input it prints only totals, unless it prints JSON. Reading an outcome does the work.
    """
    ids, as_json, from_stdin = asked.ids, asked.as_json, STDIN in asked.ids
    named = ids_named((one for one in ids if one != STDIN), more=from_stdin)
    in_sum = from_stdin and not as_json
    with audited(action, {**named, **what}) as counts:
        for identity, outcome in with_progress(outcomes, label, count_of_ids(ids), printing=not in_sum):
            counts[outcome] += 1
            if as_json:
                click.echo(json_line({"id": identity, "outcome": outcome}))
            elif not in_sum:
                write = print_stderr if outcome in NOT_DONE else click.echo
                write(f"{escaped(identity)}: {words[outcome]}")
        if in_sum:
            click.echo(_summed_up(counts, words) or "no ids were given")
    return counts


def _exit_code(counts: Counter[Outcome]) -> int:
    """Returns 1 if none of the tasks waited or a message could not be changed, else 0."""
    done = sum(count for outcome, count in counts.items() if outcome not in NOT_DONE)
    return int(bool(counts["unreadable"]) or (not done and bool(counts)))


def _summed_up(counts: Counter[Any], words: Mapping[Any, str]) -> str:
    """Returns how often each outcome came, as text; empty without any."""
    return ", ".join(f"{counts[outcome]:,} {words[outcome]}" for outcome in words if counts[outcome])


def _change_selected(
    broker: CliBroker,
    asked: Asked,
    action: Callable[[float], BulkAction],
    question: str,
    label: str,
    words: Mapping[Any, str] = WORDS,
) -> None:
    """Counts all selected messages, asks, acts on them, prints what became of them, and ends the command.

    What is done, ``action`` says, given Redis's clock in ms.
    """
    queues = asked.queues
    with broker.store() as (connection, store):
        now_ms = store.now_ms()
        known = known_queues(broker, store, queues) if queues else None
        selection = asked.criteria.selection(now_ms, known)
        bulk_action = action(now_ms)
        matched = _counted(store, selection)
        failed = bool(matched.skipped) or len(known or ()) < len(set(queues))
        if not len(matched):
            print_stderr("no waiting task is selected")
            raise SystemExit(1)
        tasks = number_of(len(matched), "task")
        confirm(f"{question} {tasks} ({_in_words(selection, queues)}) on {broker_in_words(connection)}?", yes=asked.yes)
        bulk = Bulk(matched, bulk_action)
        ended = _run(store, bulk, label, broker.app)
        # Leaving the store ends the command if anything was logged as an error, such as a note that Redis refused.
        _report(bulk, words, ended=ended, as_json=asked.as_json, knows_results=broker.app is not None)
    raise SystemExit(int(failed or not ended or any(bulk.outcomes[outcome] for outcome in _FAILED)))


def _in_words(selection: Selection, queues: Sequence[str]) -> str:
    """Returns the conditions of a filter for a question, with the queues as they were given."""
    shown = replace(selection, queues=None).as_json()
    parts = [f"queue {escaped(name)}" for name in queues] or ["all queues"]
    parts += [f"task {escaped(selection.task)}"] if selection.task else []
    parts += [f"due from {local_time(shown['from'])}"] if "from" in shown else []
    parts += [f"due before {local_time(shown['to'])}"] if "to" in shown else []
    return ", ".join([*parts, *map(escaped, shown.get("arguments", ()))])


def _counted(store: DelayStore, selection: Selection) -> Snapshot:
    with stoppable() as stop, Bar("counting") as bar:
        matched = take_snapshot(store, selection, progress=lambda found: bar(found.looked, found.of), stop=stop)
    if matched is None:
        print_stderr("stopped; nothing has changed")
        raise SystemExit(1)
    report_skipped(matched.skipped)
    report_unreadable(matched.unreadable)
    return matched


def _run(store: DelayStore, bulk: Bulk, label: str, app: Celery | None) -> bool:
    try:
        with stoppable() as stop, Bar(label, bulk.of) as bar, audited_bulk(bulk):
            return bulk.run(store, progress=bar, stop=stop, announce=partial(revoke.announce_cancelled, app))
    except Exception:
        done: Counter[BulkOutcome] = bulk.outcomes
        print_stderr(f"{done.total():,} of {number_of(bulk.of, 'task')} done when it failed: {_rest(bulk)}")
        raise


def _rest(bulk: Bulk) -> str:
    if bulk.action.shift_s is not None:
        return "the rest is as it was; the same --by again moves all"
    return "call it again for the rest, which is as it was"


def _report(bulk: Bulk, words: Mapping[Any, str], *, ended: bool, as_json: bool, knows_results: bool) -> None:
    counts = bulk.outcomes
    if as_json:
        click.echo(json_line({"selected": bulk.of, "ended": ended, "outcomes": dict(counts)}))
    else:
        click.echo(_summed_up(counts, words) or "none")
    if counts["cancelled"] and not knows_results:
        print_stderr(_NO_RESULTS)
    if not ended:
        print_stderr(f"stopped after {bulk.done:,} of {bulk.of:,}: {_rest(bulk)}")
