"""Delay chains with a real worker: steps, ends, cancels and canvas."""

from collections.abc import Iterator
from itertools import pairwise
from time import time
from typing import Any

import pytest
from celery import chain, chord, group
from celery.exceptions import MaxRetriesExceededError

from celery_ext import cancel, run_now
from tests.support.conditions import until
from tests.support.workers.chains import (
    assert_steps,
    error_of,
    fleet,
    messages,
    retries_of,
    steps_of,
    waiting_step,
    watched,
)
from tests.support.workers.harness import Proj

pytestmark = [pytest.mark.both_layouts, pytest.mark.xdist_group("chains")]

#: The steps of the tasks, in s.
LONG_S = (240, 600, 600, 3600)


@pytest.fixture(scope="module")
def proj() -> Iterator[Proj]:
    with fleet() as proj:
        yield proj


@pytest.mark.journey
def test_each_failure_moves_to_the_next_delay(proj: Proj) -> None:
    """A task that fails waits for its chain's next step, under one id, with at most one message that waits."""
    sent = proj.send("notify", 4)
    with watched(proj, sent.id) as counts:
        assert waiting_step(proj, sent.id, 1)
        assert until(lambda: 1 in counts)
        assert until(lambda: sent.state == "RETRY")
        assert_steps(steps_of(proj, sent.id, 4), *LONG_S)
        assert sent.get(timeout=30) == 4
        assert until(lambda: 0 in counts)
    assert set(counts) == {0, 1}
    assert retries_of(proj, sent.id) == [0, 1, 2, 3, 4]
    assert proj.runs(id=sent.id, told="exhausted") == []
    assert proj.delayed() == 0


def test_a_chain_of_a_call_in_its_own_time(proj: Proj) -> None:
    """A chain of one call overrides the task's, the first run has its own countdown, and no step comes early."""
    steps = (0.3, 1.5, 0.0, 0.3)
    begun = time()
    sent = proj.send("notify", 4, delay_chain="300ms 1.5s 0s,300ms", countdown=1.5)
    assert sent.get(timeout=60) == 4
    runs = proj.runs(id=sent.id)
    assert runs[0]["at"] >= begun + 1.5
    assert [run["retries"] for run in runs] == [0, 1, 2, 3, 4]
    for (before, after), step in zip(pairwise(runs), steps, strict=True):
        assert after["at"] >= before["at"] + step


@pytest.mark.parametrize("exc", ["why", None])
def test_a_chain_that_is_exhausted(proj: Proj, exc: str | None) -> None:
    """After the last step the task fails as Celery's do, the signal tells of it, and the message is a dead letter."""
    failed = proj.app.signature("proj.failed_with", immutable=True)
    sent = proj.send("by_hand", kwargs={"exc": exc}, link_error=failed, expires=86400)
    assert_steps(steps_of(proj, sent.id, 4), *LONG_S)
    error = error_of(sent)
    if exc:
        assert (type(error).__name__, str(error)) == ("NotifyFailed", "why")
    else:
        assert isinstance(error, MaxRetriesExceededError)
        assert sent.id in str(error)
    assert retries_of(proj, sent.id) == [0, 1, 2, 3, 4]
    (told,) = proj.runs(id=sent.id, told="exhausted")
    assert (told["chain"], told["exception"]) == ("4m,10m*2,1h", "NotifyFailed('why')" if exc else None)
    assert sent.children in (None, [])
    until(lambda: proj.runs(name="failed_with"))
    proj.journal.delete("runs")

    (letter,) = messages(proj, "failed")
    reason = letter["properties"]["dead_letter"]
    assert (reason["reason"], reason["retries"], reason["routing_key"]) == ("delay chain exhausted", 4, "celery")
    assert reason["error"] == ("NotifyFailed: why" if exc else None)
    headers = letter["headers"]
    assert (headers["id"], headers["task"], headers["retries"]) == (sent.id, "proj.by_hand", 0)
    assert (headers["eta"], headers["expires"]) == (None, None)
    args, kwargs, embed = letter["body"]
    assert (args, kwargs) == ([], {"exc": exc})
    assert [errback["task"] for errback in embed["errbacks"]] == ["proj.failed_with"]
    assert proj.delayed() == 0
    until(lambda: proj.server.client().hlen("unacked") == 0)


def test_an_error_that_cannot_be_written_down(proj: Proj) -> None:
    """A task that is exhausted with an exception that can be neither pickled nor shown fails, and is a dead letter."""
    sent = proj.send("unserializable")
    steps_of(proj, sent.id, 1)
    until(lambda: sent.state == "FAILURE")
    (letter,) = messages(proj, "failed")
    assert letter["properties"]["dead_letter"]["error"].startswith("Unserializable, which cannot be shown")
    assert len(proj.runs(id=sent.id, told="exhausted")) == 1


def test_chains_in_a_canvas(proj: Proj) -> None:
    """Tasks that go through steps have their place in chains, groups and chords, and their links are called once."""

    def notify(failures: int, **options: Any) -> Any:
        return proj.app.signature("proj.notify", args=(failures,), immutable=True, options=options)

    def add(*numbers: int) -> Any:
        return proj.app.signature("proj.add", args=numbers)

    ids = {name: f"canvas {name}" for name in ("chain", "group", "chord", "link")}
    a_chain = chain(notify(1, task_id=ids["chain"]), add(10), app=proj.app).apply_async()
    a_group = group([notify(2, task_id=ids["group"]), notify(0)], app=proj.app).apply_async()
    a_chord = chord([notify(1, task_id=ids["chord"]), notify(0)], add(), app=proj.app).apply_async()
    notify(1, task_id=ids["link"], link=add(100)).apply_async()
    steps_of(proj, ids["group"], 2)
    for name in ("chain", "chord", "link"):
        steps_of(proj, ids[name], 1)
    assert a_chain.get(timeout=30) == 11
    assert a_group.get(timeout=30) == [2, 0]
    assert a_chord.get(timeout=30) == 1
    until(lambda: proj.runs(name="add", value=101))
    assert sorted(run["value"] for run in proj.runs(name="add")) == [1, 11, 101]


def test_a_chord_whose_member_is_exhausted(proj: Proj) -> None:
    """A chord fails once when a chain of its header is exhausted, and the dead letter is outside of it."""
    member = proj.app.signature("proj.by_hand", kwargs={"exc": "why"}, task_id="member", options={"delay_chain": "1h"})
    a_chord = chord([member], proj.app.signature("proj.add"), app=proj.app).apply_async()
    steps_of(proj, member.id, 1)
    assert "why" in str(error_of(a_chord))
    (letter,) = messages(proj, "failed")
    assert letter["body"][2]["chord"] is None


def test_a_cancelled_step_that_succeeds(proj: Proj) -> None:
    """A chain that is cancelled while a step runs, which then succeeds, has its result as ever."""
    sent = proj.send("notify", 1, "x")
    waiting_step(proj, sent.id, 1)
    run_now(proj.app, sent.id)
    assert cancel(proj.app, sent.id) == "chain_ended"
    assert sent.get(timeout=30) == 1
