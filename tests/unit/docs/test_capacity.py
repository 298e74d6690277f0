"""What ``docs/capacity.py`` reckons, with costs that are easy to reckon with."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench.targets.capacity import write
from tests.bench.targets.capacity.constants import Constant, line, model, of_size
from tests.bench.targets.report import Figure
from tests.support import ROOT

SCRIPT = ROOT / "docs" / "capacity.py"
#: A message costs a busy Redis 10 µs in each step and an idle one 40; its transfer has nothing to spare.
STEPS = {"publish": [10, 0], "delay": [8, 2], "delay_many": [1, 1], "consume": [10, 0], "consume_many": [4, 0]}
COSTS: dict[str, Any] = {
    "machine": {"redis-server": "7", "system": "none", "cores": 1},
    "redis_us": {key: {**STEPS, "transfer": [10, 0], "transfer_call": [0, 0]} for key in ("plain", "slots")},
    "alone_us": {key: {step: [40, 0] for step in ("publish", "delay", "consume")} for key in ("plain", "slots")},
    "leader_call_us": 0,
    "leader_message_us": 10,
    "bytes": {"waiting": 200, "held": 100, "note": 1.0, "connection": 1000},
    "log_bytes": {key: [100, 1] for key in ("publish", "delay", "transfer", "consume")},
    "idle": {key: {"fleet_us": 0, "worker_us": 100, "queue_us": 10, "node_us": 0} for key in ("plain", "slots")},
    "connections": {key: {"worker": 6, "queue": 1} for key in ("plain", "slots")},
    "heard_us": 2,
    "client_us": {"publish": 300, "delay": 400, "delay_many": 10, "consume": 200},
}


def capacity(nodes: int = 1, parts: int = 1, node: dict[str, Any] | None = None, **load: Any) -> Any:
    """Returns a load on nodes of the usual size, or of this one."""
    found = model()
    return found.Capacity(COSTS, found.Load(**load), found.Node(**(node or {})), nodes, parts)


def limits(one: Any) -> dict[str, Any]:
    return {limit.name: limit for limit in one.limits()}


@pytest.mark.parametrize(
    ("size", "given"),
    [(1, 16), (16, 16), (129, 160), (1000, 1024), (1024, 1024), (1025, 1280), (1281, 1536), (8193, 10240)],
)
def test_memory_comes_in_classes_of_the_allocator(size: int, given: int) -> None:
    """Redis's allocator gives the least of its sizes that is enough: four for each doubling."""
    assert model().allocated(size) == given


def test_a_waiting_message_takes_its_body_its_entries_and_two_places_in_tables() -> None:
    """Bodies are rounded up, and each queue's two hash tables have a power of two of places."""
    memory = capacity(waiting=10_000, queues=10, size=1000).memory()
    assert memory["waiting"] == 10_000 * (200 + 1024) + 10 * 2 * 8 * 1024


def test_ready_messages_share_nodes_of_a_list() -> None:
    """Eight messages of 1,000 bytes fit into a node of 8 KiB, and a message of 20,000 bytes has one of its own."""
    assert capacity(ready=800, size=1000).memory()["ready"] == 100 * (8192 + 48)
    assert capacity(ready=3, size=20_000).memory()["ready"] == 3 * (20_480 + 48)


def test_an_idle_redis_takes_longer_for_a_message_than_a_busy_one() -> None:
    """At a low rate nearly all messages cost what they cost alone; where Redis is always busy, none does."""
    # Alone 90 µs in all, busy 30.
    assert capacity(rate=100, workers=0).core(1) == pytest.approx(0.009, rel=0.01)
    assert capacity(rate=10_000, workers=0).core(1) == pytest.approx(0.9 / 1.6)
    assert capacity(rate=1e6 / 30, workers=0).core(1) == pytest.approx(1)
    assert capacity(rate=50_000, workers=0).core(1) == pytest.approx(1.5)


def test_workers_cost_something_when_they_have_nothing_to_do() -> None:
    """Each worker and each of its queues takes some time of Redis; gossip grows with the square of the workers."""
    quiet = capacity(workers=100, queues_per_worker=3)
    assert quiet.workers_us() == {"idle workers": 100 * 100 + 300 * 10, "nodes": 0}
    loud = capacity(workers=100, gossip=True)
    assert loud.workers_us()["gossip"] == 50 * 100 * 2
    assert limits(loud)["gossip"].share == pytest.approx(0.01 / 0.15)


def test_the_mean_delay_follows_from_what_waits_and_the_rate() -> None:
    """Ten billion messages at a million a second wait for 10,000 s each (Little's law)."""
    assert capacity(waiting=10e9, rate=1e6).load.delay_s == 10_000


def test_one_redis_is_enough_for_a_small_load() -> None:
    """A load that one Redis bears is planned on one, in one part."""
    plan = capacity(waiting=1e6, rate=1000, workers=10).planned()
    assert (plan.nodes, plan.parts, plan.layout) == (1, 1, "plain")


def test_nodes_are_as_many_as_the_scarcest_of_them_asks_for() -> None:
    """Memory or cores decide how many primaries there are, and all limits of a node hold then, but not with fewer."""
    for load in ({"waiting": 1e9, "rate": 1000, "workers": 10}, {"waiting": 1e6, "rate": 200_000, "workers": 10}):
        plan = capacity(**load).planned()
        shares = {name: limits(plan)[name].share for name in ("memory", "Redis core", "one queue", "network")}
        assert max(shares.values()) <= 1
        assert plan.nodes > 3
        fewer = limits(capacity(plan.nodes * 8 // 10, plan.parts, **load))
        assert max(fewer[name].share for name in shares) > 1
    assert capacity(waiting=40e6, rate=1000).planned().nodes == 3, "a cluster has three primaries at least"


def test_a_queue_is_spread_over_two_parts_for_each_node() -> None:
    """One queue on many nodes is spread; as many queues as nodes need not be spread as far."""
    one = capacity(rate=200_000).planned()
    assert one.parts == 2 * one.nodes
    many = capacity(rate=200_000, queues=2 * one.nodes).planned()
    assert many.parts <= 2


def test_one_queue_is_on_one_node_however_many_there_are() -> None:
    """Without parts a queue's load is that of one node."""
    assert limits(capacity(30, 1, rate=30_000))["one queue"].share > 1
    assert limits(capacity(30, 30, rate=30_000))["one queue"].share < 1


def test_what_breaks_first_is_where_the_limit_is_reached() -> None:
    """At the load that is named, the limit is reached, and a little below it is not."""
    one = capacity(waiting=1e6, rate=1000, workers=10)
    for limit, times in one.breaks_at():
        load = {"waiting": 1e6 * times, "rate": 1000 * times, "workers": 10 * times}
        assert limits(capacity(**load))[limit.name].share == pytest.approx(1, rel=0.01), limit.name
    names = [limit.name for limit, _ in one.breaks_at()]
    assert names[0] == "Redis core"
    assert {"memory", "connections", "transfer leader"} <= set(names)


def test_a_tier_beside_redis_holds_what_is_due_in_more_than_a_day() -> None:
    """A journal leaves half an hour's messages in Redis, Parquet two hours'; neither helps where delays are short."""
    rows = {row["tier"]: row for row in capacity(waiting=1e9, rate=1000).tiers()}
    assert [row["in_redis"] for row in rows.values()] == [1e9, 1_800_000, 7_200_000]
    assert rows["Parquet, by Spark"]["disk_gib"] == pytest.approx((1e9 - 7_200_000) * 30 / 1024**3)
    assert [row["tier"] for row in capacity(waiting=1e9, rate=100_000).tiers()] == ["Redis alone"]


def test_bytes_that_are_logged_are_those_of_all_steps() -> None:
    """A delayed message is logged when it is published, transferred and taken; another one is not transferred."""
    assert capacity(rate=10, size=1000).logged_s() == 10 * 3 * 1100
    assert capacity(rate=10, size=1000, delayed=0.0).logged_s() == 10 * 2 * 1100


def test_more_workers_than_any_cluster_bears_are_refused() -> None:
    """Where idle workers alone use up each node, the script says so and ends with 1."""
    with pytest.raises(ValueError, match="no number of nodes"):
        capacity(workers=1_000_000, gossip=True).planned()


@pytest.mark.parametrize("options", [[], ["--backlog", "--gossip"], ["--delayed", "0", "--waiting", "0"]])
def test_the_script_runs_with_python_alone(tmp_path: Path, options: list[str]) -> None:
    """It prints what it reckons as text or as JSON, from the command line of the page."""
    costs = tmp_path / "costs.json"
    costs.write_text(json.dumps(COSTS))
    given = [
        "--waiting",
        "10e6",
        "--rate",
        "5000",
        "--size",
        "1000",
        "--workers",
        "200",
        "--costs",
        str(costs),
        *options,
    ]
    done = [
        subprocess.run([sys.executable, "-S", str(SCRIPT), *given, *form], capture_output=True, text=True, check=True)
        for form in ([], ["--json"])
    ]
    assert "What breaks first" in done[0].stdout
    assert "assumed: nodes of 64 GiB" in done[0].stdout
    found = json.loads(done[1].stdout)
    assert found["load"]["workers"] == 200
    assert found["plan"]["primaries"] >= 1


def test_the_costs_that_are_shipped_are_complete() -> None:
    """The file beside the script has all costs for one Redis and for a cluster, so that any load can be planned."""
    costs = json.loads((ROOT / "docs" / "capacity.json").read_text(encoding="utf-8"))
    found = model()
    load = found.Load(waiting=10e9, rate=1e6, workers=20_000, queues=100, queues_per_worker=4, gossip=True)
    plan = found.Capacity(costs, load, found.Node()).planned()
    assert plan.nodes > 100
    assert {limit.name for limit in plan.limits()} >= {"memory", "Redis core", "transfer leader", "connections"}
    assert plan.clients()["publishers"] > 100


def test_a_constant_is_the_line_through_all_sizes(tmp_path: Path) -> None:
    """Costs that grow with the size are written as base and slope, at their place in the file."""
    assert line([(1, 12), (2, 14), (8, 26)]) == pytest.approx((10, 2))
    assert line([(1, 1), (2, 2.2)])[0] == 0, "nothing costs less than nothing"
    figures: list[Figure] = [
        of_size("publish", ("redis_us", "plain", "publish"), [(1000, 12.0), (2000, 14.0)], "µs", 1000),
        Constant("heard", 2.5, "µs", path=("heard_us",), numbers=(2.5,)),
        Figure("other", 1, ""),
    ]
    write(figures, {"cores": 2}, tmp_path / "costs.json")
    found = json.loads((tmp_path / "costs.json").read_text())
    assert found == {"machine": {"cores": 2}, "redis_us": {"plain": {"publish": [10, 2]}}, "heard_us": 2.5}
