"""Servers that go away and come back: what is a loss, and what is not."""

import logging
import signal
from pathlib import Path

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.journal import JournaledStore
from celery_ext.journal.worker import JournalWorker
from tests.support.conditions import until
from tests.support.journal.stores import HOUR_MS, MakeJournaled, Promoter, in_redis, journaled, offer
from tests.support.servers.postgres import PrivatePostgres
from tests.support.store.keyspace import clock_ms

SQLITE = pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)


@SQLITE
def test_a_failover_is_no_loss(make_journaled: MakeJournaled, own_server: PrivateRedis) -> None:
    """A replica that has everything and becomes the primary goes on in the epoch."""
    own_server.client().config_set("repl-diskless-sync-delay", 0)
    with PrivateRedis() as replica:
        store, after = make_journaled(own_server, journal="all"), make_journaled(replica, journal="all")
        Promoter(store).heartbeat().heartbeat()
        store.delivery.offer("q", offer("a", clock_ms(store.client) + HOUR_MS))
        after.client.replicaof("127.0.0.1", str(own_server.port))
        until(lambda: after.client.info("replication").get("master_link_status") == "up")
        Promoter(store).heartbeat()
        assert store.client.wait(1, 5000) == 1
        own_server.stop(signal.SIGKILL)
        after.client.replicaof("NO", "ONE")
        Promoter(after).heartbeat()
        assert after.journal.epochs() == []
        assert in_redis(after) == ["a"]


def test_an_outage_of_the_database_is_logged_once(
    redis_server: PrivateRedis, postgres_server: PrivatePostgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """While the database is away a worker tries again and again; when it is there, it promotes."""
    caplog.set_level(logging.INFO)
    redis_server.client().flushall()
    url = postgres_server.make_schema().replace(str(postgres_server.directory), f"{tmp_path}/away")
    attempts: list[int] = []

    def connect() -> JournaledStore:
        attempts.append(1)
        return journaled(redis_server.port, {"journal_url": url, "lease_ttl": 0.5})

    worker = JournalWorker(connect)
    worker.start()
    try:
        until(lambda: len(attempts) >= 3)
        assert worker.down_since is not None
        (tmp_path / "away").symlink_to(postgres_server.directory)
        until(lambda: worker.leading and worker.down_since is None)
    finally:
        worker.stop()
    said = [record.getMessage() for record in caplog.records if record.name.startswith("celery_ext.journal")]
    assert sum("because the journal's database cannot be used" in text for text in said) == 1
    assert sum(text.startswith("the journal goes on after") for text in said) == 1
