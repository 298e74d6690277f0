"""Messages of the far tier are read beside those in Redis, each once, also while a promotion runs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark.far.manifest import Manifest, Unit
from celery_ext.spark.far.rows import offers_of
from celery_ext.spark.far.schema import TOMBSTONE_SCHEMA
from celery_ext.spark.far.tier import FarTier
from celery_ext.spark.read import far
from celery_ext.spark.read.schema import COLUMNS
from kombu_delayq.store import DelayStore
from kombu_delayq.store.job_types import JobRun
from tests.support.spark.far import HOUR_MS, commit
from tests.support.spark.reading import Row, fill, reader_of, rows_of, store_of

IDS = [f"00000000-0000-4000-8000-{n:012}" for n in range(40)]
#: Rows that a promotion has at a time when this test looks.
HALF = 20


@pytest.fixture
def store(redis_server: PrivateRedis, client: redis.Redis) -> Iterator[DelayStore]:
    store = store_of(redis_server)
    yield store
    store.close()


@pytest.fixture
def tier(tmp_path: Path) -> FarTier:
    """A tier with 40 rows of two hours."""
    commit(tmp_path, IDS, hours=2)
    return FarTier.of(str(tmp_path))


def read(server: PrivateRedis, tier: FarTier, **options: Any) -> list[Row]:
    """Returns the rows of all partitions."""
    reading = reader_of(server, far=tier.files.url, **options)
    return [row for part in reading.partitions() for row in rows_of(reading, part)]


def ids(rows: list[Row]) -> list[str]:
    return sorted(row["task_id"] for row in rows)


def send(store: DelayStore, tier: FarTier, unit: Unit, some: slice = slice(None)) -> list[str]:
    """Sends rows of a unit to Redis as a promotion does. Returns their ids."""
    tier.mark("begun", [unit])
    job = JobRun(unit.job, store.jobs.new_run(), 60_000)
    store.jobs.begin(job)
    sent = []
    for file in unit.files:
        table = tier.table(file)
        assert table is not None
        for queue, offers in offers_of(table, unit.manifest.id).items():
            store.jobs.enqueue(queue, job, offers[some])
            sent += [str(offer.id) for offer in offers[some]]
    return sent


def end(store: DelayStore, tier: FarTier, unit: Unit) -> None:
    """Ends a promotion."""
    assert store.jobs.finish(JobRun(unit.job, 0, 60_000), "committed") == "committed"
    tier.mark("done", [unit])
    tier.files.delete([file.path for file in unit.files])


def promote(store: DelayStore, tier: FarTier) -> None:
    """Promotes all units."""
    for unit in tier.units():
        send(store, tier, unit)
        end(store, tier, unit)


def test_a_row_is_the_same_before_and_after_its_promotion(
    redis_server: PrivateRedis, store: DelayStore, tier: FarTier
) -> None:
    """All columns but ``layout`` have the same values while a row is in the files and when it is in Redis."""
    before = {row["task_id"]: row for row in read(redis_server, tier)}
    assert {row.pop("layout") for row in before.values()} == {"far"}
    for name in COLUMNS.keys() - {"layout"}:
        alone = [row[name] for row in read(redis_server, tier, columns=name)]
        assert sorted(alone) == sorted(row[name] for row in before.values()), name
    promote(store, tier)
    after = {row["task_id"]: row for row in read(redis_server, tier)}
    assert {row.pop("layout") for row in after.values()} == {"hash"}
    assert before == after
    assert sorted(before) == IDS


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_rows_of_both_tiers_are_in_one_partition_each(
    redis_server: PrivateRedis, store: DelayStore, tier: FarTier, partitions: int
) -> None:
    """However the due times are cut, each message of Redis and of the files is read once."""
    near = fill(store, "q", 30, first_ms=2e12) + fill(store, "r", 30, same=5, first_ms=2e12 + 86_400_000 + HOUR_MS)
    found = read(redis_server, tier, partitions=partitions, page_size=7)
    assert ids(found) == sorted([*near, *IDS])
    assert {row["layout"] for row in found} == {"hash", "far"}


def test_queue_and_due_time_bound_what_is_read(redis_server: PrivateRedis, store: DelayStore, tier: FarTier) -> None:
    """Options that select messages hold for the files too: the lower bound is in, the upper is out."""
    due = sorted(row["due"] for row in read(redis_server, tier))
    found = read(redis_server, tier, due_after=due[3].isoformat(), due_before=due[30].isoformat())
    assert sorted(row["due"] for row in found) == due[3:30]
    assert len(read(redis_server, tier, queue="q,other")) == len(IDS)
    assert read(redis_server, tier, queue="other") == []


def test_what_is_cancelled_in_the_files_is_not_read(
    redis_server: PrivateRedis, store: DelayStore, tier: FarTier
) -> None:
    """Rows with tombstones are left out."""
    unit = tier.units()[0]
    [table] = [tier.table(file) for file in unit.files]
    assert table is not None
    gone = [str(offer.id) for offers in offers_of(table, unit.manifest.id).values() for offer in offers][:3]
    tier.bury(unit.hour, TOMBSTONE_SCHEMA.empty_table().from_pydict({"manifest": [unit.manifest.id] * 3, "id": gone}))
    assert ids(read(redis_server, tier)) == sorted(set(IDS) - set(gone))


def test_what_has_left_redis_during_a_promotion_waits_no_more(
    redis_server: PrivateRedis, store: DelayStore, tier: FarTier
) -> None:
    """Of a promotion that was killed, what Redis was given is read there, unless it was cancelled or delivered."""
    sent = send(store, tier, tier.units()[0], slice(HALF // 2))
    store.lookup.cancel(["q"], sent[:4])
    found = read(redis_server, tier)
    assert ids(found) == sorted(set(IDS) - set(sent[:4]))
    assert {row["task_id"] for row in found if row["layout"] == "hash"} == set(sent[4:])


@pytest.mark.parametrize("batches", range(7))
def test_a_message_is_read_once_while_it_is_promoted(
    redis_server: PrivateRedis, store: DelayStore, tier: FarTier, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever a promotion begins and ends during the reading, each message is read once."""
    monkeypatch.setattr(far, "BATCH_ROWS", 7)
    near = fill(store, "q", 30, first_ms=2e12)
    steps = _steps(store, tier)

    def found() -> Iterator[str]:
        reading = reader_of(redis_server, far=tier.files.url, partitions=1)
        for part in reading.partitions():
            for number, batch in enumerate(reading.read(part)):
                yield from batch["task_id"].to_pylist()
                if number >= batches:
                    next(steps, lambda: None)()

    assert sorted(found()) == sorted([*near, *IDS])


def _steps(store: DelayStore, tier: FarTier) -> Iterator[Callable[[], Any]]:
    """Yields what a promotion does, step by step."""
    for unit in tier.units():
        yield lambda unit=unit: send(store, tier, unit, slice(HALF // 2))
        yield lambda unit=unit: send(store, tier, unit)
        yield lambda unit=unit: end(store, tier, unit)


def test_a_plan_has_rows_of_jobs_that_come_later(
    redis_server: PrivateRedis, store: DelayStore, tier: FarTier, tmp_path: Path
) -> None:
    """A DataFrame that is used again has what another job has written meanwhile."""
    reading = reader_of(redis_server, far=tier.files.url, partitions=2)
    planned = reading.partitions()
    later: Manifest = commit(tmp_path, ["later-1", "later-2"], job="another")
    found = [row["task_id"] for part in planned for row in rows_of(reading, part)]
    assert later.rows == 2
    assert sorted(found) == sorted([*IDS, "later-1", "later-2"])
