"""Delay chains in other pools, with other settings, and where not every process knows of them."""

from celery_ext import run_now
from tests.integration.chains import (
    TASKS,
    assert_steps,
    delay_of_step,
    error_of,
    messages,
    retries_of,
    steps_of,
    waiting_step,
)
from tests.integration.harness import MakeProj


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
    """A worker without ``install`` runs steps as retries of Celery, and one with it takes the chain up at its place.

    The chain of a call is forgotten there, and the task's goes on. A producer needs no ``install`` for either chain.
    """
    proj = make_proj(**TASKS)
    installed = proj.worker(pool="solo")
    sent = proj.send("notify", 3)
    waiting_step(proj, sent.id, 1)
    own = proj.send("notify", 2, delay_chain="1h,2h")
    waiting_step(proj, own.id, 1)
    assert installed.stop() == 0

    plain = proj.worker(pool="solo", without_install=True)
    for each in (sent, own):
        run_now(proj.app, each.id)
        assert "delay_chain" not in waiting_step(proj, each.id, 2).properties
        assert_steps([delay_of_step(proj, each.id, 2)], 180)
    assert plain.stop() == 0

    proj.worker(pool="solo")
    for each, delay_s, retries in ((sent, 600, 3), (own, None, 2)):
        run_now(proj.app, each.id)
        if delay_s:
            assert_steps([delay_of_step(proj, each.id, 3)], delay_s)
            run_now(proj.app, each.id)
        assert each.get(timeout=30) == retries
        assert retries_of(proj, each.id) == list(range(retries + 1))


def test_a_deploy_that_changes_a_chain(make_proj: MakeProj) -> None:
    """A chain that has begun goes on as it began when its task has another one by now; one that begins has the new."""
    proj = make_proj(**TASKS)
    before = proj.worker(pool="solo")
    sent = proj.send("notify")
    assert_steps(steps_of(proj, sent.id, 1), 240)
    waiting_step(proj, sent.id, 2)
    assert before.stop() == 0

    proj.worker(pool="solo", chain="2h*9")
    later = proj.send("notify", 2)
    assert_steps(steps_of(proj, later.id, 2), 7200, 7200)
    assert later.get(timeout=30) == 2
    for retries, delay_s in ((3, 600), (4, 3600)):
        run_now(proj.app, sent.id)
        assert_steps([delay_of_step(proj, sent.id, retries)], delay_s)
    run_now(proj.app, sent.id)
    assert "no answer 4" in str(error_of(sent))
    (told,) = proj.runs(id=sent.id, told="exhausted")
    assert told["chain"] == "4m,10m*2,1h"
