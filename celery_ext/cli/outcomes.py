"""Prints what became of the tasks whose ids a command got, and chooses the exit code."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import click

from celery_ext.cli.options import STDIN, count_of_ids
from celery_ext.cli.output import escaped, json_line
from celery_ext.cli.progress import with_progress
from celery_ext.cli.stderr import print_stderr
from celery_ext.waiting.by_id import Outcome
from kombu_delayq.audit import NOT_DONE

#: Each outcome in words, of one task or of many.
WORDS: Mapping[Outcome, str] = {
    "cancelled": "cancelled",
    "chain_ended": "not waiting, but the delay chain takes no further step",
    "rescheduled": "rescheduled",
    "transferred": "sent to be run",
    "not_delayed": "not waiting",
    "dead_letter": "not waiting, but a dead letter: drop it there, or a replay runs it with all its retries",
    "unreadable": "not changed, because the message cannot be rewritten",
}


def report(
    outcomes: Iterable[tuple[str, Outcome]],
    label: str,
    ids: Sequence[str],
    counts: Counter[Outcome],
    *,
    as_json: bool,
    words: Mapping[Outcome, str] = WORDS,
) -> None:
    """Prints what became of each task. For ids from the standard input it prints only totals, unless it prints JSON.

    Args:
        outcomes: Ids and what became of them; reading one does the work.
        label: Label of the progress bar, such as ``cancelling``.
        ids: The ids as they were given.
        counts: Gets how often each outcome came.
        as_json: Whether to print JSON.
        words: Each outcome in words.
    """
    in_sum = STDIN in ids and not as_json
    for identity, outcome in with_progress(outcomes, label, count_of_ids(ids), printing=not in_sum):
        counts[outcome] += 1
        if as_json:
            click.echo(json_line({"id": identity, "outcome": outcome}))
        elif not in_sum:
            write = print_stderr if outcome in NOT_DONE else click.echo
            write(f"{escaped(identity)}: {words[outcome]}")
    if in_sum:
        click.echo(
            ", ".join(f"{counts[outcome]:,} {words[outcome]}" for outcome in words if counts[outcome])
            or "no ids were given"
        )


def exit_code(counts: Counter[Outcome]) -> int:
    """Returns 1 if none of the tasks waited or a message could not be changed, else 0."""
    done = sum(count for outcome, count in counts.items() if outcome not in NOT_DONE)
    return int(bool(counts["unreadable"]) or (not done and bool(counts)))
