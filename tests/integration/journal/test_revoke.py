"""Revokes and inspection by workers, for tasks of which the journal has a row."""

from time import time

import pytest

import celery_ext
from celery_ext.journal import JournaledStore
from tests.support.conditions import until
from tests.support.journal.stores import Promoter, in_redis, journaled, restored
from tests.support.workers.harness import MakeProj, Proj

pytestmark = pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)

DAY_S = 86_400


def made(make_proj: MakeProj, journal_url: str) -> tuple[Proj, JournaledStore]:
    """Makes an app whose delayed tasks all have rows, and a store beside it."""
    options = {"journal_url": journal_url, "journal": "all"}
    proj = make_proj(broker_transport_options=options)
    return proj, journaled(proj.server.port, options)


def test_a_worker_removes_and_shows_tasks_of_the_journal(make_proj: MakeProj, journal_url: str) -> None:
    """Its revoke removes the rows of tasks, wherever these wait; its inspection shows what waits in the journal."""
    proj, store = made(make_proj, journal_url)
    worker = proj.worker(pool="solo")
    proj.await_answers()
    begun = time()
    near, far, kept = (proj.send("record", countdown=seconds) for seconds in (600, 9 * DAY_S, 10 * DAY_S))
    inspect = proj.app.control.inspect(destination=[worker.node], timeout=10)
    found = inspect.scheduled()[worker.node]
    assert [task["request"]["id"] for task in found] == [near.id, far.id, kept.id]
    assert inspect.query_task(far.id)[worker.node][far.id][0] == "scheduled"
    [answer] = proj.app.control.revoke([near.id, far.id], reply=True, destination=[worker.node], timeout=20)
    assert answer[worker.node]["ok"].endswith("flagged as revoked")
    assert [row.id for row in store.journal.get([near.id, far.id, kept.id], None)] == [kept.id]
    assert in_redis(store, "celery") == []
    assert (near.state, far.state, kept.state) == ("REVOKED", "REVOKED", "PENDING")
    [left] = inspect.scheduled()[worker.node]
    assert left["request"]["id"] == kept.id
    assert store.journal.get([kept.id])[0].due_ms / 1000 == pytest.approx(begun + 10 * DAY_S, abs=60)
    assert "Traceback" not in worker.log
    store.close()


def test_a_stock_worker_discards_what_it_revoked_after_a_restore(make_proj: MakeProj, journal_url: str) -> None:
    """It knows the id of a task that comes back after a loss of Redis, and does not run it."""
    proj, store = made(make_proj, journal_url)
    Promoter(store).heartbeat()
    worker = make_proj(broker_transport="").worker(pool="solo")
    until(lambda: proj.app.control.ping(timeout=1))
    revoked, kept = (proj.send("record", name, countdown=600) for name in ("revoked", "kept"))
    proj.app.control.revoke(revoked.id, destination=[worker.node], reply=True, timeout=20)
    assert sorted(in_redis(store, "celery")) == sorted([revoked.id, kept.id]), "a stock worker looks into no store"

    proj.server.client().flushdb()
    promoter = Promoter(store).heartbeat()
    assert restored(store).restored == 2
    promoter.promote()
    assert sorted(in_redis(store, "celery")) == sorted([revoked.id, kept.id])
    for task in (revoked, kept):
        assert celery_ext.run_now(proj.app, task.id) == "transferred"
    until(lambda: revoked.state == "REVOKED")
    assert kept.get(timeout=20) == "kept"
    assert [run["value"] for run in proj.runs()] == ["kept"]
    assert f"Discarding revoked task: proj.record[{revoked.id}]" in worker.log
    store.close()
