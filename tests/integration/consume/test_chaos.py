"""Workers and Redis killed while tasks run: `make chaos` in short, the same faults in each run."""

from pathlib import Path

import pytest

from tests.chaos.brokers.single import SingleRedis
from tests.chaos.faults import in_turn
from tests.chaos.fleet.posts import Plan
from tests.chaos.report import lines
from tests.chaos.run import Chaotic

#: Each fault that a run of a minute has room for, some twice.
FAULTS = (
    *("kill", "kill", "kill", "kill child", "kill transfer", "kill publisher"),
    *("stop shortly", "stop for longer than the lease", "term", "term"),
    *("client kill", "client kill", "client kill", "script flush", "redis kill"),
)
PLAN = Plan(
    seed=13,
    seconds=60,
    lease_s=3,
    pools=("prefork", "threads", "solo"),
    stock_pools=(),
    transfers=1,
    publishers=1,
    rate=500,
    backlog=2000,
    standstill_s=40,
)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_no_fault_loses_a_task(tmp_path: Path) -> None:
    """No task is lost, early, stuck, or run twice without a reason, and nothing is left in Redis."""
    with SingleRedis(tmp_path) as broker:
        outcome = Chaotic(PLAN, broker, tmp_path, draws=in_turn(PLAN.seed, 0.8, FAULTS)).run()
    assert not any(outcome.wrong().values()), "\n".join(lines(outcome))
    assert outcome.drained
    assert outcome.tasks["confirmed"] > 500
    met = outcome.faults
    assert {"kill", "stop", "term", "script flush", "redis kill"} <= met.keys()
