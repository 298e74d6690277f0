"""Apps whose tasks wait in a journal, workers that promote them, and servers that go away meanwhile."""

import json
import logging
import re
import signal
from pathlib import Path
from time import time

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.journal import JournaledStore, database
from celery_ext.journal.keys import JournalKeys
from celery_ext.journal.leadership import PromoterLeadership
from celery_ext.journal.worker import JournalWorker
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.types import Offer
from tests.support.conditions import until
from tests.support.journal.stores import (
    HOUR_MS,
    MakeJournaled,
    Promoter,
    body_of,
    delivered,
    in_redis,
    journaled,
    offer,
    restored,
)
from tests.support.servers.postgres import PrivatePostgres
from tests.support.store.keyspace import clock_ms
from tests.support.store.tuned import tuned
from tests.support.workers.fixtures import make_proj
from tests.support.workers.harness import MakeProj

__all__ = ["make_proj"]


@pytest.fixture
def layout() -> str:
    """The journal does not regard the layout."""
    return "hash"


@pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)
@pytest.mark.journey
def test_a_worker_promotes_what_it_is_to_run(make_proj: MakeProj, journal_url: str) -> None:
    """A far task waits in the journal, comes to Redis before it is due, and runs when it is due."""
    options = {"journal_url": journal_url, "journal_horizon": 2, "journal_lead": 1.5}
    proj = make_proj(broker_transport_options=options)
    proj.worker(pool="solo")
    begun = time()
    sent = proj.send("record", "far", countdown=6)
    store = journaled(proj.server.port, options)
    assert [row.id for row in store.journal.get([sent.id], None)] == [sent.id]  # one that is due soon has no row
    assert proj.delayed() >= 0
    [run] = proj.await_runs(1)
    assert run["at"] >= begun + 6
    until(lambda: not store.journal.get([sent.id]))
    [row] = store.journal.get([sent.id], None)
    assert row.state == 1
    store.close()


@pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)
def test_steps_of_delay_chains_come_back(make_journaled: MakeJournaled) -> None:
    """The step of a chain that waited comes back, and the next one takes its place as ever."""
    store = make_journaled(journal="all")
    Promoter(store).heartbeat()
    due_ms = clock_ms(store.client) + HOUR_MS / 4

    def step(retries: int) -> str:
        message = json.loads(body_of("task"))
        message["headers"]["retries"] = retries
        message["properties"]["chain_id"] = "the chain"
        return store.chains.step("q", "the chain", Offer("task", repr(due_ms), 0, json.dumps(message)))

    step(1)
    store.client.flushall()
    promoter = Promoter(store).heartbeat()
    assert restored(store).restored == 1
    promoter.promote()
    assert in_redis(store) == ["task"]
    assert step(1) == "waits"
    assert step(2) != "waits"
    assert in_redis(store) == ["task"]


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
        assert store.client.wait(1, 30_000) == 1
        own_server.stop(signal.SIGKILL)
        after.client.replicaof("NO", "ONE")
        Promoter(after).heartbeat()
        assert after.journal.epochs() == []
        assert in_redis(after) == ["a"]


def test_an_outage_of_the_database_is_logged_once(
    redis_server: PrivateRedis,
    postgres_server: PrivatePostgres,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the database is away a worker tries again and again, also without the lease; then it promotes."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(database, "AWAY_S", 0.1)
    url = postgres_server.make_schema().replace(str(postgres_server.directory), f"{tmp_path}/away")
    attempts: list[int] = []

    def connect() -> JournaledStore:
        attempts.append(1)
        return journaled(redis_server.port, {"journal_url": url, "lease_ttl": 0.5})

    worker, lease = JournalWorker(connect), JournalKeys(Keys()).journal_lease
    worker.start()
    try:
        until(lambda: len(attempts) >= 3)
        down_since = worker.down_since
        redis_server.client().set(lease, "another")
        until(lambda: len(attempts) >= 6)
        assert worker.down_since == down_since is not None
        (tmp_path / "away").symlink_to(postgres_server.directory)
        until(lambda: worker.down_since is None)
        assert not worker.leading
        redis_server.client().delete(lease)
        until(lambda: worker.leading and worker.down_since is None)
    finally:
        worker.stop()
    said = [record.getMessage() for record in caplog.records if record.name.startswith("celery_ext.journal")]
    assert sum("because the journal's database cannot be used" in text for text in said) == 1
    assert sum(text.startswith("the journal goes on after") for text in said) == 1


def test_what_redis_delivers_without_the_database_does_not_come_back(
    own_server: PrivateRedis, own_postgres: PrivatePostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A promoter still sees what leaves Redis, and tells the database once it is back, also after a loss of Redis."""
    monkeypatch.setattr(database, "AWAY_S", 0.1)
    looks, look_on = [0.0], PromoterLeadership.look_on

    def counted(self: PromoterLeadership, store: JournaledStore) -> None:
        look_on(self, store)
        looks.append(self.seen.moved_to_ms)

    monkeypatch.setattr(PromoterLeadership, "look_on", counted)
    options = {"journal_url": own_postgres.url, "journal": "all", "lease_ttl": 0.5, "poll_interval": 0.1}
    store, worker = journaled(own_server.port, options), JournalWorker(lambda: journaled(own_server.port, options))
    due_ms = clock_ms(store.client) + 2000
    store.delivery.offer("q", offer("delivered", due_ms), offer("waits", due_ms + HOUR_MS))
    worker.start()
    try:
        until(lambda: store.journal.watermarks().moved_to_ms)
        own_postgres.stop()
        until(lambda: delivered(store) == ["delivered"])
        until(lambda: looks[-1] > due_ms)
        store.client.flushall()
        own_postgres.start()
        until(lambda: len(store.journal.unrestored()) == 1, timeout_s=60.0)
    finally:
        worker.stop()
    assert store.journal.unrestored()[0].watermarks.moved_to_ms > due_ms
    assert restored(store)[:2] == (1, 1)
    store.close()
    database.engine_of(database.parse_url(own_postgres.url)).dispose()


def test_a_worker_names_the_key_that_ties_redis_to_a_journal(
    redis_server: PrivateRedis, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where Redis belongs to a journal that is gone, the log says what to delete, with the prefix of the keys."""

    def connect(name: str = "new") -> JournaledStore:
        options = tuned(journal_url=f"sqlite:///{tmp_path}/{name}.db", lease_ttl=2.0)
        return JournaledStore(redis_server.client(), Keys("shop:"), (0, 3, 6, 9), options)

    old = connect("old")
    Promoter(old).heartbeat()
    old.close()
    worker = JournalWorker(connect)
    worker.start()
    try:
        until(lambda: "nothing is promoted" in caplog.text)
        [key] = re.findall(r"delete the key (\S+)", caplog.text)
        assert redis_server.client().delete(key) == 1
        until(lambda: worker.leading)
    finally:
        worker.stop()
