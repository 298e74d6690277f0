"""Redis loses its data, the database restarts, and promoters and publishers are killed: `make chaos` in short."""

from pathlib import Path

import pytest

from tests.chaos.brokers.journaled import JournaledRedis
from tests.chaos.faults import in_turn
from tests.chaos.fleet.posts import Plan
from tests.chaos.report import lines
from tests.chaos.run import Chaotic
from tests.support.servers.postgres import need_postgres

FAULTS = ("postgres restart", "postgres crash", "redis flush", "kill", "kill transfer", "kill publisher")
PLAN = Plan(
    seed=5,
    seconds=60,
    lease_s=3,
    pools=("threads",),
    stock_pools=(),
    transfers=1,
    publishers=2,
    rate=60,
    standstill_s=40,
    journal=True,
)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_no_fault_loses_what_waits(tmp_path: Path) -> None:
    """Nothing that waits is lost, nothing is early, and what runs twice has a reason."""
    need_postgres()
    with JournaledRedis(tmp_path) as broker:
        outcome = Chaotic(PLAN, broker, tmp_path, draws=in_turn(PLAN.seed, 1.5, FAULTS)).run()
    assert not any(outcome.wrong().values()), "\n".join(lines(outcome))
    assert outcome.drained
    assert outcome.tasks["confirmed"] > 100
    assert {"redis flush", "postgres restart", "postgres crash", "kill"} <= outcome.faults.keys()
