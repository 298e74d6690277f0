"""Workers arm periodic entries, whatever dies."""

import os
import signal
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import until, until_equal
from tests.support.workers.harness import MakeProj, Proj
from tests.support.workers.held import in_hand

pytestmark = pytest.mark.wide

EACH_SECOND = {"task": "proj.record", "schedule": 1.0, "args": ["tick"]}
INCLUDE = {"include": ["periodic_tasks"]}


def assert_each_once(proj: Proj, count: int, *, killed: bool = False) -> None:
    """Waits for runs of an entry each second: none is missing, and none comes twice.

    A later run may begin before an earlier one, and one that a killed worker had not acknowledged begins again.
    """
    proj.await_runs(count)

    def steps() -> set[int]:
        etas = {run["id"]: datetime.fromisoformat(run["eta"]) for run in proj.runs()}
        times = sorted(round(eta.timestamp() * 1000) for eta in etas.values())
        return {later - before for before, later in pairwise(times)}

    until_equal(steps, {1000})
    begun = [run["id"] for run in proj.runs() if not (killed and run["redelivered"])]
    assert len(set(begun)) == len(begun)


def leader(proj: Proj) -> str:
    """Returns the name of the process that arms, which has its id; empty for none."""
    return str(proj.server.client().get("{delayq}:periodic:lease") or "")


def await_acks(proj: Proj) -> None:
    """Waits until no run is in hand: a worker acknowledges one after its child has noted it."""
    until(lambda: not in_hand(proj.server.client()))


@pytest.mark.journey
def test_each_run_comes_once_when_workers_die(make_proj: MakeProj) -> None:
    """One worker is killed, another is stopped while it arms and goes on later, a third arms: each run comes once."""
    proj = make_proj(periodic_entries={"tick": EACH_SECOND}, **INCLUDE)
    killed, stopped = proj.worker(), proj.worker()
    proj.await_runs(2)
    await_acks(proj)
    killed.kill()
    proj.await_runs(4)
    third = proj.worker()
    await_acks(proj)
    os.killpg(stopped.process.pid, signal.SIGSTOP)
    try:
        proj.server.client().delete("{delayq}:periodic:lease")  # as after its time
        until(lambda: f":{third.process.pid}:" in leader(proj), what="the third one arms")
        proj.await_runs(8)
    finally:
        os.killpg(stopped.process.pid, signal.SIGCONT)
    assert_each_once(proj, 12, killed=True)


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_what_became_of_a_run_is_noted(make_proj: MakeProj, pool: str) -> None:
    """Of each entry the outcome of its latest run is known, also of one that ends while its worker stops."""
    bad = {"task": "proj.doomed", "schedule": 1.0, "args": ["raise"]}
    entries = {"good": EACH_SECOND, "bad": bad}
    proj = make_proj(periodic_entries=entries, include=["periodic_tasks", "chain_tasks"])
    worker, client = proj.worker(pool=pool), proj.server.client()
    until_equal(lambda: client.hgetall("{delayq}:periodic:outcomes"), {"good": "SUCCESS", "bad": "FAILURE"})
    worker.stop()
    assert client.hget("{delayq}:periodic:outcomes", "good") == "SUCCESS"


def test_a_restart_of_redis(make_proj: MakeProj, durable_server: PrivateRedis) -> None:
    """What is due while Redis is away comes when it is back, the worker arms again, and each run comes once."""
    proj = make_proj(durable_server, periodic_entries={"tick": EACH_SECOND}, **INCLUDE)
    worker = proj.worker()
    proj.await_runs(2)
    durable_server.stop(signal.SIGKILL)
    until(lambda: "no periodic entry can be armed" in worker.log)
    durable_server.start()
    until(lambda: "periodic entries can be armed again" in worker.log)
    assert_each_once(proj, 6)


def test_beat_processes_are_harmless(make_proj: MakeProj, tmp_path: Path) -> None:
    """Two beat processes with our scheduler arm for a worker that does not, and when one ends, the other goes on."""
    proj = make_proj(beat_schedule={"tick": EACH_SECOND}, beat_scheduler="celery_ext.periodic:Scheduler")
    proj.worker()
    beats = [proj.start("beat", "--pidfile=", log=str(tmp_path / str(number))) for number in range(2)]
    try:
        proj.await_runs(2)
        holder = leader(proj)
        [first, second] = sorted(beats, key=lambda beat: f":{beat.pid}:" not in holder)
        first.terminate()
        assert first.wait(60) == 0
        assert f":{first.pid}:" not in leader(proj), "it gives its lease back"
        until(lambda: f":{second.pid}:" in leader(proj), what="the other one arms")
        assert_each_once(proj, 6)
    finally:
        for beat in beats:
            beat.kill()
            beat.wait(10)
