"""Publishers whose journal's database is away."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from celery import Celery
from kombu.exceptions import OperationalError

from celery_ext.connection import TRANSPORT
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.journal.table import Journal
from celery_ext.journal.table.database import engines
from celery_ext.journal.table.database.away import DatabaseAway
from tests.support.servers.postgres import PrivatePostgres

DAY_S = 86_400


@pytest.fixture
def app(redis_server: PrivateRedis, own_postgres: PrivatePostgres) -> Iterator[Celery]:
    """An app with a journal in a PostgreSQL of its own, which it knows already."""
    app = Celery(broker=redis_server.url, broker_transport=TRANSPORT)
    app.conf.broker_transport_options = {"journal_url": own_postgres.url}
    _send(app)
    yield app
    app.close()
    engines.engine_of(engines.parse_url(own_postgres.url)).dispose()


def _send(app: Celery, **options: object) -> str:
    return str(app.send_task("remind", countdown=40 * DAY_S, ignore_result=True, **options).id)


def test_a_restart_of_the_database_delays_publishers(
    app: Celery, own_postgres: PrivatePostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is away a publisher waits a moment, and then gets the error that Celery's users know."""
    monkeypatch.setattr(engines, "AWAY_S", 0.1)
    own_postgres.stop()
    for retry in (True, False):
        with pytest.raises(OperationalError, match="the journal's database"):
            _send(app, retry=retry)
    journal = Journal(own_postgres.url)
    with pytest.raises(DatabaseAway) as caught:
        journal.count("celery")
    assert isinstance(caught.value, ConnectionError)
    monkeypatch.setattr(engines, "AWAY_S", 60.0)  # however slowly PostgreSQL starts here
    with ThreadPoolExecutor(1) as threads:
        sent = threads.submit(_send, app)
        own_postgres.start()
        assert [row.id for row in journal.get([sent.result()])] == [sent.result()]
