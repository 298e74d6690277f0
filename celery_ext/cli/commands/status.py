"""``delayq status``: a report once, or again and again in place."""

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Collection, Container, Sequence
from contextlib import suppress
from math import isfinite
from time import sleep
from typing import Any, NamedTuple, TypeAlias

import click
from kombu.connection import Connection
from redis.exceptions import NoPermissionError, ResponseError

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.group import Reader
from celery_ext.cli.options import duration, json_option, known_queues, queues_argument
from celery_ext.cli.output import print_stderr
from celery_ext.cli.signals import signals_as_interrupt
from celery_ext.cli.status_text import text
from celery_ext.connection import stock_transport, wrong_keys
from celery_ext.dead_letters import routes
from celery_ext.features import modules_of
from celery_ext.health import QueueState, count_queues, overview_of
from celery_ext.waiting import LONG_LOOK_S, all_queues
from kombu_delayq.message import iso_of
from kombu_delayq.redis import is_wrong_type
from kombu_delayq.store import Beside, Cluster, ConsumerLease, DelayStore, Node

#: What ``--json`` prints of a queue, a consumer or a node.
Row: TypeAlias = dict[str, Any]


class Report(NamedTuple):
    """What is known of a broker.

    Attributes:
        values: As ``--json`` prints it.
        failed: Whether something that was asked for could not be read, or is not known.
        brought: The lines that features bring.
    """

    values: dict[str, Any]
    failed: bool
    brought: Sequence[str] = ()


def report_of(broker: CliBroker, connection: Connection, store: DelayStore, queues: Sequence[str]) -> Report:
    """Looks at queues, consumers and transfer workers; all of them if no queue is named.

    Raises:
        ResponseError: A key that is needed has the wrong type; the text names it.
    """
    wrong = wrong_keys(store, broker.app)
    try:
        report = _report_of(broker, connection, store, queues)
    except ResponseError as error:
        if wrong and is_wrong_type(error):
            raise ResponseError("; ".join(wrong)) from error
        raise
    report.values["wrong_keys"] = wrong
    return report._replace(failed=report.failed or bool(wrong))


def _report_of(broker: CliBroker, connection: Connection, store: DelayStore, queues: Sequence[str]) -> Report:
    store = store.reading()
    nodes = store.nodes()
    away = [] if nodes is None else _registry_away(store)
    given = list(queues) if away else known_queues(broker, store, queues, ready=True)
    letters = _dead_letters(broker, store, queues)
    names = given if queues else all_queues(store, broker.app, letters, look_s=LONG_LOOK_S)
    consumers, failed = _consumers(store, names if queues else ())
    rows = _rows(store, names, nodes, letters)
    now_ms, features = store.now_ms(), modules_of("status", but="cli")
    values = {
        "broker": connection.as_uri(),
        "global_keyprefix": store.keys.prefix,
        "stock_transport": stock_transport(broker.app),
        "leader": None if away else store.leases.leader(),
        "cluster": nodes and node_values(nodes, away),
        **{name: value for feature in features for name, value in feature.values(store, now_ms).items()},
        "queues": rows,
        "dead_letters": list(letters.values()),
        **consumers,
        "other_prefixes": store.queues.other_prefixes(),
    }
    failed = failed or any("error" in row for row in rows) or bool(set(queues) - set(given))
    failed = failed or bool(away) or bool(store.beside and store.beside.error)
    return Report(values, failed, [line for feature in features for line in feature.lines(store, now_ms)])


def _registry_away(store: DelayStore) -> list[str]:
    """Returns why the names of the queues cannot be read because their node is away; nothing if they can."""
    try:
        store.queues.names()
    except ResponseError:
        raise
    except store.pool.partial_errors as error:
        return [str(error)]
    return []


def _rows(store: DelayStore, queues: Sequence[str], nodes: Cluster | None, letters: Container[str]) -> list[Row]:
    """Counts queues; an error takes the place of what cannot be read."""
    try:
        found = count_queues(store, queues, nodes)
    except store.pool.partial_errors as error:  # such as for a user without the rights
        return [{"queue": queue, "error": str(error)} for queue in queues]
    return [_row(state, store.beside, is_of_letters=state.stats.queue in letters) for state in found]


def _row(state: QueueState, beside: Beside | None, *, is_of_letters: bool) -> Row:
    stats, due_ms = state.stats, state.stats.next_due_ms
    if stats.error:
        return {"queue": stats.queue, "error": stats.error}
    return {
        "queue": stats.queue,
        "delayed": stats.delayed,
        "in_journal": _alone(stats.queue, beside),
        "ready": stats.ready,
        "limited": stats.limited,
        "oldest_ready_s": None if stats.oldest_ready_s is None else round(stats.oldest_ready_s, 3),
        "next_due": None if due_ms is None else iso_of(due_ms),
        "next_due_in_s": None if due_ms is None else _seconds(due_ms - stats.now_ms),
        "overdue": stats.overdue,
        "overdue_by_s": _seconds(stats.overdue_ms),
        "held_back": _held_back(state),
        "too_late": state.counts.too_late,
        "unacked": state.unacked,
        "consumers": state.consumers,
        "paused_since": None if state.paused_ms is None else iso_of(state.paused_ms),
        "no_consumer": state.of_consumers(is_of_letters=is_of_letters).is_bad,
        **({} if state.slot is None else {"slot": state.slot, "node": state.node}),
    }


def _seconds(ms: float) -> float | None:
    """Returns a time in ms in s; None if it is infinite, which JSON is not, as the score of a damaged entry may be."""
    return round(ms / 1000, 3) if isfinite(ms) else None


def _alone(queue: str, beside: Beside | None) -> int | None:
    """Returns how many messages wait beside Redis alone; None while what has them does not answer."""
    if beside is None:
        return 0
    return None if beside.error else beside.waiting.get(queue, 0)


def _held_back(state: QueueState) -> dict[str, Any] | None:
    """Returns the rate that holds a queue's overdue messages back, and when the last of these leaves."""
    stats, held = state.stats, state.counts.holding(state.stats)
    if held is None:
        return None
    return {"per_s": held.per_s, "burst": held.burst, "until": iso_of(held.clear_ms(stats.now_ms, stats.overdue))}


def _dead_letters(broker: CliBroker, store: DelayStore, queues: Sequence[str]) -> dict[str, Row]:
    """Counts dead letters by queue: in the queues into which letters were put, and those that the app names."""
    of_app: Collection[str] = ()
    if broker.app is not None:
        with suppress(Exception):  # routes of the user's may fail in any way
            of_app = routes.named_by(broker.app)
    known = {*(store.if_allowed(store.queues.of_letters) or ()), *of_app}
    names = sorted(known.intersection(queues) if queues else known)
    try:
        counted = overview_of(store, names)
    except store.pool.partial_errors as error:  # such as for a user without the rights
        return {queue: {"queue": queue, "error": str(error)} for queue in names}
    return {
        stats.queue: {"queue": stats.queue, **({"error": stats.error} if stats.error else {"messages": stats.ready})}
        for stats in counted
    }


def _consumers(store: DelayStore, queues: Sequence[str]) -> tuple[dict[str, Any], bool]:
    """Returns the consumers of queues, by default all, and how many messages are in hand elsewhere; and if it failed.

    A user of an ACL without the rights for it learns no more than that.
    """
    in_hand, leases, error = Counter[str](), list[ConsumerLease](), None
    try:
        in_hand = Counter(store.consumers.counts())  # first: a consumer is known before it takes messages
        leases = store.consumers.all()
    except store.pool.partial_errors as refusal:
        in_hand, error = Counter(), refusal
    known = {lease.name for lease in leases}
    rows = [_consumer_row(lease, in_hand[lease.name]) for lease in leases]
    values = {
        "consumers": [row for row in rows if not queues or not set(queues).isdisjoint(row["queues"])],
        "in_hand_of_stock": in_hand[""],
        "in_hand_of_nobody": sum(count for name, count in in_hand.items() if name and name not in known),
        "consumers_error": error and str(error),
    }
    return values, error is not None and not isinstance(error, NoPermissionError)


def _consumer_row(lease: ConsumerLease, in_hand: int) -> Row:
    return {
        "consumer": lease.name,
        "host": lease.host,
        "pid": lease.pid,
        "queues": lease.queues,
        "in_hand": in_hand,
        "lease_left_s": round(lease.left_ms / 1000, 3) if lease.left_ms > 0 else 0,
        "reclaimed": lease.left_ms <= 0,
    }


def node_values(cluster: Cluster, away: Sequence[str]) -> dict[str, Any]:
    """Returns the nodes as ``--json`` prints them, and why the names of the queues are not known, if they are not."""
    return {
        "queues_error": away[0] if away else None,
        "slots_uncovered": cluster.uncovered,
        "error": cluster.error or None,
        "nodes": [_node(node) for node in cluster.nodes],
    }


def _node(node: Node) -> dict[str, Any]:
    return {
        "node": node.name,
        "role": node.role,
        "primary": node.primary or None,
        "state": node.state,
        "slots": node.count,
        "slot_ranges": [list(ends) for ends in node.ranges],
        "slots_moving": node.moving,
        "used_memory": node.memory and node.memory.used,
        "maxmemory": node.memory and node.memory.limit,
        "version": node.memory and node.memory.version,
        "lag_bytes": node.lag_bytes,
    }


#: To the upper left corner, and clear what is below. ``click.clear`` does nothing for who wants no colours.
_CLEARED = "\x1b[H\x1b[J"


def watch(look: Callable[[], str], every_s: float, *, in_place: bool) -> None:
    """Shows what ``look`` returns, until Ctrl-C or SIGTERM, and each error that it raises later, once."""
    in_place = in_place and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    shown, said = look(), ""  # an error at the beginning, such as of a wrong URL, ends the command
    with suppress(KeyboardInterrupt), signals_as_interrupt():
        while True:
            if shown and in_place:
                click.echo(_CLEARED, nl=False, color=True)
            if shown:
                click.echo(_cut(shown) if in_place else shown)
                sys.stdout.flush()
            sleep(every_s)
            try:
                shown, said = look(), ""
            except click.ClickException as error:
                if error.message != said:
                    print_stderr(error.message)
                shown, said = "", error.message  # the last report stays


def _cut(text: str) -> str:
    """Returns as many lines as the terminal has, and how many there are more, so that nothing scrolls."""
    lines, most = text.splitlines(), shutil.get_terminal_size().lines - 1
    if len(lines) > most:
        lines[most - 1 :] = [f"… and {len(lines) - most + 1:,} more lines"]
    return "\n".join(lines)


#: How often ``--watch`` looks, in s: by default, and at most.
EVERY_S, LEAST_S = 2.0, 0.1


@click.command(cls=Reader)
@queues_argument()
@json_option("Print one JSON object instead; with --watch, one a line.")
@click.option(
    "--watch",
    "every_s",
    type=duration,
    is_flag=False,
    flag_value=f"{EVERY_S:g}",
    metavar="[SECONDS]",
    help=f"Repeat every so often, by default every {EVERY_S:g} s, until Ctrl-C. Write --watch=5 before a QUEUE.",
)
@click.pass_obj
def status(broker: CliBroker, queues: tuple[str, ...], as_json: bool, every_s: float | None) -> None:
    """Show each queue's delayed, overdue and ready messages, its consumers, and the leading transfer worker.

    Without QUEUE, it shows all queues that are delayed, consumed, bound or of the app, those with dead letters, and all
    consumers. DELAYED messages wait in the store, overdue ones among them; READY messages wait for a
    consumer; those that are "limited" may not go now, because of a limit by key. CONSUMERS are those that are known:
    not those on the stock transport or with `consume="brpop"`. IN HAND are messages that a consumer has and has not
    acknowledged, of all its queues. With a journal, IN JOURNAL are those of the DELAYED messages that only the
    journal's database has. On a Redis Cluster, SLOT is the queue's hash slot and NODE the primary that has it; the
    nodes follow in a table of their own.
    """
    if every_s is None:
        report = _report(broker, queues)
        click.echo(json.dumps(report.values, indent=2) if as_json else _text(report, broker, queues))
        if report.failed:
            raise SystemExit(1)
        return
    if every_s < LEAST_S:
        raise click.UsageError(f"--watch looks every {LEAST_S:g} s at most")

    def look() -> str:
        report = _report(broker, queues, hurried=True)
        return json.dumps(report.values) if as_json else _text(report, broker, queues) + "\n"

    watch(look, every_s, in_place=not as_json)


def _report(broker: CliBroker, queues: tuple[str, ...], *, hurried: bool = False) -> Report:
    with broker.store(hurried=hurried) as (connection, store):
        return report_of(broker, connection, store, queues)


def _text(report: Report, broker: CliBroker, queues: tuple[str, ...]) -> str:
    return text(report.values, report.brought, named=bool(queues), app=broker.app is not None)
