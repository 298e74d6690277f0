"""The report of ``delayq status`` in words and tables."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import Any

from celery_ext import health
from celery_ext.cli.broker import prefixes_in_words
from celery_ext.cli.output import bad, escaped, fit_table, good, local_time, number_of, size, warning
from celery_ext.delays import in_words

#: How many queues without a consumer are named.
NAMED = 5


def text(report: dict[str, Any], brought: Iterable[str] = (), *, named: bool, app: bool) -> str:
    """Returns a report, as ``--json`` prints it, as text.

    Args:
        report: The report.
        brought: The lines that features bring.
        named: Whether the command line names queues.
        app: Whether the command takes its options from an app.
    """
    lines = [f"broker   {report['broker']}"]
    if report["global_keyprefix"]:
        lines.append(escaped(f"prefix   {report['global_keyprefix']}"))
    lines += [f"leading  {_leader(report)}", *_nodes(report), *brought]
    lines += [bad(escaped(f"workers cannot consume: {wrong}")) for wrong in report["wrong_keys"]]
    if report["stock_transport"]:
        lines.append(
            "app      "
            + warning(
                f"uses the stock transport {report['stock_transport']!r} itself: its delayed tasks wait in the memory "
                'of workers, not here. To switch it over, set broker_transport = "kombu_delayq.transport:Transport"'
            )
        )
    lines += [
        "",
        *_queues(report, named=named),
        *_too_late(report),
        *_paused(report),
        *_no_consumer(report),
        *_dead_letters(report),
        *_consumers(report),
        *_node_table(report),
    ]
    if report["other_prefixes"]:
        lines += ["", escaped(prefixes_in_words(report["other_prefixes"], app=app))]
    return "\n".join(lines)


def _leader(report: Mapping[str, Any]) -> str:
    if report["leader"]:
        return good(escaped(report["leader"]))
    if _names_away(report):
        return warning("not known: the node that knows it is away. Workers go on with the queues that they know")
    return bad("no transfer worker runs: nothing that is due will be delivered")


def _names_away(report: Mapping[str, Any]) -> bool:
    """Whether the node is away that knows the queues and the leader."""
    return bool(report["cluster"] and report["cluster"]["queues_error"])


def _queues(report: dict[str, Any], *, named: bool) -> Iterator[str]:
    shown = sorted((row for row in report["queues"] if "error" not in row), key=_calmness)
    if shown:
        head = ["QUEUE", "DELAYED", "READY", "CONSUMERS", "NEXT DUE", "OVERDUE"]
        if report.get("journal"):
            head.insert(2, "IN JOURNAL")
        numbers = set(range(1, len(head) - 2))
        if report["cluster"]:
            numbers.add(len(head))
            head += ["SLOT", "NODE"]
        rows = [_cells(row, report) for row in shown]
        yield from fit_table(head, rows, numbers, short=[_cells(row, report, dated=False) for row in shown])
    if not (report["queues"] or named or _names_away(report)):
        yield "no queue holds or held delayed messages"
    yield from (bad(escaped(f"queue {row['queue']!r}: {row['error']}")) for row in report["queues"] if "error" in row)


def _calmness(row: dict[str, Any]) -> tuple[float, int, bool]:
    """Sorts queues in trouble to the top, the worst first; the others stay in the order of their names."""
    late_s = inf if row["overdue_by_s"] is None else row["overdue_by_s"]
    is_late = row["overdue"] and health.of_overdue(late_s, is_held=bool(row["held_back"])).is_bad
    return -late_s if is_late else 0.0, -row["ready"] if row["no_consumer"] else 0, not row["paused_since"]


def _cells(row: dict[str, Any], report: dict[str, Any], *, dated: bool = True) -> list[str]:
    due = in_words(row["next_due_in_s"]) if row["next_due"] else "-"
    return [
        escaped(row["queue"]),
        f"{row['delayed']:,}",
        *([_number(row["in_journal"])] if report.get("journal") else []),
        f"{row['ready']:,}" + (f", {row['limited']:,} limited" if row["limited"] else ""),
        _consumers_of(row),
        f"{local_time(row['next_due'])} ({due})" if dated and row["next_due"] else due,
        _overdue(row),
        *(["-" if row["slot"] is None else f"{row['slot']}", escaped(row["node"] or "-")] if report["cluster"] else []),
    ]


def _number(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _overdue(row: dict[str, Any]) -> str:
    if not row["overdue"]:
        return "0"
    held, by_s = row["held_back"], row["overdue_by_s"]
    by = f"{row['overdue']:,} by {in_words(inf if by_s is None else by_s, plain=True)}"
    if held is None:
        return bad(by)
    return warning(f"{by}, held back at {held['per_s']:g}/s until about {local_time(held['until'])}")


def _too_late(report: dict[str, Any]) -> Iterator[str]:
    for row in report["queues"]:
        found = [f"{count:,} {what}" for what, count in (row.get("too_late") or {}).items() if count]
        if found:
            yield warning(escaped(f"too late in {row['queue']}: {', '.join(found)} so far"))


def _paused(report: dict[str, Any]) -> Iterator[str]:
    for row in report["queues"]:
        if row.get("paused_since"):
            since = local_time(row["paused_since"])
            yield warning(escaped(f"paused since {since}: {row['queue']}, until `delayq queues resume {row['queue']}`"))


def _consumers_of(row: dict[str, Any]) -> str:
    if row["consumers"] is None:
        return "?"
    known = warning("none known") if row["no_consumer"] else f"{row['consumers']:,}"
    return f"{known}, {warning('paused')}" if row["paused_since"] else known


def _no_consumer(report: dict[str, Any]) -> Iterator[str]:
    idle = [escaped(row["queue"]) for row in report["queues"] if row.get("no_consumer")]
    if idle:
        names = ", ".join(idle[:NAMED]) + (f" and {len(idle) - NAMED:,} more" if len(idle) > NAMED else "")
        yield ""
        yield warning(f"messages are ready or due, and no consumer is known: {names}")
        yield '(a consumer on the stock transport, or with consume="brpop", is not known while it holds no message)'


def _dead_letters(report: dict[str, Any]) -> Iterator[str]:
    rows = [
        [escaped(row["queue"]), f"{row['messages']:,}"]
        for row in report["dead_letters"]
        if "error" not in row and row["messages"]
    ]
    if rows:
        yield from ("", *fit_table(["DEAD LETTERS IN", "MESSAGES"], rows, right={1}))
    yield from (
        bad(escaped(f"dead letters in {row['queue']!r}: {row['error']}"))
        for row in report["dead_letters"]
        if "error" in row
    )


#: The columns of the table of consumers, and the cell of one, as ``--json`` prints it, in each.
_CONSUMERS: dict[str, Callable[[dict[str, Any]], str]] = {
    "HOST": lambda row: escaped(row["host"]),
    "PID": lambda row: escaped(row["pid"]),
    "IN HAND": lambda row: f"{row['in_hand']:,}",
    "LEASE": lambda row: (
        warning("ended: these go back") if row["reclaimed"] else f"{in_words(row['lease_left_s'], plain=True)} left"
    ),
    "CONSUMES": lambda row: escaped(", ".join(row["queues"])),
}


def _consumers(report: dict[str, Any]) -> Iterator[str]:
    rows = [[cell(row) for cell in _CONSUMERS.values()] for row in report["consumers"]]
    if rows:
        yield from ("", *fit_table([*_CONSUMERS], rows, right={1, 2}))
    if report["consumers_error"]:
        yield warning(escaped(f"consumers are not listed: {report['consumers_error']}"))
    if report["in_hand_of_stock"]:
        count = number_of(report["in_hand_of_stock"], "message is", "messages are")
        yield f"{count} in the hands of consumers on the stock transport"
    if report["in_hand_of_nobody"]:
        count = number_of(report["in_hand_of_nobody"], "message is", "messages are")
        those = "it" if report["in_hand_of_nobody"] == 1 else "them"
        yield warning(f"{count} in the hands of consumers that nobody knows: `delayq repair` gives {those} back")


_ROLES = (("primary", "primaries"), ("replica", "replicas"))
#: How a node is, in words and their colour; others are as Redis says it.
_STATES: dict[str, tuple[str, Callable[[str], str]]] = {
    "ok": ("ok", good),
    "failed": ("FAILED", bad),
    "unreachable": ("DOES NOT ANSWER", bad),
    "suspected": ("suspected to have failed", warning),
    "unlinked": ("has lost its primary", warning),
    "loading": ("loads its data", warning),
    "joining": ("joins", str),
}


def _nodes(report: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line about the nodes; none for a server without slots."""
    cluster = report["cluster"]
    if cluster is None:
        return
    if cluster["error"]:
        yield "cluster  " + bad(escaped(f"hash slots; its nodes are not known: {cluster['error']}"))
        return
    roles = Counter(node["role"] for node in cluster["nodes"])
    parts = [f"{roles[role]:,} {role if roles[role] == 1 else name}" for role, name in _ROLES if roles[role]]
    uncovered = cluster["slots_uncovered"]
    served = bad(f"{uncovered:,} SLOTS ARE SERVED BY NOBODY") if uncovered else "all slots are served"
    yield f"cluster  {', '.join(parts)}; {served}"
    if cluster["queues_error"]:
        why = f"the node that knows the queues and the leader is away: {cluster['queues_error']}"
        yield "         " + bad(escaped(why))


def _node_table(report: Mapping[str, Any]) -> Iterator[str]:
    """Yields a table of the nodes; nothing for a server without slots."""
    found = (report["cluster"] or {}).get("nodes", [])
    queues = Counter(row["node"] for row in report["queues"] if "node" in row)
    rows = [
        [
            escaped(node["node"]),
            node["role"] if node["primary"] is None else escaped(f"replica of {node['primary']}"),
            _ranges(node),
            f"{queues[node['node']]:,}" if node["primary"] is None else "",
            _memory(node),
            "" if node["lag_bytes"] is None else size(node["lag_bytes"]),
            colour(words),
        ]
        for node in found
        for words, colour in [_STATES.get(node["state"], (node["state"], str))]
    ]
    if rows:
        head = ["NODE", "ROLE", "SLOTS", "QUEUES", "MEMORY", "BEHIND BY", "STATE"]
        yield from ("", *fit_table(head, rows, right={3, 4, 5}))


def _ranges(node: Mapping[str, Any]) -> str:
    ranges = [f"{first}-{last}" if first != last else f"{first}" for first, last in node["slot_ranges"]]
    shown = ranges[0] if len(ranges) == 1 else f"{node['slots']:,} in {len(ranges):,} ranges" if ranges else ""
    return f"{shown}, {node['slots_moving']:,} moving" if node["slots_moving"] else shown


def _memory(node: Mapping[str, Any]) -> str:
    if node["used_memory"] is None:
        return ""
    return size(node["used_memory"]) + (f" of {size(node['maxmemory'])}" if node["maxmemory"] else "")
