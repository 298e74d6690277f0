"""Messages that wait in the journal are read beside those in Redis, each once, also while they are promoted."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.journal import JournaledStore
from celery_ext.spark.read import batch
from kombu_delayq.options import Options
from kombu_delayq.store.scan import Scan
from kombu_delayq.store.types import Offer
from tests.support.messages import task_message
from tests.support.spark.reading import FUTURE_MS, Row, fill, reader_of, rows_of, store_of


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


@pytest.fixture
def journaled(redis_server: PrivateRedis, client: redis.Redis, url: str) -> Iterator[JournaledStore]:
    store = JournaledStore(redis.Redis(port=redis_server.port), None, (0, 3, 6, 9), Options(journal_url=url))
    yield store
    store.close()


def read(server: PrivateRedis, url: str, **options: Any) -> list[Row]:
    """Returns the rows of all partitions."""
    reading = reader_of(server, broker_transport_options=json.dumps({"journal_url": url}), **options)
    return [row for part in reading.partitions() for row in rows_of(reading, part)]


def test_a_row_is_the_same_in_the_journal_and_in_redis(
    redis_server: PrivateRedis, journaled: JournaledStore, url: str
) -> None:
    """Messages of any priority have the same columns in the journal as in Redis; only ``layout`` differs."""
    offers = [
        Offer(f"t-{n}", repr(FUTURE_MS + n), n % 10, json.dumps(task_message((n,), task_id=f"t-{n}")))
        for n in range(20)
    ]
    journaled.delivery.offer("q", *offers)
    found = read(redis_server, url, page_size=7)
    assert {row.pop("layout") for row in found} == {"journal"}
    plain = store_of(redis_server)
    plain.delivery.offer("q", *offers)
    reading = reader_of(redis_server)
    in_redis = [row for part in reading.partitions() for row in rows_of(reading, part)]
    assert {row.pop("layout") for row in in_redis} == {"hash"}
    assert found == in_redis
    plain.close()


@pytest.mark.parametrize("partitions", [1, 3])
def test_windows_have_both_tiers(
    redis_server: PrivateRedis, journaled: JournaledStore, url: str, partitions: int
) -> None:
    """However due times are cut, each message of Redis and of the journal is read once, in queues of either."""
    plain = store_of(redis_server)
    near = fill(plain, "q", 30, same=4) + fill(plain, "only-redis", 10)
    far = fill(journaled, "q", 30, same=4, prefix="far") + fill(journaled, "only-journal", 10, prefix="another")
    found = read(redis_server, url, partitions=partitions, page_size=7)
    assert sorted(row["task_id"] for row in found) == sorted(near + far)
    assert {row["task_id"] for row in found if row["layout"] == "journal"} == set(far)
    plain.close()


def test_ids_are_asked_for_only_where_the_journal_has_messages(
    redis_server: PrivateRedis, journaled: JournaledStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids, which may cost a round trip a page, tell what has come to Redis; with an empty journal that is nothing."""
    plain = store_of(redis_server)
    fill(plain, "q", 30)
    monkeypatch.setattr(Scan, "ids", None)
    assert len(read(redis_server, url, columns="due", page_size=7)) == 30
    plain.close()


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_a_row_that_is_promoted_meanwhile_is_read_once(
    redis_server: PrivateRedis, journaled: JournaledStore, url: str, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a row moves to Redis before, while or after its page is read, it is one row of the DataFrame."""
    monkeypatch.setattr(batch, "BATCH_ROWS", 7)
    far = fill(journaled, "q", 30, prefix="far")
    plain = store_of(redis_server)
    near = fill(plain, "q", 20)
    reading = reader_of(
        redis_server, broker_transport_options=json.dumps({"journal_url": url}), partitions=1, page_size=7
    )
    found = []
    for part in reading.partitions():
        for number, each in enumerate(reading.read(part)):
            found += each["task_id"].to_pylist()
            if number == batches:
                rows = journaled.journal.promotable(FUTURE_MS + 100, 100)
                plain.delivery.offer("q", *(Offer(row.id, repr(row.due_ms), row.priority, row.body) for row in rows))
                journaled.journal.mark([row.seq for row in rows])
    assert sorted(found) == sorted(near + far)
    plain.close()
