"""Delay chains in other pools, with other settings, and where not every process knows of them."""

import pytest

from celery_ext import run_now
from tests.support.workers.chains import TASKS, assert_steps, delay_of_step, error_of, messages, steps_of, waiting_step
from tests.support.workers.harness import MakeProj

pytestmark = pytest.mark.wide


def test_protocol_1_in_threads_without_new_queues(make_proj: MakeProj) -> None:
    """In a thread pool, with tasks of protocol 1 and no queue made on the fly, chains and dead letters are the same."""
    proj = make_proj(
        **TASKS, task_protocol=1, task_create_missing_queues=False, task_queues={"celery": {"exchange": "celery"}}
    )
    proj.worker(pool="threads", concurrency=4)
    several = [proj.send("notify", 2, delay_chain="1h,2h") for _ in range(4)]
    for sent in several:
        assert_steps(steps_of(proj, sent.id, 2), 3600, 7200)
    assert [sent.get(timeout=30) for sent in several] == [2] * 4

    ends = proj.send("by_hand", kwargs={"exc": "why"}, delay_chain="1h")
    assert_steps(steps_of(proj, ends.id, 1), 3600)
    assert "why" in str(error_of(ends))
    (letter,) = messages(proj, "failed")
    assert (letter["body"]["id"], letter["body"]["retries"]) == (ends.id, 0)
    assert letter["properties"]["dead_letter"]["error"] == "NotifyFailed: why"


def test_a_fleet_of_which_a_part_is_installed(make_proj: MakeProj) -> None:
    """A worker whose app does not call ``install`` goes on with the chains of tasks and of calls all the same.

    A producer needs no ``install`` for either chain.
    """
    proj = make_proj(**TASKS)
    installed = proj.worker(pool="solo")
    sent = proj.send("notify", 3)
    waiting_step(proj, sent.id, 1)
    own = proj.send("notify", 2, delay_chain="1h,2h")
    waiting_step(proj, own.id, 1)
    assert installed.stop() == 0

    proj.worker(pool="solo", without_install=True)
    for each, delay_s in ((sent, 600), (own, 7200)):
        run_now(proj.app, each.id)
        assert_steps([delay_of_step(proj, each.id, 2)], delay_s)
    new = proj.send("by_hand", kwargs={"exc": "why"}, delay_chain="1h")
    assert_steps(steps_of(proj, new.id, 1), 3600)
    assert "why" in str(error_of(new))
    (letter,) = messages(proj, "failed")
    assert letter["headers"]["id"] == new.id


def test_a_worker_on_stock_redis_says_what_it_does_not_read(make_proj: MakeProj) -> None:
    """Where neither ``install`` nor the transport gives tasks their chains, the worker names them when it starts."""
    proj = make_proj(**TASKS, without_install=True, broker_transport="")
    log = proj.worker(pool="solo").log
    [line] = [line for line in log.splitlines() if "have no effect" in line]
    assert "proj.notify" in line
    assert "proj.unchained" in line
    assert "proj.record" not in line
    assert "celery_ext.install(app) was not called" in line


def test_a_worker_does_not_start_with_a_chain_that_is_none(make_proj: MakeProj) -> None:
    """Without ``install`` the worker finds a wrong schedule before it consumes anything."""
    proj = make_proj(**TASKS, without_install=True, chain="4m,x")
    worker = proj.worker(pool="solo", wait=False)
    assert worker.process.wait(90) == 1
    assert "InvalidDelayChain: task proj.notify: step 2, 'x'" in worker.log
