"""Says how far it goes: memory, cores, nodes and tier for a load, and which limit is reached first.

``python docs/capacity.py --waiting 10e6 --rate 5000 --size 1000 --workers 200`` needs nothing but Python. The costs are
those of ``capacity.json``, which ``python -m tests.bench.targets --only capacity --write docs/capacity.json`` measures.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import Field, asdict, fields
from math import inf
from pathlib import Path
from typing import Any

from capacity_model import GIB, Capacity, Load, Node

COSTS = Path(__file__).with_name("capacity.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints what a load takes. Returns the exit code: 1 if no number of nodes can bear it."""
    given = _parser().parse_args(arguments)
    try:
        found = report(*_of(given))
    except ValueError as error:
        print(f"capacity.py: {error}")
        return 1
    print(json.dumps(found, indent=2) if given.json else "\n".join(lines(found)))
    return 0


def capacity_of(*arguments: str) -> str:
    """Returns what the command prints."""
    return "\n".join(lines(report(*_of(_parser().parse_args(arguments)))))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="capacity.py", description=(__doc__ or "").partition("\n")[0])
    for kind in (Load, Node):
        group = parser.add_argument_group(str(kind.__doc__).partition("\n")[0])
        for one in fields(kind):
            _add(group, one)
    parser.add_argument("--costs", type=Path, default=COSTS, help="file with what a message costs")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _of(given: argparse.Namespace) -> tuple[dict[str, Any], Load, Node]:
    """Returns the costs, and what the command line says of the load and of a node."""
    load = Load(**{one.name: getattr(given, one.name) for one in fields(Load)})
    node = Node(**{one.name: getattr(given, one.name) for one in fields(Node)})
    return json.loads(given.costs.read_text(encoding="utf-8")), load, node


def _add(group: Any, one: "Field[Any]") -> None:
    flag, text = f"--{one.name.replace('_', '-')}", one.metadata["help"]
    if isinstance(one.default, bool):
        group.add_argument(flag, action="store_true", help=text)
    else:
        # So that 10e6 is a number of workers, too.
        number = float if isinstance(one.default, float) else lambda given: int(float(given))
        group.add_argument(flag, type=number, default=one.default, help=f"{text} ({one.default:,})", metavar="N")


def report(costs: dict[str, Any], load: Load, node: Node) -> dict[str, Any]:
    """Returns everything that is printed, with names for JSON.

    Raises:
        ValueError: No number of nodes can bear the load.
    """
    single = Capacity(costs, load, node)
    plan = single.planned()
    rate = load.rate
    return {
        "load": asdict(load),
        "node": asdict(node),
        "measured_on": costs["machine"],
        "delay_s": None if load.delay_s == inf else load.delay_s,
        "one_redis": [
            {"limit": limit.name, "times": times, "messages_s": rate * times, "then": limit.then}
            for limit, times in single.breaks_at()
        ],
        "plan": {
            "primaries": plan.nodes,
            "nodes": plan.nodes * (1 + node.replicas),
            "parts": plan.parts,
            "memory_gib": {name: found / GIB for name, found in plan.memory().items()},
            "core": plan.core(plan.nodes),
            "core_busiest_queue": plan.core(load.queues * plan.parts),
            "us_s": plan.queue_us() | plan.workers_us(),
            "connections": plan.connections(),
            "logged_mb_s": plan.logged_s() / 1e6,
            "limits": [limit._asdict() | {"share": limit.share} for limit in plan.limits()],
        },
        "tiers": single.tiers(),
        "clients_cores": single.clients(),
    }


def lines(found: dict[str, Any]) -> Iterator[str]:
    """Yields what a report says, for people."""
    load, node, plan = found["load"], found["node"], found["plan"]
    waits = "" if found["delay_s"] is None or not load["waiting"] else f", {_time(found['delay_s'])} on average"
    yield f"{load['rate']:,.0f} messages/s of {load['size']:,} bytes, {load['delayed']:.0%} delayed"
    yield f"{load['waiting']:,.0f} waiting{waits}; {load['ready']:,.0f} ready"
    yield f"queues: {load['queues']:,}; workers: {load['workers']:,}, of {load['queues_per_worker']:,} queues each"
    yield (
        f"assumed: nodes of {node['memory_gib']:,.0f} GiB, {node['spare']:.0%} of it free; {node['core']:.0%} of a "
        f"core; {node['connections']:,} connections; {node['gbit_s']:,.0f} Gbit/s; replicas: {node['replicas']}"
    )
    machine = found["measured_on"]
    yield f"measured: Redis {machine['redis-server']}, {machine['system']}, {machine['cores']} cores"
    yield "\nWhat breaks first, as this load grows on one Redis"
    for row in found["one_redis"]:
        at = f"{row['times']:>12,.3g} times {row['messages_s']:>14,.0f} messages/s"
        yield f"  {row['limit']:<16}{at}   {row['then']}"
    yield f"\nPlan: {plan['primaries']:,} primaries, {plan['nodes']:,} nodes, each queue in {plan['parts']:,} parts"
    memory = ", ".join(f"{name} {size:,.1f}" for name, size in plan["memory_gib"].items() if size >= 0.05)
    yield f"  memory of all primaries, GiB: {memory or 'less than 0.1'}"
    spent = ", ".join(f"{name} {us / 1e6:,.2f}" for name, us in plan["us_s"].items())
    yield f"  cores, all primaries busy: {spent}"
    yield f"  log, and stream to each replica: {plan['logged_mb_s']:,.1f} MB/s"
    for limit in plan["limits"]:
        mark = f"   REACHED: {limit['then']}" if limit["share"] > 1 else ""
        used = f"{_number(limit['used']):>12} of {_number(limit['limit'])} {limit['unit']}"
        yield f"  {limit['name']:<16} {limit['share']:>7.0%} {used}{mark}".rstrip()
    yield "\nTiers"
    for tier in found["tiers"]:
        beside = f", {tier['disk_gib']:,.0f} GiB on disk, {tier['promoters']:,} promoters" if tier["promoters"] else ""
        yield f"  {tier['tier']:<20} {tier['in_redis']:>16,.0f} in Redis, {tier['memory_gib']:>10,.1f} GiB{beside}"
    if len(found["tiers"]) == 1 and load["waiting"]:
        yield "  no tier beside Redis holds less: messages wait for less than a day"
    cores = found["clients_cores"]
    both = f"publishers {cores['publishers']:,.1f}, workers {cores['workers']:,.1f} beside their tasks"
    yield f"\nCores of clients: {both}"


def _number(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:,.3g}"


def _time(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.1f} s"


if __name__ == "__main__":
    raise SystemExit(main())
