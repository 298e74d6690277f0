"""`make chaos` in short, with the same faults in each run: nothing of ours is lost, early, stuck or left."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.brokers.clustered import ClusterRedis
from tests.chaos.brokers.journaled import JournaledRedis
from tests.chaos.brokers.single import SingleRedis
from tests.chaos.faults import in_turn
from tests.chaos.fleet.posts import Plan
from tests.chaos.fleet.setup import SPREAD
from tests.chaos.report import lines
from tests.chaos.run import Chaotic, Outcome
from tests.support.servers.postgres import need_postgres

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
SMALL = Plan(seed=5, pools=("threads",), stock_pools=(), transfers=1, rate=60)
#: What Celery writes when it makes a consumer anew.
RESTARTED = ("Connection to broker lost", "Cannot connect to", "Restarting", "was silent for longer")


def run(broker: SingleRedis, plan: Plan, folder: Path, pause_s: float, faults: Sequence[str]) -> Outcome:
    """Runs a plan with each of these faults, and checks that all is well at the end."""
    with broker:
        outcome = Chaotic(plan, broker, folder, draws=in_turn(plan.seed, pause_s, faults)).run()
    assert not any(outcome.wrong().values()), "\n".join(lines(outcome))
    assert outcome.drained
    return outcome


def test_no_fault_loses_a_task(tmp_path: Path) -> None:
    """Of a minute in which workers and Redis are killed while tasks run, nothing runs twice without a reason."""
    faults = (
        *("kill", "kill", "kill", "kill child", "kill transfer", "kill publisher"),
        *("stop shortly", "stop for longer than the lease", "term", "term"),
        *("client kill", "client kill", "client kill", "script flush", "redis kill"),
    )
    pools = ("prefork", "threads", "solo")
    plan = replace(SMALL, seed=13, seconds=60, lease_s=3, pools=pools, publishers=1, rate=500, standstill_s=40)
    outcome = run(SingleRedis(tmp_path), plan, tmp_path, 0.8, faults)
    assert outcome.tasks["confirmed"] > 500
    assert {"kill", "stop", "term", "script flush", "redis kill"} <= outcome.faults.keys()


def test_no_fault_of_a_cluster_loses_a_task_or_restarts_a_consumer(tmp_path: Path) -> None:
    """Slots move, primaries are killed, stopped or fail over, nodes come and go: only Redis itself loses anything."""
    faults = ("slot move", "failover", "primary kill", "node stopped", "node added") * 2
    plan = replace(SMALL, seconds=240, standstill_s=60, cluster=True)
    outcome = run(ClusterRedis(tmp_path, SPREAD, plan.seed), plan, tmp_path, 2.0, faults)
    assert outcome.tasks["confirmed"] > 100
    assert {"slot move", "cluster failover", "primary kill", "node stopped", "node added"} <= outcome.faults.keys()
    log = (tmp_path / "ours-threads.log").read_text(errors="replace")
    assert [line for line in log.splitlines() if any(text in line for text in RESTARTED)] == []


def test_no_fault_loses_what_waits_with_a_journal(tmp_path: Path) -> None:
    """Redis loses its data, the database restarts, promoters and publishers are killed, and nothing that waits goes."""
    need_postgres()
    faults = ("postgres restart", "postgres crash", "redis flush", "kill", "kill transfer", "kill publisher")
    plan = replace(SMALL, seconds=60, lease_s=3, standstill_s=40, journal=True)
    outcome = run(JournaledRedis(tmp_path), plan, tmp_path, 1.5, faults)
    assert outcome.tasks["confirmed"] > 100
    assert {"redis flush", "postgres restart", "postgres crash", "kill"} <= outcome.faults.keys()
