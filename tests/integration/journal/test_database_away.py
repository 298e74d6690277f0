"""Publishers whose journal's database is away."""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from celery import Celery
from kombu.exceptions import OperationalError

from celery_ext import cancel
from celery_ext.connection import TRANSPORT
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.journal import database, messages
from celery_ext.journal.database import Database
from celery_ext.journal.deadlines import deadline
from celery_ext.journal.errors import DatabaseUnavailable
from celery_ext.journal.journal import Journal
from celery_ext.journal.state import state_of
from tests.support.conditions import until, until_equal
from tests.support.journal.stores import DAY_MS, in_redis, journaled, offer
from tests.support.servers.postgres import PrivatePostgres
from tests.support.store.keyspace import clock_ms
from tests.support.workers.harness import MakeProj

DAY_S = 86_400
#: Ends all connections of journals.
CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'delayq'"


@pytest.fixture
def app(redis_server: PrivateRedis, own_postgres: PrivatePostgres) -> Iterator[Celery]:
    """An app with a journal in a PostgreSQL of its own, which it knows already."""
    app = Celery(broker=redis_server.url, broker_transport=TRANSPORT)
    app.conf.broker_transport_options = {"journal_url": own_postgres.url}
    _send(app)
    yield app
    app.close()
    database.engine_of(database.parse_url(own_postgres.url)).dispose()


def _send(app: Celery, **options: object) -> str:
    return str(app.send_task("remind", countdown=40 * DAY_S, ignore_result=True, **options).id)


def test_a_restart_of_the_database_delays_publishers(
    app: Celery, own_postgres: PrivatePostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is away, who publishes far tasks or cancels waits a moment, and gets the error Celery's users know."""
    monkeypatch.setattr(database, "AWAY_S", 0.1)
    own_postgres.stop()
    for retry in (True, False):
        with pytest.raises(OperationalError, match="the journal's database"):
            _send(app, retry=retry)
    with pytest.raises(OperationalError, match="the journal's database"):
        cancel(app, "some-id")
    app.send_task("remind", countdown=60, ignore_result=True)  # which is near, and needs no database
    journal = Journal(own_postgres.url)
    with pytest.raises(DatabaseUnavailable) as caught:
        journal.count("celery")
    assert isinstance(caught.value, ConnectionError)
    monkeypatch.setattr(database, "AWAY_S", 60.0)  # however slowly PostgreSQL starts here
    monkeypatch.setattr(Database, "_limited", lambda self: deadline(60.0))
    with ThreadPoolExecutor(1) as threads:
        sent = threads.submit(_send, app)
        own_postgres.start()
        assert [row.id for row in journal.get([sent.result()])] == [sent.result()]


def test_a_connection_that_is_cut_is_no_error_of_a_publisher(
    app: Celery, own_postgres: PrivatePostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is cut between two calls is replaced, and kombu repeats a call whose transaction is cut: a row each."""
    insert, cuts = messages.insert_new, list[object]()

    def insert_and_cut(*args: Any) -> Any:
        made = insert(*args)
        if not cuts:
            cuts.extend(own_postgres.execute(CUT))
        return made

    until(lambda: not own_postgres.execute(CUT))
    sent = [_send(app, retry=False)]
    monkeypatch.setattr(messages, "insert_new", insert_and_cut)
    sent.append(_send(app))
    assert cuts
    assert [row.id for row in Journal(own_postgres.url).get(sent)] == sent


@pytest.mark.parametrize("journal", ["far", "all"])
def test_a_database_that_is_read_only_is_away_for_who_writes(
    app: Celery, own_postgres: PrivatePostgres, journal: str
) -> None:
    """Such as after a failover, who publishes or cancels gets the error Celery's users know, with what it says."""
    app.conf.broker_transport_options = {"journal_url": own_postgres.url, "journal": journal}
    sent = _send(app)
    own_postgres.execute("ALTER DATABASE postgres SET default_transaction_read_only = on")
    own_postgres.execute(CUT)
    with pytest.raises(OperationalError, match=r"the journal's database does not take a message: .*read-only"):
        _send(app)
    with pytest.raises(OperationalError, match=r"the journal's database: .*read-only"):
        cancel(app, sent)
    assert [row.id for row in Journal(own_postgres.url).get([sent])] == [sent]


@pytest.mark.timeout(120)
def test_a_database_that_hangs_ends_calls_and_stops_no_consumer(
    app: Celery,
    redis_server: PrivateRedis,
    own_postgres: PrivatePostgres,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Publishers get the error, early messages wait in Redis and ask no more, and the state says that it is away."""
    store = journaled(redis_server.port, {"journal_url": own_postgres.url, "journal": "far"})
    store.client.flushall()
    now_ms = clock_ms(store.client)
    until(lambda: state_of(store).error is None)
    own_postgres.hang()
    with monkeypatch.context() as patch:
        patch.setattr(Database, "_limited", lambda self: deadline(1.0))  # a call waits less long than it would
        with pytest.raises(OperationalError, match="the journal's database"):
            _send(app)
        with caplog.at_level(logging.WARNING):
            for number in range(40):
                early = offer(f"early-{number}", now_ms + 9 * DAY_MS)
                assert store.delivery.adopt("q", early, "") in ("first", "behind")
        assert (len(in_redis(store)), caplog.text.count("the journal does not take a message")) == (40, 1)
        assert state_of(store).error is not None
    own_postgres.go_on()
    assert _send(app)
    until(lambda: state_of(store).error is None)
    store.close()


@pytest.mark.timeout(180)
def test_a_worker_goes_on_while_the_database_hangs(make_proj: MakeProj, own_postgres: PrivatePostgres) -> None:
    """Far tasks of a stock publisher, a revoke and plain tasks reach a worker: the plain tasks run."""
    options = {"journal_url": own_postgres.url}
    proj = make_proj(broker_transport_options=options)
    stock = make_proj(broker_transport="")
    worker = proj.worker(pool="threads")
    assert Journal(own_postgres.url).count("celery") == 0
    own_postgres.hang()
    for value in range(40):
        stock.send("record", "far", countdown=40 * DAY_S)
        stock.send("record", value)
    proj.app.control.revoke("some-id")
    runs = proj.await_runs(40, 60)
    assert {run["value"] for run in runs} == set(range(40))
    until_equal(proj.lengths, (40, 40))
    own_postgres.go_on()
    assert worker.stop() == 0
