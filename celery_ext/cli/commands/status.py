"""``delayq status``."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import click
from redis.exceptions import NoPermissionError, ResponseError

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.hints import prefixes_in_words, stock_transport
from celery_ext.cli.options import json_option
from celery_ext.cli.output import escaped, fit_table, local_time
from celery_ext.cli.queues import known_queues, queues_argument
from celery_ext.delays.durations import in_words
from kombu_delayq.message.times import iso_of
from kombu_delayq.store import OperatorStore, WaitingStore
from kombu_delayq.store.consuming.consumers import ConsumerLease
from kombu_delayq.store.queues import QueueStats


@click.command()
@queues_argument()
@json_option("Print one JSON object instead.")
@click.pass_obj
def status(broker: CliBroker, queues: tuple[str, ...], as_json: bool) -> None:
    """Show each queue's delayed and ready messages, what is overdue, who transfers, and who consumes.

    Without QUEUE, it shows the queues that hold or held delayed messages and those of the app, and all consumers.
    DELAYED messages wait in the store, overdue ones among them; READY messages wait for a consumer. IN HAND are those
    that a consumer has and has not acknowledged, of all its queues.
    """
    with broker.store() as (connection, store):
        of_app = list(broker.app.amqp.queues) if broker.app is not None else []
        given = known_queues(broker, store, queues, ready=True)
        names = given if queues else sorted({*store.queues.names(), *of_app})
        consuming, failed = _consuming(store, queues)
        report: dict[str, Any] = {
            "broker": connection.as_uri(),
            "global_keyprefix": store.keys.prefix,
            "stock_transport": stock_transport(broker.app),
            "leader": store.leases.leader(),
            "queues": [_row_or_error(store, name) for name in names],
            **consuming,
            "other_prefixes": store.queues.other_prefixes(),
        }
    click.echo(json.dumps(report, indent=2) if as_json else _text(report, queues, app=broker.app is not None))
    if failed or any("error" in row for row in report["queues"]) or len(given) < len(set(queues)):
        raise SystemExit(1)


def _row_or_error(store: WaitingStore, queue: str) -> dict[str, Any]:
    try:
        return _row(store.queues.stats(queue))
    except ResponseError as error:  # such as for a key of another type; the other queues go on
        return {"queue": queue, "error": str(error)}


def _row(stats: QueueStats) -> dict[str, Any]:
    due_ms = stats.next_due_ms
    return {
        "queue": stats.queue,
        "delayed": stats.delayed,
        "ready": stats.ready,
        "next_due": None if due_ms is None else iso_of(due_ms),
        "next_due_in_s": None if due_ms is None else round((due_ms - stats.now_ms) / 1000, 3),
        "overdue": stats.overdue,
        "overdue_by_s": round(stats.overdue_ms / 1000, 3),
    }


def _consuming(store: OperatorStore, queues: Sequence[str]) -> tuple[dict[str, Any], bool]:
    """Returns the consumers of queues, by default all, and how many messages are in hand elsewhere; whether it failed.

    A user of an ACL without the rights for it learns no more than that.
    """
    rows, others, error, failed = [], Counter[str](), None, False
    try:
        counts = store.consumers.counts()  # first: a consumer is known before it takes messages
        leases = store.consumers.all()
        rows = [_consumer_row(lease, counts[lease.name]) for lease in leases]
        known = {lease.name for lease in leases}
        others = Counter({"stock": counts.pop("", 0), "nobody": sum(counts[name] for name in counts.keys() - known)})
    except ResponseError as found:
        error, failed = str(found), not isinstance(found, NoPermissionError)
    rows = [row for row in rows if not queues or not set(queues).isdisjoint(row["queues"])]
    in_hand = {"in_hand_of_stock": others["stock"], "in_hand_of_nobody": others["nobody"]}
    return {"consumers": rows, **in_hand, "consumers_error": error}, failed


def _consumer_row(lease: ConsumerLease, in_hand: int) -> dict[str, Any]:
    return {
        "consumer": lease.name,
        "host": lease.host,
        "pid": lease.pid,
        "queues": lease.queues,
        "in_hand": in_hand,
        "lease_left_s": round(lease.left_ms / 1000, 3) if lease.left_ms > 0 else 0,
        "reclaimed": lease.left_ms <= 0,
    }


def _consumer_lines(report: dict[str, Any]) -> Iterator[str]:
    rows = [
        [
            *map(escaped, (row["host"], row["pid"])),
            f"{row['in_hand']:,}",
            "ended: these go back" if row["reclaimed"] else f"{in_words(row['lease_left_s'], plain=True)} left",
            escaped(", ".join(row["queues"])),
        ]
        for row in report["consumers"]
    ]
    if rows:
        yield from ("", *fit_table(["HOST", "PID", "IN HAND", "LEASE", "CONSUMES"], rows, right={1, 2}, title=0))
    if report["consumers_error"]:
        yield escaped(f"consumers are not listed: {report['consumers_error']}")
    if report["in_hand_of_stock"]:
        yield f"{report['in_hand_of_stock']:,} messages are in the hands of consumers on the stock transport"
    if report["in_hand_of_nobody"]:
        yield (
            f"{report['in_hand_of_nobody']:,} messages are in the hands of consumers that nobody knows: "
            "`delayq repair` gives them back"
        )


def _text(report: dict[str, Any], queues: Sequence[str], *, app: bool) -> str:
    lines = [f"broker   {report['broker']}"]
    if report["global_keyprefix"]:
        lines.append(escaped(f"prefix   {report['global_keyprefix']}"))
    lines.append(f"leading  {report['leader'] or 'no transfer worker runs: nothing that is due will be delivered'}")
    if report["stock_transport"]:
        lines.append(
            f"app      uses the stock transport {report['stock_transport']!r} itself: its delayed tasks wait in the "
            "memory of workers, not here. To switch it over, set broker_transport = "
            '"kombu_delayq.transport:Transport"'
        )
    lines.append("")
    rows = [
        [
            escaped(row["queue"]),
            f"{row['delayed']:,}",
            f"{row['ready']:,}",
            f"{local_time(row['next_due'])} ({in_words(row['next_due_in_s'])})" if row["next_due"] else "-",
            f"{row['overdue']:,} by {in_words(row['overdue_by_s'], plain=True)}" if row["overdue"] else "0",
        ]
        for row in report["queues"]
        if "error" not in row
    ]
    if rows:
        lines += fit_table(["QUEUE", "DELAYED", "READY", "NEXT DUE", "OVERDUE"], rows, right={1, 2}, title=0)
    if not (report["queues"] or queues):
        lines.append("no queue holds or held delayed messages")
    lines += [escaped(f"queue {row['queue']!r}: {row['error']}") for row in report["queues"] if "error" in row]
    lines += _consumer_lines(report)
    if report["other_prefixes"]:
        lines += ["", escaped(prefixes_in_words(report["other_prefixes"], app=app))]
    return "\n".join(lines)
