"""``delayq status --check``: one line and an exit code, as monitoring plugins have them.

Source: https://www.monitoring-plugins.org/doc/guidelines.html
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, NoReturn, TypeVar

import click

from celery_ext.cli.colours import bad, good, warning
from celery_ext.cli.output import escaped, number_of
from celery_ext.cli.param_types import DURATION
from celery_ext.cli.status import cluster, journal
from celery_ext.delays.durations import in_words

F = TypeVar("F", bound=Callable[..., Any])

#: How many queues a line names for each of its complaints.
NAMED = 3


class State(IntEnum):
    """The result of a check, which is the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


#: Which of several states counts, the worst last.
_WORSE = (State.OK, State.WARNING, State.UNKNOWN, State.CRITICAL)
_COLOURS = {State.OK: good, State.WARNING: warning, State.CRITICAL: bad, State.UNKNOWN: warning}


class _Measure(NamedTuple):
    """What can have limits: for each queue one number.

    Attributes:
        name: As in the options, with hyphens.
        rows: Which part of the report has the queues.
        field: The number in a row.
        words: What it counts.
        unit: Of the performance data.
    """

    name: str
    rows: str
    field: str
    words: str
    unit: str = ""


_MEASURES = (
    _Measure("overdue", "queues", "overdue_by_s", "overdue by", "s"),
    _Measure("ready", "queues", "ready", "ready"),
    _Measure("delayed", "queues", "delayed", "delayed"),
    _Measure("dead-letters", "dead_letters", "messages", "dead letters"),
)


@dataclass(frozen=True)
class Limits:
    """What to check.

    Attributes:
        warn: By the name of a measure, the most that is no warning.
        most: By the name of a measure, the most that is not critical.
        leader: Whether it is critical that no transfer worker leads.
        consumers: Whether to warn of queues with messages that are ready or due, and no known consumer.
        journal: Whether the journal has to be there and promoted in time.
        nodes: Whether all slots of a Redis Cluster have to be served, and all its nodes have to be well.
    """

    warn: Mapping[str, float]
    most: Mapping[str, float]
    leader: bool = False
    consumers: bool = False
    journal: bool = False
    nodes: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Limits":
        """Returns the limits in the values of ``check_options``, of which missing ones are None.

        Raises:
            click.UsageError: A limit for warnings is above the critical one.
        """
        warn, most = (
            {
                measure.name: value
                for measure in _MEASURES
                if (value := given[f"{kind}_{measure.name.replace('-', '_')}"]) is not None
            }
            for kind in ("warn", "max")
        )
        for name in warn.keys() & most.keys():
            if warn[name] > most[name]:
                raise click.UsageError(f"--warn-{name} is above --max-{name}, so it would never warn")
        return cls(warn, most, given["leader"], given["consumers"], given["journal"], given["nodes"])

    def __bool__(self) -> bool:
        return bool(self.warn or self.most or self.leader or self.consumers or self.journal or self.nodes)


def check_options(command: F) -> F:
    """Adds the options with what to check; ``Limits.of`` reads them."""
    number = click.IntRange(min=0)
    limits: list[tuple[str, click.ParamType[Any], str, str, str]] = [
        ("overdue", DURATION, "TIME", "a message is overdue by more", ", such as 5s"),
        ("ready", number, "N", "a queue has more ready messages", ""),
        ("delayed", number, "N", "a queue has more delayed messages", ""),
        ("dead-letters", number, "N", "a queue has more dead letters", ""),
    ]
    options = [
        option
        for name, kind, metavar, when, example in limits
        for option in (
            click.option(f"--max-{name}", type=kind, metavar=metavar, help=f"CRITICAL when {when}{example}."),
            click.option(f"--warn-{name}", type=kind, metavar=metavar, help=f"WARNING when {when}."),
        )
    ]
    options += [
        click.option("--leader", is_flag=True, help="CRITICAL when no transfer worker leads."),
        click.option(
            "--consumers",
            is_flag=True,
            help="WARNING when messages of a queue are ready or due, and no consumer of it is known.",
        ),
        click.option(
            "--journal",
            is_flag=True,
            help="CRITICAL when the journal's database is away, nobody promotes its messages, or promotion is so late "
            f"that messages are; WARNING when it is {journal.LAG_S:g} s behind.",
        ),
        click.option(
            "--nodes",
            is_flag=True,
            help="In a Redis Cluster: CRITICAL when a slot is served by no node; WARNING when a node is down, or a "
            "replica has lost its primary.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


class CheckedCommand(click.Command):
    """A command that ends with UNKNOWN and its code if ``--check`` is among its arguments and they are wrong."""

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> click.Context:
        """Reads the arguments."""
        is_check = "--check" in args
        try:
            return super().make_context(info_name, args, *more, **extra)
        except click.UsageError as error:
            if not is_check:
                raise
            end(State.UNKNOWN, error.format_message())


def check(report: Mapping[str, Any], limits: Limits, *, failed: bool) -> NoReturn:
    """Prints the line of a check, and ends the command with the code of its state.

    Args:
        report: As ``delayq status --json`` prints it.
        limits: What to check.
        failed: Whether something could not be read.
    """
    found = list(_complaints(report, limits, failed=failed))
    state = max((state for state, _ in found), key=_WORSE.index, default=State.OK)
    found.sort(key=lambda complaint: _WORSE.index(complaint[0]), reverse=True)
    end(state, "; ".join(text for _, text in found) or _summary(report), " ".join(_data(report, limits)))


def end(state: State, text: str, data: str = "") -> NoReturn:
    """Prints a line, and ends the command with the code of a state. A bar in the text would begin its data."""
    line = escaped(" ".join(text.split())).replace("|", "\\x7c")
    click.echo(f"DELAYQ {_COLOURS[state](state.name)} - {line}{f'|{data}' if data else ''}")
    raise SystemExit(state)


def _complaints(report: Mapping[str, Any], limits: Limits, *, failed: bool) -> Iterator[tuple[State, str]]:
    if limits.leader and not report["leader"]:
        yield State.CRITICAL, "no transfer worker leads"
    yield from ((State.CRITICAL, text) for text in journal.critical(report["journal"], wanted=limits.journal))
    yield from ((State.WARNING, text) for text in journal.warnings(report["journal"], wanted=limits.journal))
    if limits.nodes:
        yield from _of_nodes(report)
    for measure in _MEASURES:
        rows = _rows(report, measure)
        most, warn = limits.most.get(measure.name), limits.warn.get(measure.name)
        too_many = [] if most is None else [row for row in rows if row[measure.field] > most]
        for row in _largest(too_many, measure):
            yield State.CRITICAL, _above(row, measure, most)
        others = [] if warn is None else [row for row in rows if row[measure.field] > warn and row not in too_many]
        for row in _largest(others, measure):
            yield State.WARNING, _above(row, measure, warn)
    if limits.consumers:
        yield from _of_consumers(report)
    unread = [*report["queues"], *(report["dead_letters"] if _counts_letters(limits) else ())]
    errors = {row["queue"]: row["error"] for row in unread if "error" in row}
    if errors:
        yield State.UNKNOWN, f"{_names(errors)} cannot be read: {next(iter(errors.values()))}"
    elif failed:
        yield State.UNKNOWN, "something that was asked for is not known; stderr says what"


def _of_consumers(report: Mapping[str, Any]) -> Iterator[tuple[State, str]]:
    if report["consumers_error"]:
        yield State.UNKNOWN, f"consumers are not listed: {report['consumers_error']}"
    idle = [row["queue"] for row in report["queues"] if row.get("no_consumer")]
    if idle:
        yield State.WARNING, f"no consumer is known of {_names(idle)}"


def _of_nodes(report: Mapping[str, Any]) -> Iterator[tuple[State, str]]:
    for state, texts in (
        (State.CRITICAL, cluster.critical(report)),
        (State.WARNING, cluster.warnings(report)),
        (State.UNKNOWN, cluster.unknown(report)),
    ):
        yield from ((state, text) for text in texts)


def _rows(report: Mapping[str, Any], measure: _Measure) -> list[dict[str, Any]]:
    """Returns the queues that a measure is about. Messages that the rate of their queue holds back are not late."""
    rows = [row for row in report[measure.rows] if "error" not in row]
    return [row for row in rows if not row["held_back"]] if measure.name == "overdue" else rows


def _counts_letters(limits: Limits) -> bool:
    return "dead-letters" in (limits.most.keys() | limits.warn.keys())


def _largest(rows: list[dict[str, Any]], measure: _Measure) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: float(row[measure.field]), reverse=True)[:NAMED]


def _above(row: dict[str, Any], measure: _Measure, limit: float | None) -> str:
    value = _in_words(row[measure.field], measure)
    words = measure.words.removesuffix("s") if value == "1" else measure.words
    what = f"{words} {value}" if measure.unit else f"{value} {words}"
    return f"{row['queue']}: {what} (limit {_in_words(limit or 0, measure)})"


def _in_words(value: float, measure: _Measure) -> str:
    return in_words(value, plain=True) if measure.unit else f"{value:,}"


def _names(queues: Any) -> str:
    names = list(queues)
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED:,} more" if len(names) > NAMED else "")


def _summary(report: Mapping[str, Any]) -> str:
    rows = [row for row in report["queues"] if "error" not in row]
    letters = sum(row.get("messages", 0) for row in report["dead_letters"])
    counts = [f"{sum(row[field] for row in rows):,} {field}" for field in ("delayed", "ready", "overdue")]
    held = sum(row["overdue"] for row in rows if row["held_back"])
    counts += [f"{held:,} of these held back by a transfer_rate"] if held else []
    leader = f"{report['leader']} leads" if report["leader"] else "nobody leads"
    return f"{leader}, queues: {len(rows):,}, {', '.join(counts)}, {number_of(letters, 'dead letter')}"


def _data(report: Mapping[str, Any], limits: Limits) -> Iterator[str]:
    """Yields performance data: each measure of the queue that has the most, with its limits."""
    for measure in _MEASURES:
        largest = max((row[measure.field] for row in _rows(report, measure)), default=0)
        warn, most = (
            "" if (limit := of.get(measure.name)) is None else f"{limit:g}" if measure.unit else f"{limit}"
            for of in (limits.warn, limits.most)
        )
        yield f"{measure.name.replace('-', '_')}={largest}{measure.unit};{warn};{most};0"
    yield f"leader={int(bool(report['leader']))}"
    if found := report["journal"]:
        yield f"promotion_lag={found['lag_s']:g}s;{journal.LAG_S:g};{found['lead_s']:g};0"
