"""An app, ``inspect`` and ``revoke`` over both places, and a database that does not answer."""

from pathlib import Path
from time import time
from types import SimpleNamespace

import pytest
from celery import Celery

import celery_ext
from celery_ext import cancel, get, reschedule, run_now, select
from celery_ext.connection import TRANSPORT
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.journal import JournaledStore
from celery_ext.journal.errors import JournalRefused
from celery_ext.waiting.control import store_of_app
from celery_ext.worker import remote_control
from kombu_delayq.store import DelayStore
from tests.support.conditions import until
from tests.support.journal.stores import Promoter, in_redis, journaled, restored
from tests.support.workers.harness import MakeProj, Proj

DAY_S = 86_400


def app_of(server: PrivateRedis, url: str) -> Celery:
    return Celery(broker=server.url, broker_transport=TRANSPORT, broker_transport_options={"journal_url": url})


def test_an_app_sees_one_backlog(own_server: PrivateRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All functions of an app, and the listing of a worker, take near and far tasks alike, the next due first."""
    app = app_of(own_server, f"sqlite:///{tmp_path}/journal.db")
    days = [40, 0.01, 3]
    ids = [app.send_task("t", args=[n], countdown=n * DAY_S, ignore_result=True).id for n in days]
    in_order = [ids[1], ids[2], ids[0]]
    assert [task.id for task in select(app, queues="celery")] == [task.id for task in select(app)] == in_order
    assert select(app).count() == 3
    with store_of_app(app) as store:

        def opened(consumer: object) -> DelayStore:
            return store

        monkeypatch.setattr(remote_control, "store_of_consumer", opened)
        queues = [SimpleNamespace(name="celery")]
        state = SimpleNamespace(consumer=SimpleNamespace(task_consumer=SimpleNamespace(queues=queues)))
        assert [row["request"]["id"] for row in remote_control.scheduled(lambda state: [], state)] == in_order
        assert remote_control.query_task(lambda state, ids: {}, state, ids).keys() == set(ids)
    assert reschedule(app, ids[0], countdown=50 * DAY_S) == "rescheduled"
    assert reschedule(app, ids[1], countdown=60 * DAY_S) == "rescheduled"
    found = [task for task in get(app, ids).values() if task is not None]
    assert sorted(task.message.layout for task in found) == [
        "hash",
        "journal",
        "journal",
    ]  # what is in Redis stays there
    assert run_now(app, ids[2]) == "rescheduled"  # no promoter was here yet
    assert cancel(app, ids) == dict.fromkeys(ids, "cancelled")
    assert select(app).count() == 0
    with store_of_app(app) as store:
        assert own_server.client().zcard(store.keys.cancelled) == 0  # no chain was among them


def test_without_the_database_nothing_is_half_done(own_server: PrivateRedis, tmp_path: Path) -> None:
    """If the database does not answer, a cancel of what is in Redis says so, and the task goes on waiting."""
    app = app_of(own_server, f"sqlite:///{tmp_path}/journal.db")
    sent = app.send_task("t", countdown=600, ignore_result=True)
    (tmp_path / "away").write_text("no database " * 100)
    away = app_of(own_server, f"sqlite:///{tmp_path}/away")
    for act in (cancel, run_now, get):
        with pytest.raises(JournalRefused):
            act(away, sent.id)
    assert get(app, sent.id) is not None


def made(make_proj: MakeProj, journal_url: str) -> tuple[Proj, JournaledStore]:
    """Makes an app whose delayed tasks all have rows, and a store beside it."""
    options = {"journal_url": journal_url, "journal": "all"}
    proj = make_proj(broker_transport_options=options)
    return proj, journaled(proj.server.port, options)


@pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)
def test_a_worker_removes_and_shows_tasks_of_the_journal(make_proj: MakeProj, journal_url: str) -> None:
    """Its revoke removes the rows of tasks, wherever these wait; its inspection shows what waits in the journal."""
    proj, store = made(make_proj, journal_url)
    worker = proj.worker(pool="solo")
    proj.await_answers()
    begun = time()
    near, far, kept = (proj.send("record", countdown=seconds) for seconds in (600, 9 * DAY_S, 10 * DAY_S))
    inspect = proj.app.control.inspect(destination=[worker.node], timeout=30)
    found = inspect.scheduled()[worker.node]
    assert [task["request"]["id"] for task in found] == [near.id, far.id, kept.id]
    assert inspect.query_task(far.id)[worker.node][far.id][0] == "scheduled"
    [answer] = proj.app.control.revoke([near.id, far.id], reply=True, destination=[worker.node], timeout=60)
    assert answer[worker.node]["ok"].endswith("flagged as revoked")
    assert [row.id for row in store.journal.get([near.id, far.id, kept.id], None)] == [kept.id]
    assert in_redis(store, "celery") == []
    assert (near.state, far.state, kept.state) == ("REVOKED", "REVOKED", "PENDING")
    [left] = inspect.scheduled()[worker.node]
    assert left["request"]["id"] == kept.id
    assert store.journal.get([kept.id])[0].due_ms / 1000 == pytest.approx(begun + 10 * DAY_S, abs=60)
    assert "Traceback" not in worker.log
    store.close()


@pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)
def test_a_stock_worker_discards_what_it_revoked_after_a_restore(make_proj: MakeProj, journal_url: str) -> None:
    """It knows the id of a task that comes back after a loss of Redis, and does not run it."""
    proj, store = made(make_proj, journal_url)
    Promoter(store).heartbeat()
    stock = make_proj(broker_transport="")
    worker = stock.worker(pool="solo")
    stock.await_answers()
    revoked, kept = (proj.send("record", name, countdown=600) for name in ("revoked", "kept"))
    proj.app.control.revoke(revoked.id, destination=[worker.node], reply=True, timeout=60)
    assert sorted(in_redis(store, "celery")) == sorted([revoked.id, kept.id]), "a stock worker looks into no store"

    proj.server.client().flushdb()
    promoter = Promoter(store).heartbeat()
    assert restored(store).restored == 2
    promoter.promote()
    assert sorted(in_redis(store, "celery")) == sorted([revoked.id, kept.id])
    for task in (revoked, kept):
        assert celery_ext.run_now(proj.app, task.id) == "transferred"
    until(lambda: revoked.state == "REVOKED")
    assert kept.get(timeout=60) == "kept"
    assert [run["value"] for run in proj.runs()] == ["kept"]
    assert f"Discarding revoked task: proj.record[{revoked.id}]" in worker.log
    store.close()
