"""Pool children, which are forked from a process that runs a transfer worker."""

from collections import Counter
from datetime import datetime

from kombu_delayq.keys import Keys
from tests.integration.harness import MakeProj
from tests.waiting import stays

TASKS = 10


def test_tasks_in_short_lived_children_publish_with_a_countdown(make_proj: MakeProj) -> None:
    """Retries with a countdown from children that are forked all the time run once each; only the parent transfers."""
    proj = make_proj()
    worker = proj.worker("--max-tasks-per-child", "1", concurrency=3)
    for _ in range(TASKS):
        proj.send("flaky", 2, 0.3)
    runs = proj.await_runs(3 * TASKS, timeout_s=60)
    stays(lambda: len(proj.runs()) == 3 * TASKS, 1)
    assert Counter(run["retries"] for run in runs) == {0: TASKS, 1: TASKS, 2: TASKS}
    assert len({(run["id"], run["retries"]) for run in runs}) == len(runs)
    assert len({run["pid"] for run in runs}) > TASKS

    for run in (run for run in runs if run["eta"]):
        assert run["at"] >= datetime.fromisoformat(run["eta"]).timestamp()
    lease = str(proj.server.client().get(Keys().lease))
    assert int(lease.split(":")[1]) == worker.process.pid
    assert proj.delayed() == 0
