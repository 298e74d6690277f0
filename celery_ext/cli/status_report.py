"""The report of ``delayq status``: a dict, as ``--json`` prints it."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kombu.connection import Connection
from redis.exceptions import NoPermissionError, ResponseError

from celery_ext.cli.broker import CliBroker
from celery_ext.cli.letter_options import named_by
from celery_ext.cli.queues import known_queues
from celery_ext.connection import look_at_journal, stock_transport
from kombu_delayq.message.due import iso_of
from kombu_delayq.store import OperatorStore
from kombu_delayq.store.counts import QueueCounts
from kombu_delayq.store.nodes import Cluster, Node
from kombu_delayq.store.queues import QueueStats
from kombu_delayq.store.types import ConsumerLease

if TYPE_CHECKING:
    from celery_ext.journal.state import JournalState

T = TypeVar("T")


class Report(NamedTuple):
    """What is known of a broker.

    Attributes:
        values: As ``--json`` prints it.
        failed: Whether something that was asked for could not be read, or is not known.
    """

    values: dict[str, Any]
    failed: bool


class _Consuming(NamedTuple):
    leases: list[ConsumerLease]
    in_hand: Counter[str]
    unacked: dict[str, int]
    error: str | None
    failed: bool


def report(broker: CliBroker, connection: Connection, store: OperatorStore, queues: Sequence[str]) -> Report:
    """Looks at queues, consumers and transfer workers.

    Args:
        broker: The broker of the command.
        connection: The connection to it.
        store: Its store.
        queues: Names of queues; none for all.
    """
    store, state = look_at_journal(store)
    of_app = list(broker.app.amqp.queues) if broker.app is not None else []
    nodes = store.nodes.overview()
    away = [] if nodes is None else _registry_away(store)
    given = list(queues) if away else known_queues(broker, store, queues, figures=store.figures)
    names = given if queues else sorted({*([] if away else store.queues.names()), *of_app})
    letters = _dead_letters(broker, store, queues)
    consuming = _consuming(store)
    counts = _or_missing(store, lambda: store.figures.counts(names), dict[str, QueueCounts]())
    rows = [
        {
            **_row(found, counts.get(found.queue), consuming, letters, state),
            **place_of(store, nodes, found.queue),
        }
        for found in _overview(store, names)
    ]
    values = {
        "broker": connection.as_uri(),
        "global_keyprefix": store.keys.prefix,
        "stock_transport": stock_transport(broker.app),
        "leader": None if away else store.leases.leader(),
        "cluster": nodes and node_values(nodes, away),
        "journal": state and journal_values(state, store.now_ms(), store.options.journal_lead),
        "queues": rows,
        "dead_letters": list(letters.values()),
        **_consumers(consuming, names if queues else ()),
        "other_prefixes": store.queues.other_prefixes(),
    }
    failed = consuming.failed or any("error" in row for row in rows) or bool(set(queues) - set(given))
    failed = failed or bool(away) or bool(state and state.error)
    return Report(values, failed)


def _registry_away(store: OperatorStore) -> list[str]:
    """Returns why the names of the queues cannot be read because their node is away; nothing if they can."""
    try:
        store.queues.names()
    except ResponseError:
        raise
    except store.nodes.errors as error:
        return [str(error)]
    return []


def _overview(store: OperatorStore, queues: Sequence[str]) -> list[QueueStats]:
    """Counts the messages of queues; an error takes the place of what cannot be read."""
    try:
        return store.figures.overview(queues)
    except store.nodes.errors as error:  # such as for a user without the rights
        return [QueueStats(queue, 0.0, 0, 0, 0, None, error=str(error)) for queue in queues]


def _row(
    stats: QueueStats,
    counts: QueueCounts | None,
    consuming: _Consuming,
    letters: dict[str, Any],
    state: "JournalState | None",
) -> dict[str, Any]:
    queue, due_ms = stats.queue, stats.next_due_ms
    if stats.error:
        return {"queue": queue, "error": stats.error}
    living = [lease for lease in consuming.leases if lease.left_ms > 0 and queue in lease.queues]
    consumers = len({("http", lease.pid) if lease.is_http else lease.name for lease in living})  # one has many leases
    unacked = consuming.unacked.get(queue, 0)
    is_idle = not (consumers or unacked or consuming.error or queue in letters)
    return {
        "queue": queue,
        "delayed": stats.delayed,
        "in_journal": _in_journal(queue, state),
        "ready": stats.ready,
        "next_due": None if due_ms is None else iso_of(due_ms),
        "next_due_in_s": None if due_ms is None else round((due_ms - stats.now_ms) / 1000, 3),
        "overdue": stats.overdue,
        "overdue_by_s": round(stats.overdue_ms / 1000, 3),
        "held_back": _held_back(stats, counts),
        "too_late": None if counts is None else counts.too_late,
        "unacked": None if consuming.error else unacked,
        "consumers": None if consuming.error else consumers,
        "no_consumer": is_idle and bool(stats.ready or stats.overdue),
    }


def _in_journal(queue: str, state: "JournalState | None") -> int | None:
    """Returns how many messages only the journal has; None while its database does not answer."""
    if state is None:
        return 0
    return None if state.error else state.waiting.get(queue, 0)


def _held_back(stats: QueueStats, counts: QueueCounts | None) -> dict[str, Any] | None:
    """Returns the rate that holds a queue's overdue messages back, and when the last of these leaves."""
    held = None if counts is None else counts.holding(stats)
    if held is None:
        return None
    return {"per_s": held.per_s, "burst": held.burst, "until": iso_of(held.clear_ms(stats.now_ms, stats.overdue))}


def _dead_letters(broker: CliBroker, store: OperatorStore, queues: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Counts dead letters by queue: in the queues into which letters were put, and those that the app names."""
    of_app = [] if broker.app is None else _or_missing(store, lambda: named_by(broker.app), list[str](), (Exception,))
    known = {*_or_missing(store, store.figures.dead_letter_queues, list[str]()), *of_app}
    names = sorted(known.intersection(queues) if queues else known)
    found = {}
    for stats in _overview(store, names):
        found[stats.queue] = {"queue": stats.queue, "messages": stats.ready}
        if stats.error:
            found[stats.queue] = {"queue": stats.queue, "error": stats.error}
    return found


def _or_missing(store: OperatorStore, look: Callable[[], T], missing: T, errors: tuple[type[Exception], ...] = ()) -> T:
    try:
        return look()
    except errors or store.nodes.errors:  # noqa: B030  # both are tuples of classes
        return missing


def _consuming(store: OperatorStore) -> _Consuming:
    """Reads who consumes, and what they have. A user of an ACL without the rights for it learns no more than that."""
    try:
        in_hand = Counter(store.consumers.counts())  # first: a consumer is known before it takes messages
        leases = store.consumers.all()
        held = _or_missing(store, store.figures.held, dict[str, int]())
    except store.nodes.errors as error:
        return _Consuming([], Counter(), {}, str(error), not isinstance(error, NoPermissionError))
    return _Consuming(leases, in_hand, held, None, False)


def _consumers(consuming: _Consuming, queues: Sequence[str]) -> dict[str, Any]:
    """Returns the consumers of queues, by default all, and how many messages are in hand elsewhere."""
    known = {lease.name for lease in consuming.leases}
    rows = [_consumer_row(lease, consuming.in_hand[lease.name]) for lease in consuming.leases]
    return {
        "consumers": [row for row in rows if not queues or not set(queues).isdisjoint(row["queues"])],
        "in_hand_of_stock": consuming.in_hand[""],
        "in_hand_of_nobody": sum(count for name, count in consuming.in_hand.items() if name and name not in known),
        "consumers_error": consuming.error,
    }


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


def node_values(cluster: Cluster, away: Sequence[str]) -> dict[str, Any]:
    """Returns the nodes as ``--json`` prints them.

    Args:
        cluster: The nodes.
        away: Why the names of the queues are not known because their node is away; nothing if they are.
    """
    return {
        "queues_error": away[0] if away else None,
        "slots_uncovered": cluster.uncovered,
        "error": cluster.error or None,
        "nodes": [_node(node) for node in cluster.nodes],
    }


def place_of(store: OperatorStore, cluster: Cluster | None, queue: str) -> dict[str, Any]:
    """Returns the hash slot of a queue and the name of its node; nothing for a server without slots."""
    slot, node = store.nodes.place_of(queue, cluster)
    return {} if slot is None else {"slot": slot, "node": node}


def _node(node: Node) -> dict[str, Any]:
    return {
        "node": node.name,
        "role": node.role,
        "primary": node.primary or None,
        "state": node.state,
        "slots": node.count,
        "slot_ranges": [list(ends) for ends in node.slots],
        "slots_moving": node.moving,
        "used_memory": node.memory and node.memory.used,
        "maxmemory": node.memory and node.memory.limit,
        "version": node.memory and node.memory.version,
        "lag_bytes": node.lag_bytes,
    }


def journal_values(state: "JournalState", now_ms: float, lead_s: float) -> dict[str, Any]:
    """Returns the journal as ``--json`` prints it.

    Args:
        state: How it is.
        now_ms: Redis's clock, ms since the epoch.
        lead_s: How long before its due time a message is promoted, s.
    """
    next_ms = state.next_promotion_ms
    return {
        "url": state.url,
        "journal": state.option,
        "error": state.error,
        "promoter": state.promoter,
        "waiting": None if state.error else sum(state.waiting.values()),
        "offered": None if state.error else sum(state.offered.values()),
        "next_promotion": None if next_ms is None else iso_of(next_ms),
        "next_promotion_in_s": None if next_ms is None else round((next_ms - now_ms) / 1000, 3),
        "lag_s": round(state.lag_s, 3),
        "lead_s": lead_s,
        "watermark_age_s": None if state.watermark_age_s is None else round(state.watermark_age_s, 3),
        "size_bytes": state.size_bytes,
        "lost": [{"at": iso_of(loss.ended_ms), "messages": loss.messages} for loss in state.losses],
        "fault": state.fault,
    }
