"""Processes that cancel and move the same tasks at once, while the tasks become due: each task has one fate."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime

import pytest

from tests.support import ROOT
from tests.support.conditions import stays, until
from tests.support.workers import racer
from tests.support.workers.backlogs import fill
from tests.support.workers.harness import Proj

#: How long the tasks become due, and the processes go through them all, in another order.
SPREAD_S = 2.0
CANCELLED = "cancelled while it was delayed"


def _racer(proj: Proj) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", racer.__name__],
        cwd=ROOT,
        env={**os.environ, "PROJ_CONF": json.dumps(proj.conf)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _race(proj: Proj, ids: list[str], act: str, *etas_s: float | None) -> tuple[float, list[dict[str, str]]]:
    """Lets a process for each eta act on the same tasks while they become due.

    Args:
        proj: The app.
        ids: The ids of the tasks, which are stored here.
        act: What each process does with all of them.
        *etas_s: The new due times, s after the beginning.

    Returns:
        When it began, and what each process was told.
    """
    racers = [_racer(proj) for _ in etas_s]
    for process in racers:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    begin = time.time() + 2
    dues = (begin + SPREAD_S * (number * 7919 % len(ids)) / len(ids) for number in range(len(ids)))
    fill(proj, "celery", zip(ids, (datetime.fromtimestamp(due, UTC) for due in dues), strict=True))
    told = []
    for process, eta_s in zip(racers, etas_s, strict=True):
        request = {"act": act, "ids": ids, "begin": begin, "spread_s": SPREAD_S}
        assert process.stdin is not None
        process.stdin.write(json.dumps({**request, "eta": None if eta_s is None else begin + eta_s}) + "\n")
        process.stdin.flush()
    for process in racers:
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        told.append(json.loads(printed))
    return begin, told


def _await_end(proj: Proj, runs: int) -> Counter[str]:
    """Waits until nothing waits any more, and a moment longer. Returns how often each task ran."""
    proj.await_runs(runs, timeout_s=60)
    stays(lambda: len(proj.runs()) == runs, 0.5, "no more runs")
    assert proj.delayed() == 0
    return Counter(run["id"] for run in proj.runs())


@pytest.mark.nightly
def test_two_cancels_and_the_transfer(proj: Proj) -> None:
    """Of two processes that cancel 2,000 tasks while they become due, one or none has cancelled each, and all know.

    What nobody has cancelled runs once, what somebody has, never, and has the result of a revoked task.
    """
    proj.worker(pool="threads")
    ids = [f"task {number}" for number in range(2000)]
    _, told = _race(proj, ids, "cancel", None, None)
    words = {each: sorted(outcomes[each] for outcomes in told) for each in ids}
    cancelled = {each for each in ids if words[each] == ["cancelled", "not_delayed"]}
    transferred = {each for each in ids if words[each] == ["not_delayed", "not_delayed"]}
    assert len(cancelled) + len(transferred) == len(ids), "somebody was told twice that it is cancelled"
    assert cancelled, "the transfer was always first"
    assert transferred, "the transfer was never first"
    assert _await_end(proj, len(transferred)) == Counter(transferred)
    states = {each: "REVOKED" if each in cancelled else "SUCCESS" for each in ids}
    until(lambda: {each: proj.app.backend.get_task_meta(each)["status"] for each in ids} == states)
    assert not proj.server.client().exists("delayq:{celery}:due", "delayq:{celery}:bodies")


@pytest.mark.nightly
def test_two_that_run_tasks_and_the_transfer(proj: Proj) -> None:
    """Of two processes that run 1,000 tasks now while they become due, one or none has done it, and each runs once."""
    proj.worker(pool="threads")
    ids = [f"task {number}" for number in range(1000)]
    _, told = _race(proj, ids, "run_now", None, None)
    assert _await_end(proj, len(ids)) == Counter(ids)
    words = Counter(tuple(sorted(outcomes[each] for outcomes in told)) for each in ids)
    assert words.keys() <= {("not_delayed", "transferred"), ("not_delayed", "not_delayed")}
    assert words["not_delayed", "transferred"], "the transfer was always first"


@pytest.mark.nightly
def test_two_that_reschedule_tasks_and_the_transfer(proj: Proj) -> None:
    """Tasks that two processes reschedule while they become due run once, whoever comes first.

    Who is told that a task was rescheduled can rely on it not running before the earlier of the two new times.
    """
    proj.worker(pool="threads")
    ids = [f"task {number}" for number in range(1000)]
    begin, told = _race(proj, ids, "reschedule", SPREAD_S + 1, SPREAD_S + 2)
    assert _await_end(proj, len(ids)) == Counter(ids)
    rescheduled = {each for outcomes in told for each in ids if outcomes[each] == "rescheduled"}
    assert rescheduled, "the transfer was always first"
    at = {run["id"]: run["at"] for run in proj.runs()}
    assert all(at[each] >= begin + SPREAD_S + 1 for each in rescheduled)
    assert {word for outcomes in told for word in outcomes.values()} <= {"rescheduled", "not_delayed", "transferred"}
