"""Transfer workers that die, stop, or run as processes of their own."""

import time
from collections import Counter
from datetime import UTC, datetime

import pytest

from tests.support.conditions import until
from tests.support.workers.harness import MakeProj, Proj
from tests.support.workers.standalone import lease_holder

pytestmark = pytest.mark.wide

#: A leader that is killed with its standbys costs less than 12 s; the rest is for a busy machine.
LATE_S = 20.0


def _leader(proj: Proj) -> int | None:
    """Process id of the leading transfer worker."""
    return lease_holder(proj.server)


def _send_spread(proj: Proj, count: int, first_s: float, every_s: float) -> dict[str, float]:
    """Publishes tasks that are due one after the other. Returns when, by value."""
    now = time.time()
    dues = {str(n): now + first_s + every_s * n for n in range(count)}
    for value, due in dues.items():
        proj.send("record", value, eta=datetime.fromtimestamp(due, UTC))
    return dues


def _await_each_once(proj: Proj, dues: dict[str, float]) -> None:
    """Waits for all tasks: each runs once, not before its time and not much after it."""
    runs = proj.await_runs(len(dues))
    assert Counter(run["value"] for run in runs) == Counter(dues.keys())
    lateness = [run["at"] - dues[run["value"]] for run in runs]
    assert min(lateness) >= 0
    assert max(lateness) < LATE_S


@pytest.mark.journey
def test_a_killed_leader_is_stood_in_for_at_once(make_proj: MakeProj) -> None:
    """When the leader is killed while messages are due, the others deliver each once and in time; one of them leads."""
    proj = make_proj()
    # A worker that consumes nothing of this takes nothing with it.
    doomed = proj.worker("-Q", "elsewhere", pool="solo")
    until(lambda: _leader(proj) == doomed.process.pid)
    others = [proj.worker(pool="solo", wait=False) for _ in range(2)]
    for worker in others:
        worker.ready()

    dues = _send_spread(proj, 60, first_s=1, every_s=0.15)
    proj.await_runs(10)
    doomed.kill()
    assert proj.delayed() > 0

    _await_each_once(proj, dues)
    until(lambda: _leader(proj) in {worker.process.pid for worker in others}, what="another one leads")


@pytest.mark.journey
def test_a_leader_that_stops_hands_over_at_once(make_proj: MakeProj) -> None:
    """A leader that is stopped gives its lease back; another leads before it would have ended, and nothing is lost."""
    proj = make_proj(broker_transport_options={"poll_interval": 10.0})
    first = proj.worker(pool="solo")
    until(lambda: _leader(proj) == first.process.pid)
    second = proj.worker(pool="solo")
    assert _leader(proj) == first.process.pid

    dues = _send_spread(proj, 40, first_s=1, every_s=0.05)
    proj.await_runs(5)
    assert first.stop() == 0
    until(lambda: _leader(proj) == second.process.pid, 25, "the other one leads")
    _await_each_once(proj, dues)
