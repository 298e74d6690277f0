"""Tasks that are buried after any failure that is final, however they end."""

import json
from collections.abc import Iterator
from typing import Any

import celery
import pytest
from celery.exceptions import WorkerLostError

from celery_ext import run_now
from tests.support.commands.shell import run
from tests.support.conditions import stays, until
from tests.support.workers.chains import TASKS, error_of, fleet, messages, retries_of, steps_of, waiting_step
from tests.support.workers.harness import MakeProj, Proj

pytestmark = pytest.mark.xdist_group("any failure")

retried_when_lost = pytest.mark.skipif(celery.__version__ < "5.7", reason="Celery has retry_on_worker_lost from 5.7 on")


@pytest.fixture(scope="module")
def proj() -> Iterator[Proj]:
    with fleet(
        accept_content=["json", "yaml"], task_annotations={"proj.dies_always": {"delay_chain": "1h,1h"}}
    ) as proj:
        yield proj


def buried(proj: Proj, count: int = 1) -> list[Any]:
    """Waits for letters, and until no more come. Returns what each tells, beside its traceback."""
    key = proj.server.client()
    until(lambda: key.llen("failed") >= count, 60, "it is buried")
    stays(lambda: key.llen("failed") == count, 1.5, "it is buried once")
    letters = messages(proj, "failed")
    for each in letters:
        assert each["properties"]["dead_letter"]["worker"] == proj.workers[-1].node
        assert "eta" not in each["headers"] or each["headers"]["eta"] is None
    told = [each["properties"]["dead_letter"] for each in letters]
    assert all("chain_tasks.py" in each["traceback"] for each in told if "ValueError" in each["error"])
    return [(each["reason"], each["error"], each["retries"]) for each in told]


@pytest.mark.journey
@pytest.mark.parametrize(
    ("how", "options", "reason", "error"),
    [
        ("raise", {}, "failed", "ValueError: no such order"),
        ("kill", {}, "worker lost", "WorkerLostError: Worker exited prematurely: signal 9 (SIGKILL)"),
        pytest.param(
            "exit",
            {},
            "worker lost",
            "WorkerLostError: Worker exited prematurely",
            marks=pytest.mark.skipif(celery.__version__ < "5.7", reason="before, Celery loses sight of such a task"),
        ),
        ("hang", {"time_limit": 5}, "time limit exceeded", "TimeLimitExceeded: "),
        ("hang softly", {"soft_time_limit": 5}, "failed", "SoftTimeLimitExceeded: "),
    ],
)
@pytest.mark.parametrize("task", ["doomed", "doomed_late"])
def test_each_final_failure_is_buried_once(
    proj: Proj, task: str, how: str, options: dict[str, Any], reason: str, error: str
) -> None:
    """An exception, a killed child, one that exits, and both time limits end in one dead letter, with why and where."""
    sent = proj.send(task, how, **options)
    assert error_of(sent)
    [found] = buried(proj)
    assert (found[0], found[2]) == (reason, 0)
    assert found[1].startswith(error)
    assert len(proj.runs(id=sent.id)) == 1
    assert proj.server.client().smembers("{delayq}:dead_letters") == {"failed"}


def test_what_is_no_failure_is_not_buried(proj: Proj) -> None:
    """A task that ignores or rejects its message, or is revoked while it runs, is not buried, nor one that succeeds."""
    for how in ("ignore", "reject", "well"):
        proj.send("doomed", how)
    hangs = proj.send("doomed", "hang")
    until(lambda: proj.runs(id=hangs.id), 30)
    hangs.revoke(terminate=True)
    until(lambda: hangs.state == "REVOKED", 30)
    until(lambda: len(proj.runs(name="doomed")) >= 4)
    stays(lambda: proj.server.client().llen("failed") == 0, 2)


def test_a_failure_beside_the_chain_is_buried(proj: Proj) -> None:
    """A failure that the chain does not count ends the task at its place, and its letter begins the chain anew."""
    sent = proj.send("doomed_chain")
    waiting_step(proj, sent.id, 1)
    run_now(proj.app, sent.id)
    assert "no such order" in str(error_of(sent))
    until(lambda: proj.server.client().llen("failed") == 1)
    assert run(proj.server, "dead-letters", "replay", "failed", "--all").stdout == (
        "queue failed: 1 replayed (1 to celery)\n"
    )
    again = waiting_step(proj, sent.id, 1)
    runs = [*proj.runs(id=sent.id), *proj.runs(id=again.id)]
    assert (again.delay_chain, [each["retries"] for each in runs]) == ("1h", [0, 1, 0])
    run_now(proj.app, again.id)
    assert buried(proj) == [("failed", "ValueError: no such order", 1)]


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_letter_is_written_as_the_message_was(proj: Proj, how: str) -> None:
    """It has the same serializer and compression, and hidden arguments stay hidden, whichever process buries it."""
    broker = proj.server.client()
    proj.send("doomed", how, serializer="yaml", compression="zlib", argsrepr="***", kwargsrepr="****")
    [found] = [json.loads(raw) for raw in until(lambda: broker.lrange("failed", 0, -1), 30)]
    assert found["content-type"] == "application/x-yaml"
    told = {name: found["headers"][name] for name in ("argsrepr", "kwargsrepr", "compression")}
    assert told == {"argsrepr": "***", "kwargsrepr": "****", "compression": "application/x-gzip"}
    broker.delete("failed")


def test_a_task_that_comes_again_is_buried_when_it_has_failed(proj: Proj) -> None:
    """A lost process of a task that is delivered again is no final failure; the one after it is, and is buried once."""
    sent = proj.send("doomed_again", "raise")
    assert "again" in str(error_of(sent))
    assert buried(proj) == [("failed", "ValueError: again", 0)]
    assert len(proj.runs(id=sent.id)) == 2


def test_a_replayed_letter_of_a_lost_process_runs_again(proj: Proj) -> None:
    """A letter that the worker's main process wrote has its arguments, and is replayed to the queue it came from."""
    proj.send("doomed", kwargs={"how": "kill"})
    until(lambda: proj.server.client().llen("failed") == 1, 30)
    assert "1 replayed (1 to celery)" in run(proj.server, "dead-letters", "replay", "failed", "--all").stdout
    [found] = buried(proj)
    assert found[0] == "worker lost"


def assert_lost_until_exhausted(proj: Proj, steps: int, **options: Any) -> None:
    """Sends a task that loses its process at each step, and checks that it ends after the last one."""
    sent = proj.send("dies_always", **options)
    steps_of(proj, sent.id, steps)
    [found] = buried(proj)
    assert (found[0], found[2]) == ("delay chain exhausted", steps)
    assert len(proj.runs(id=sent.id, told="exhausted")) == 1
    assert retries_of(proj, sent.id) == list(range(steps + 1))
    assert isinstance(error_of(sent), WorkerLostError)


@retried_when_lost
@pytest.mark.parametrize(("chain", "steps"), [(None, 2), ("1h", 1), ("1h*4", 4)])
def test_a_chain_whose_last_step_loses_its_process_is_exhausted(proj: Proj, chain: str | None, steps: int) -> None:
    """Where lost processes count for a chain, of the task or of a call, it is buried after the last step."""
    assert_lost_until_exhausted(proj, steps, delay_chain=chain)


@pytest.mark.wide
@retried_when_lost
def test_a_message_that_would_come_again_ends_with_its_chain(make_proj: MakeProj) -> None:
    """After the last step a lost process ends the task, also where its message goes back to the queue otherwise."""
    late = {"delay_chain": "1h,1h", "acks_late": True, "reject_on_worker_lost": True}
    proj = make_proj(**TASKS, task_annotations={"proj.dies_always": late})
    proj.worker(concurrency=1)
    assert_lost_until_exhausted(proj, 1, delay_chain="1h")
    until(lambda: proj.server.client().hlen("unacked") == 0)


@pytest.mark.wide
@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_pools_without_processes(make_proj: MakeProj, pool: str) -> None:
    """In threads and in the worker itself an exception is buried once, and the setting says so for all tasks."""
    proj = make_proj(**TASKS, delayq_dead_letter_on="failure")
    proj.worker(pool=pool)
    proj.send("doomed", "raise")
    assert buried(proj) == [("failed", "ValueError: no such order", 0)]
    proj.send("unchained", 1, 2)  # too many arguments
    [found] = buried(proj)
    assert (found[0], found[1][:9]) == ("failed", "TypeError")


@pytest.mark.wide
def test_a_time_limit_that_leaves_the_message_is_not_final(make_proj: MakeProj) -> None:
    """A message that is given back after a time limit comes again, and is buried when that run ends it."""
    proj = make_proj(**TASKS, task_acks_on_failure_or_timeout=False)
    proj.worker(concurrency=1)
    sent = proj.send("doomed_late", "hang", time_limit=1)
    until(lambda: len(proj.runs(id=sent.id)) >= 2, 60, "it comes again")
    assert proj.server.client().llen("failed") == 0


@pytest.mark.journey
def test_dead_letters_are_run_again_only_where_a_worker_is_told(make_proj: MakeProj) -> None:
    """A worker leaves out a declared queue of dead letters; with -Q it runs each letter there once."""
    proj = make_proj(**TASKS, task_queues={"celery": {}, "failed": {}})
    worker = proj.worker(concurrency=1)
    sent = proj.send("doomed", "raise")
    until(lambda: proj.server.client().llen("failed"), what="it is buried")
    assert "does not consume 'failed'" in worker.log
    stays(lambda: len(proj.runs(id=sent.id)) == 1, 1.5, "it runs once")
    told = proj.worker("-Q", "celery,failed", concurrency=1)
    until(lambda: "has failed in 'failed', where its dead letters are" in told.log)
    stays(lambda: len(proj.runs(id=sent.id)) == 2, 1.5, "it runs again once")
    assert proj.server.client().llen("failed") == 0
    assert "does not consume" not in told.log
