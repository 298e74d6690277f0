"""Headers of W3C Trace Context stay with a task on all its ways through Redis."""

from typing import Any

import pytest

from celery_ext import reschedule, run_now
from tests.support.commands.shell import run
from tests.support.conditions import until
from tests.support.workers.chains import TASKS, messages, waiting_step
from tests.support.workers.harness import MakeProj

pytestmark = pytest.mark.wide

#: As OpenTelemetry's propagator writes them.
TRACE = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
    "baggage": "shop=lisbon",
}


def test_trace_headers_stay_with_a_task(make_proj: MakeProj) -> None:
    """They survive the delay, a new due time, a run, a step of a delay chain, the dead letter and its replay."""
    proj = make_proj(**TASKS)
    proj.worker(pool="solo")
    sent = proj.send("doomed_chain", countdown=3600, headers=TRACE)
    assert kept(waiting_step(proj, sent.id, 0).headers) == TRACE
    assert reschedule(proj.app, sent.id, countdown=1800) == "rescheduled"
    assert kept(waiting_step(proj, sent.id, 0).headers) == TRACE
    assert run_now(proj.app, sent.id) == "transferred"
    assert kept(waiting_step(proj, sent.id, 1).headers) == TRACE  # it ran, failed, and waits for its next step
    assert run_now(proj.app, sent.id) == "transferred"
    client = proj.server.client()
    until(lambda: client.llen("failed") == 1, 30, "it is buried")
    assert "1 replayed" in run(proj.server, "dead-letters", "replay", "failed", "--all").stdout
    assert kept(waiting_step(proj, sent.id, 1).headers) == TRACE  # it ran again
    assert run_now(proj.app, sent.id) == "transferred"
    until(lambda: client.llen("failed") == 1, 30, "it is buried again")
    [letter] = messages(proj, "failed")
    assert kept(letter["headers"]) == TRACE
    runs = [*proj.runs(id=sent.id), *proj.runs(id=letter["headers"]["id"])]
    assert [each["retries"] for each in runs] == [0, 1, 0, 1]


def kept(headers: Any) -> dict[str, Any]:
    """Returns those of the headers that a message has."""
    return {name: headers[name] for name in TRACE if name in headers}
