"""What shows, checks and changes messages on a cluster of several nodes: the command, metrics, page and HTTP API."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from click.testing import CliRunner
from kombu import Connection
from redis.crc import key_slot
from starlette.testclient import TestClient

from celery_ext.cli import delayq
from celery_ext.doctor import all_checks, examine
from celery_ext.serve import asgi
from celery_ext.serve.access.identity import Action, Caller
from celery_ext.serve.metrics import DelayqCollector
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support.commands.shell import lines, run
from tests.support.conditions import until
from tests.support.serve.metrics import scraped
from tests.support.servers.cluster import PrivateCluster
from tests.support.workers.harness import MakeProj, Proj

ROOT = Path(__file__).parents[3]


#: Queues whose lists are on three nodes.
QUEUES = ("q0", "q1", "q2")


ORIGIN = "http://127.0.0.1:8000"


EVERYTHING = Caller("tester", frozenset(Action))


@pytest.fixture
def backlog(cluster: PrivateCluster, make_proj: MakeProj) -> Iterator[Proj]:
    """Twelve tasks that wait in queues of three nodes."""
    assert len({cluster.node_of(queue).port for queue in QUEUES}) == 3
    proj = make_proj(broker_url=cluster.url)
    for number in range(12):
        proj.send("record", number, queue=QUEUES[number % 3], countdown=3600 + number, task_id=f"task-{number}")
    return proj


def report_of(cluster: PrivateCluster, *args: str, code: int = 0) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(run(cluster, "status", "--json", *args, code=code).stdout)
    return report


@pytest.mark.usefixtures("backlog")
def test_status_shows_the_nodes_and_where_each_queue_is(cluster: PrivateCluster) -> None:
    """Each queue has its slot and its node, and each node its role, slots and memory; all of them are well."""

    def is_told(report: dict[str, Any]) -> bool:
        return all(row["used_memory"] for row in report["cluster"]["nodes"])

    # A cluster does not tell clients of a replica that has got nothing yet.
    report = until(lambda: found if is_told(found := report_of(cluster)) else None)
    found = {row["queue"]: (row["slot"], row["node"], row["delayed"]) for row in report["queues"]}
    nodes = {queue: f"127.0.0.1:{cluster.node_of(queue).port}" for queue in QUEUES}
    assert found == {queue: (key_slot(queue.encode()), nodes[queue], 4) for queue in QUEUES}
    rows = {row["node"]: row for row in report["cluster"]["nodes"]}
    assert rows.keys() == {f"127.0.0.1:{node.port}" for node in cluster.nodes}
    assert {row["state"] for row in rows.values()} == {"ok"}
    assert sum(row["slots"] for row in rows.values()) == 16_384
    replicas = [row for row in rows.values() if row["role"] == "replica"]
    assert sorted(row["primary"] for row in replicas) == sorted(nodes.values())
    assert all(row["lag_bytes"] is not None for row in replicas)

    text = run(cluster, "status").stdout
    assert "cluster  3 primaries, 3 replicas; all slots are served" in text
    assert next(line for line in text.splitlines() if line.startswith("q1")).split()[-1] == nodes["q1"]


@pytest.mark.journey
@pytest.mark.usefixtures("backlog")
def test_commands_find_and_change_messages_on_all_nodes(cluster: PrivateCluster, tmp_path: Path) -> None:
    """Listing merges the nodes by due time; an id is found wherever it waits; what is exported is imported."""
    assert [row["id"] for row in lines(cluster, "list")] == [f"task-{number}" for number in range(12)]
    outcomes = lines(cluster, "cancel", "--yes", "task-0", "task-1", "task-2", "none")
    assert [row["outcome"] for row in outcomes] == ["cancelled"] * 3 + ["not_delayed"]
    run(cluster, "reschedule", "task-4", "--countdown", "9h")
    run(cluster, "run-now", "task-5")
    left = [f"task-{number}" for number in (3, 6, 7, 8, 9, 10, 11, 4)]
    assert [row["id"] for row in lines(cluster, "list")] == left

    run(cluster, "export", "--output", f"{tmp_path}/backlog.jsonl")
    run(cluster, "queues", "purge", "--yes", *QUEUES)
    assert lines(cluster, "list") == []
    run(cluster, "import", f"{tmp_path}/backlog.jsonl")
    assert [row["id"] for row in lines(cluster, "list")] == left


def test_repair_looks_at_the_keys_of_all_nodes(cluster: PrivateCluster, backlog: Proj) -> None:
    """Queues that nobody knows any more are found on each node, and known again."""
    cluster.client().delete("{delayq}:queues")
    assert lines(cluster, "list") == []
    mended = run(cluster, "repair", "--yes").stdout
    assert all(f"queue {queue}: 4 delayed messages" in mended for queue in QUEUES)
    assert len(lines(cluster, "list")) == 12
    with backlog.connection(global_keyprefix="other.") as connection:
        store: DelayStore = connection.default_channel.store
        assert store.queues.other_prefixes() == {"": 12}


def test_metrics_the_page_and_the_api_show_the_nodes(cluster: PrivateCluster, backlog: Proj) -> None:
    """A scrape has a series for each node, the overview a row, and the API a figure."""
    nodes = {f"127.0.0.1:{node.port}" for node in cluster.nodes}

    def scrape() -> dict[Any, float] | None:
        found = scraped(DelayqCollector(backlog.app))
        return found if {node for (_, node, _), _ in _of("cluster_node_up", found)} == nodes else None

    # A cluster does not tell clients of a replica that has got nothing yet.
    series = until(scrape, what="all nodes are told of") or {}
    up = {node: value for (_, node, _), value in _of("cluster_node_up", series)}
    assert up == dict.fromkeys(nodes, 1.0)
    assert series["cluster_uncovered_slots",] == 0
    page = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `delayq_(cluster_\w+)`", page, re.MULTILINE))
    assert {name for name, *_ in series if name.startswith("cluster_")} == listed
    places = {(queue, node): value for (_, node, queue), value in _of("cluster_queue_slot", series)}
    place = ("q1", f"127.0.0.1:{cluster.node_of('q1').port}")
    assert places[place] == key_slot(b"q1")
    assert {queue for queue, _ in places} == {"celery", *QUEUES}

    application = asgi(backlog.app, allow_write=True, identify=lambda request: EVERYTHING)
    with TestClient(application, ORIGIN, headers={"Origin": ORIGIN}) as web:
        found = web.get("/v1/queues").json()
        assert {row["queue"]: row["node"] for row in found["queues"]}["q1"] == place[1]
        assert {row["node"] for row in found["cluster"]["nodes"]} == nodes
        page = web.get("/", headers={"Accept": "text/html"}).text
        assert all(f"<bdi>{node}</bdi>" in page for node in nodes)
        assert f"<bdi>{place[1]}</bdi>, slot {key_slot(b'q1')}" in web.get("/queues/q1").text
        assert web.get("/v1/tasks?queue=q1").json()["tasks"][0]["id"] == "task-1"
        assert web.delete("/v1/tasks/task-2").status_code == 200
        assert web.get("/scale?queue=q0&queue=q1&queue=q2&ahead=2h").json()["value"] == 11


def test_a_node_that_is_away_is_named_and_hides_no_other(own_cluster: PrivateCluster, make_proj: MakeProj) -> None:
    """While a queue has no node, the other queues are shown, and the nodes that are down; the report says it."""
    proj = make_proj(broker_url=own_cluster.url)
    keeper = own_cluster.node_of("{delayq}:queues")
    queue = next(queue for queue in QUEUES if own_cluster.node_of(queue) is not keeper)
    other = next(name for name in QUEUES if own_cluster.node_of(name) is not own_cluster.node_of(queue))
    for name in (queue, other):
        proj.send("record", queue=name, countdown=3600)
    lost = own_cluster.node_of(queue)
    [replica] = own_cluster.replicas_of(lost)
    replica.kill()
    until(lambda: states(own_cluster).get(f"127.0.0.1:{replica.port}") not in (None, "ok"))
    lost.kill()
    report = until(
        lambda: (
            found if (found := status_of(own_cluster)) and found["cluster"]["slots_uncovered"] in (5461, 5462) else None
        )
    )
    rows = {row["queue"]: row for row in report["queues"]}
    assert rows[other]["delayed"] == 1
    assert "error" in rows[queue]
    text = run(own_cluster, "status", code=1).stdout
    assert "SLOTS ARE SERVED BY NOBODY" in text
    series = scraped(DelayqCollector(proj.app))
    down = {node for (_, node, _), value in _of("cluster_node_up", series) if not value}
    assert down == {f"127.0.0.1:{node.port}" for node in (lost, replica)}
    assert series["cluster_uncovered_slots",] in (5461, 5462)
    assert {name: node in down for (_, node, name), _ in _of("cluster_queue_slot", series)}[queue] is True
    replica.start()
    lost.start()
    until(lambda: set(states(own_cluster).values()) == {"ok"}, 90)
    assert report_of(own_cluster)["cluster"]["slots_uncovered"] == 0


@pytest.fixture(scope="module")
def without_names() -> Iterator[PrivateCluster]:
    """Three primaries, of which that one hangs that knows the queues and the leader, and has `q0`."""
    with PrivateCluster(replicas=0) as cluster:
        with Connection(cluster.url) as connection:
            connection.default_channel.store.delivery.offer("q1", Offer("1", "+600000", 0, "body"))
        keeper = cluster.node_of("{delayq}")
        assert cluster.node_of("q0") is keeper is not cluster.node_of("q1")
        keeper.stop()
        yield cluster
        keeper.go_on()


def app_of(cluster: PrivateCluster, queue: str) -> "Celery[Any]":
    """Makes an app that declares one queue."""
    app = Celery(broker=cluster.url, set_as_current=False)
    app.conf.task_default_queue = queue
    return app


@pytest.mark.parametrize("queue", ["q1", "q0"])
def test_metrics_have_the_nodes_while_that_of_the_names_is_away(without_names: PrivateCluster, queue: str) -> None:
    """They have the queues of the app that can be read, and nothing of a leader, who is not known."""
    found = scraped(DelayqCollector(app_of(without_names, queue)))
    down = {node for (_, node, _), value in _of("cluster_node_up", found) if not value}
    assert down == {f"127.0.0.1:{node.port}" for node in without_names.nodes if node.is_stopped}
    assert found["cluster_uncovered_slots",] in (5461, 5462)
    assert {name for (_, _, name), _ in _of("cluster_queue_slot", found)} == {queue}
    assert found["redis_up",] == 1
    assert _of("leader_present", found) == []
    assert _of("delayed_messages", found) == [(("delayed_messages", queue), 1)] * (queue == "q1")


def test_the_server_answers_while_the_node_of_the_names_is_away(without_names: PrivateCluster) -> None:
    """Probes find Redis, autoscalers get the work of a healthy queue, and the API and the page show what is known."""
    application = asgi(app_of(without_names, "q1"), identify=lambda request: EVERYTHING)
    with TestClient(application, ORIGIN) as web:
        health = web.get("/healthz")
        assert (health.status_code, health.json()) == (200, {"status": "ok", "redis": True, "leader": None})
        assert web.get("/healthz?leader=required").status_code == 503
        assert web.get("/scale?queue=q1&ahead=2h").json()["value"] == 1
        for queues in ("queue=q0", "queue=q0&queue=q1"):
            scale = web.get(f"/scale?{queues}")
            assert (scale.status_code, scale.headers.get("Retry-After")) == (503, "2"), scale.text
        found = web.get("/v1/queues").json()
        assert ([row["queue"] for row in found["queues"]], found["leader"]) == (["q1"], None)
        page = web.get("/", headers={"Accept": "text/html"}).text
        assert "A part of the cluster is away" in page
        assert "nobody transfers" not in page.lower()
        assert ">not known<" in page


def test_commands_say_that_the_node_of_the_names_is_away(without_names: PrivateCluster) -> None:
    """`status` does not take that for no leader, and `doctor` names the node once, and what it could not check."""
    text = run(without_names, "status", code=1).stdout
    assert "leading  not known: the node that knows it is away" in text
    assert "no transfer worker" not in text
    assert "no queue holds" not in text
    only = [f"--only={check}" for check in ("lua", "eviction", "leader", "queues")]
    found = json.loads(run(without_names, "doctor", "--json", *only, code=1).stdout)["findings"]
    [node] = [finding for finding in found if finding["level"] == "error"]
    assert re.match(r"the primary 127\.0\.0\.1:\d+ is (unreachable|failed)$", node["found"])
    [left_out] = [finding for finding in found if finding["level"] == "notice"]
    assert left_out["found"] == "without it these were not checked: eviction, leader, queues"
    assert {finding["check"] for finding in found if finding["level"] == "ok"} == {"broker", "lua"}


def test_one_node_of_many_is_refused(cluster: PrivateCluster) -> None:
    """The URL of a single server names one node of the cluster: the error says what to write."""
    result = CliRunner().invoke(delayq, ["--broker", f"delayq://127.0.0.1:{cluster.nodes[0].port}/0", "status"])
    assert result.exit_code == 1
    assert "the broker is one of 3 nodes of a Redis Cluster; write delayq+cluster://" in result.output


def status_of(cluster: PrivateCluster) -> dict[str, Any]:
    """Returns what ``status`` reports, whatever its exit code; nothing while it cannot report."""
    said = CliRunner().invoke(delayq, ["--broker", cluster.url, "status", "--json"]).stdout
    found: dict[str, Any] = json.loads(said) if said else {}
    return found


def states(cluster: PrivateCluster) -> dict[str, str]:
    """Returns the state of each node by its address."""
    found = status_of(cluster)
    return {node["node"]: node["state"] for node in found["cluster"]["nodes"]} if found else {}


def _of(name: str, series: dict[Any, float]) -> list[tuple[Any, float]]:
    return [(key, value) for key, value in series.items() if key[0] == name]


def test_each_primary_is_looked_at(cluster: PrivateCluster) -> None:
    """Checks of servers name the node, and no check fails because there are several."""
    checks = [check for check in all_checks() if check.name != "transport"]
    found = list(examine(checks, None, lambda: Connection(cluster.url), timeout_s=0.2))
    bad = {finding.check: finding for finding in found if finding.level.is_bad}
    assert not [finding for finding in found if "the check failed" in finding.found]
    assert {finding.check for finding in found} >= {"broker", "eviction", "clock", "consumers", "workers"}
    assert set(bad) <= {"persistence", "leader"}
