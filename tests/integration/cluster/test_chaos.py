"""Slots move, primaries are killed, stopped or fail over, and nodes come and go: `make chaos --cluster` in short."""

from pathlib import Path

import pytest

from tests.chaos.brokers.clustered import ClusterRedis
from tests.chaos.faults import in_turn
from tests.chaos.fleet.posts import Plan
from tests.chaos.fleet.setup import SPREAD
from tests.chaos.report import lines
from tests.chaos.run import Chaotic

FAULTS = ("slot move", "failover", "primary kill", "node stopped", "node added") * 2
PLAN = Plan(
    seed=5,
    seconds=240,
    pools=("threads",),
    stock_pools=(),
    transfers=1,
    publishers=2,
    rate=60,
    standstill_s=60,
    cluster=True,
)
#: What Celery writes when it makes a consumer anew.
RESTARTED = ("Connection to broker lost", "Cannot connect to", "Restarting", "was silent for longer")


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_no_fault_of_a_cluster_loses_a_task_or_restarts_a_consumer(tmp_path: Path) -> None:
    """Nothing is lost but what Redis itself lost, nothing is early, and what runs twice has a reason."""
    with ClusterRedis(tmp_path, SPREAD, PLAN.seed) as broker:
        outcome = Chaotic(PLAN, broker, tmp_path, draws=in_turn(PLAN.seed, 2.0, FAULTS)).run()
    assert not any(outcome.wrong().values()), "\n".join(lines(outcome))
    assert outcome.drained
    assert outcome.tasks["confirmed"] > 100
    assert {"slot move", "cluster failover", "primary kill", "node stopped", "node added"} <= outcome.faults.keys()
    log = (tmp_path / "ours-threads.log").read_text(errors="replace")
    assert [line for line in log.splitlines() if any(text in line for text in RESTARTED)] == []
