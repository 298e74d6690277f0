"""An app, ``inspect`` and ``revoke`` over both places, and a database that does not answer."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from celery import Celery

from celery_ext import browse, cancel, count, get, reschedule, run_now
from celery_ext.connection import TRANSPORT
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.waiting.control import store_of_app
from celery_ext.worker import remote_control
from kombu_delayq.store import WaitingStore

DAY_S = 86_400


def app_of(server: PrivateRedis, url: str) -> Celery:
    return Celery(broker=server.url, broker_transport=TRANSPORT, broker_transport_options={"journal_url": url})


def test_an_app_sees_one_backlog(own_server: PrivateRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All functions of an app, and the listing of a worker, take near and far tasks alike, the next due first."""
    app = app_of(own_server, f"sqlite:///{tmp_path}/journal.db")
    days = [40, 0.01, 3]
    ids = [app.send_task("t", args=[n], countdown=n * DAY_S, ignore_result=True).id for n in days]
    in_order = [ids[1], ids[2], ids[0]]
    assert [task.id for task in browse(app, "celery")] == [task.id for task in browse(app)] == in_order
    assert count(app) == 3
    with store_of_app(app) as store:

        def opened(consumer: object) -> WaitingStore:
            return store

        monkeypatch.setattr(remote_control, "store_of_consumer", opened)
        queues = [SimpleNamespace(name="celery")]
        state = SimpleNamespace(consumer=SimpleNamespace(task_consumer=SimpleNamespace(queues=queues)))
        assert [row["request"]["id"] for row in remote_control.scheduled(state)] == in_order
        assert remote_control.query_task(state, ids).keys() == set(ids)
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
    assert count(app) == 0
    with store_of_app(app) as store:
        assert own_server.client().zcard(store.keys.cancelled) == 0  # no chain was among them


def test_without_the_database_nothing_is_half_done(own_server: PrivateRedis, tmp_path: Path) -> None:
    """If the database does not answer, a cancel of what is in Redis says so, and the task goes on waiting."""
    app = app_of(own_server, f"sqlite:///{tmp_path}/journal.db")
    sent = app.send_task("t", countdown=600, ignore_result=True)
    (tmp_path / "away").write_text("no database " * 100)
    away = app_of(own_server, f"sqlite:///{tmp_path}/away")
    with store_of_app(away) as store:
        errors = store.database_errors
    for act in (cancel, run_now, get):
        with pytest.raises(errors):
            act(away, sent.id)
    assert get(app, sent.id) is not None
