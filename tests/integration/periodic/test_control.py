"""Periodic entries are listed, paused, resumed and run now: in the shell, over HTTP, on the page and by metrics."""

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.periodic import control
from celery_ext.periodic.store import PeriodicStore
from celery_ext.serve import asgi
from celery_ext.serve.access.identity import Action, Caller
from tests.support.commands.shell import lines, run
from tests.support.conditions import until
from tests.support.serve.metrics import collector_of, scraped
from tests.support.workers import periodic
from tests.support.workers.periodic import Process, StartProcess

ORIGIN = "http://127.0.0.1:8000"


@pytest.fixture
def process(start_process: StartProcess) -> Process:
    """A process that has armed three entries."""
    return start_process("p", periodic.SCHEDULE)


def states(process: Process) -> dict[str, str]:
    """Returns the state of each entry."""
    return {entry.name: entry.state for entry in control.list_entries(process.store)}


def test_entries_are_listed(process: Process) -> None:
    """Each entry has its next run, what it is, and what is wrong with it; an overdue run is still the next one."""
    report, tick, wrong = control.list_entries(process.store)
    assert (report.state, report.task, report.queues) == ("on", "shop.report", ["slow"])
    assert "each day at 07:30" in report.schedule
    assert tick.next_ms is not None
    assert 540_000 < tick.next_ms - process.store.now_ms() <= 600_000
    assert tick.last_ms is None
    assert (wrong.state, wrong.next_ms) == ("wrong", None)
    assert "'soon'" in wrong.error
    process.age("tick", 3_600_000)
    process.step()
    _, tick, _ = control.list_entries(process.store)
    assert tick.next_ms is not None
    assert tick.next_ms < process.store.now_ms()


def test_a_run_that_waits_out_a_countdown_is_not_overdue(start_process: StartProcess) -> None:
    """The next run of an entry with a countdown is to come, while the messages of those before it wait."""
    schedule = {"tick": {"task": "shop.tick", "schedule": 0.5, "options": {"countdown": 3600}}}
    process = start_process("p", schedule)
    first_ms = process.store.part(PeriodicStore).notes(["celery"])["celery"]["tick"].runs[0][0]
    until(lambda: process.store.now_ms() > first_ms)
    now_ms = process.store.now_ms()
    [tick] = control.list_entries(process.store)
    assert tick.next_ms is not None
    assert tick.next_ms > now_ms
    assert tick.last_ms is not None
    assert tick.last_ms >= first_ms


def test_the_command(process: Process, redis_server: PrivateRedis) -> None:
    """``delayq periodic`` lists, pauses, resumes and runs now; an unknown name is exit code 1."""
    assert [line["name"] for line in lines(redis_server, "periodic", "list")] == ["report", "tick", "wrong"]
    process.store.part(PeriodicStore).note_outcomes({"tick": "FAILURE"})
    assert [line["outcome"] for line in lines(redis_server, "periodic", "list")] == [None, "FAILURE", None]
    text = run(redis_server, "periodic", "list").stdout
    assert ", failure " in text
    assert "3 entries, armed by p" in text
    assert "paused" in run(redis_server, "periodic", "pause", "tick").stdout
    assert states(process)["tick"] == "paused"
    assert process.armed() == []
    process.step()
    assert "unchanged" in run(redis_server, "periodic", "pause", "tick").stdout
    assert "requested" in run(redis_server, "periodic", "run-now", "tick").stdout
    assert "resumed" in run(redis_server, "periodic", "resume", "tick").stdout
    process.step()
    assert (states(process)["tick"], len(process.armed())) == ("on", 1)
    assert process.store.client.llen("celery") == 1
    assert "nothing: unknown" in run(redis_server, "periodic", "resume", "nothing", code=1).stdout


def test_the_http_api_and_the_page(process: Process) -> None:
    """Both show the entries that a caller may see, and change them within its rights."""
    caller = Caller("tester", frozenset(Action), queues=("celery",))
    made = asgi(process.app, allow_write=True, identify=lambda request: caller)
    with TestClient(made, ORIGIN, headers={"Origin": ORIGIN}) as api:
        process.store.part(PeriodicStore).note_outcomes({"tick": "RETRY"})
        found = api.get("/v1/periodic").json()
        assert found["entries"][0]["outcome"] == "RETRY"
        assert "tries again" in api.get("/periodic", headers={"Accept": "text/html"}).text
        assert ([entry["name"] for entry in found["entries"]], found["armed_by"]) == (["tick"], "p")
        assert api.post("/v1/periodic/tick:pause").json() == {"outcome": "paused"}
        assert api.post("/v1/periodic/report:pause").status_code == 404
        assert api.post("/v1/periodic/nothing:pause").status_code == 404
        page = api.get("/periodic", headers={"Accept": "text/html"}).text
        assert "shop.tick" in page
        assert "shop.report" not in page
        assert "Resume" in page
        done = api.post("/do/periodic/resume", data={"entry": "tick"}, follow_redirects=True)
        assert "tick runs again." in done.text
        assert api.post("/v1/periodic/tick:run-now").json() == {"outcome": "requested"}
    made.state.serve.broker.close()  # type: ignore[attr-defined]
    assert states(process)["tick"] == "on"


def test_metrics_say_what_has_not_run(process: Process) -> None:
    """Each entry has the time until its next run, below 0 when it is overdue, and whether it is wrong."""
    process.age("tick", 3_600_000)
    process.step()
    found = scraped(collector_of(process.store))
    until = {key[1]: value for key, value in found.items() if key[0] == "periodic_until_next_run_seconds"}
    assert until["tick"] < 0 < until["report"]
    assert found["periodic_armer_present",] == 1
    assert {key[1]: value for key, value in found.items() if key[0] == "periodic_wrong"}["wrong"] == 1
    since = {key[1]: value for key, value in found.items() if key[0] == "periodic_since_last_run_seconds"}
    assert since["tick"] == pytest.approx(3600, abs=60)


def test_metrics_while_nobody_may_know_who_arms(process: Process) -> None:
    """The entries have their metrics where Redis refuses the lease alone, and none counts as the one that arms."""
    process.store.client.delete("{delayq}:periodic:lease")
    process.store.client.rpush("{delayq}:periodic:lease", "no lease")
    found = scraped(collector_of(process.store))
    assert found["periodic_armer_present",] == 0
    assert found["periodic_wrong", "wrong"] == 1


def test_changes_are_audited(process: Process, audit: Any) -> None:
    """A pause leaves a line, and what changes nothing leaves none."""
    control.pause(process.store, ["tick", "nothing"])
    control.pause(process.store, ["tick"])
    [line] = audit()
    assert (line["action"], line["count"], line["what"]["entries"]) == ("pause", 1, ["tick", "nothing"])
    assert json.loads(json.dumps(line))
