"""``cancel`` in the far tier, beside a promotion: a task that is cancelled never runs, and any other does."""

import random
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import cancel
from celery_ext.spark.broker import Broker
from celery_ext.spark.errors import FarTierUnavailable, InvalidSparkOption, StragglerRefused
from celery_ext.spark.far.manifest import PROMOTION_MS, Unit
from celery_ext.spark.far.tier import FarTier
from celery_ext.spark.far_jobs.loading import Loader, Piece
from celery_ext.spark.options import WriteOptions
from kombu_delayq.store import DelayStore
from kombu_delayq.store.job_types import JobRun
from tests.support.spark.far import commit, waiting_ids
from tests.support.spark.landing import open_store

UUIDS = [f"{n:08x}-0b1d-4f6e-9a52-0123456789ab" for n in range(100)]


def _loader(server: PrivateRedis, store: DelayStore, path: Path, **options: Any) -> Loader:
    given = WriteOptions.parse({name: str(value) for name, value in options.items()})
    return Loader(FarTier.of(str(path)), Broker(server.url, None, {}), given, store.jobs.new_run(), PROMOTION_MS)


def _load(loader: Loader, units: Sequence[Unit]) -> None:
    """Promotes units as the driver and its only Spark task do."""
    loader.tier.mark("begun", units)
    loader.load([piece for unit in units for piece in Piece.of(unit)])


def _end(loader: Loader, store: DelayStore, units: Sequence[Unit]) -> None:
    for unit in units:
        assert store.jobs.finish(JobRun(unit.job, loader.run, PROMOTION_MS), "committed") == "committed"
    loader.tier.mark("done", units)
    loader.tier.files.delete(file.path for unit in units for file in unit.files)


def _sent(store: DelayStore) -> set[str]:
    return {str(message.id) for message in store.scan.browse("q", count=10_000).messages}


def test_words_at_each_stage_of_a_promotion(redis_server: PrivateRedis, tmp_path: Path) -> None:
    """Before it, while it runs, when it is committed and after it, a cancel finds the task where it is."""
    commit(tmp_path, [*UUIDS, "own id"])
    with open_store(redis_server) as store:
        store.client.flushall()
        [unit] = FarTier.of(str(tmp_path)).units()
        loader = _loader(redis_server, store, tmp_path)

        def words(*ids: str) -> list[str]:
            found = cancel(str(tmp_path), ids, broker_url=redis_server.url)
            assert list(found) == list(ids)
            return list(found.values())

        assert words(UUIDS[0], "own id", "unknown", UUIDS[0].upper()) == [
            "cancelled",
            "cancelled",
            *["not_delayed"] * 2,
        ]
        loader.tier.mark("begun", [unit])
        assert words(UUIDS[1]) == ["cancelled"]  # claimed before the job begins
        _load(loader, [unit])
        assert _sent(store) == set(UUIDS[2:])
        assert words(UUIDS[1], UUIDS[2]) == ["not_delayed", "cancelled"]
        _end(loader, store, [unit])
        assert words(UUIDS[3], UUIDS[0]) == ["cancelled", "not_delayed"]
        assert _sent(store) == set(UUIDS[4:])
        assert waiting_ids(tmp_path) == {}


@pytest.mark.parametrize("seed", range(3))
def test_a_race(redis_server: PrivateRedis, tmp_path: Path, seed: int) -> None:
    """While units are promoted, what a cancel calls cancelled never arrives, and all others do."""
    commit(tmp_path, UUIDS, hours=4)
    dice = random.Random(seed)
    words: dict[str, str] = {}
    with open_store(redis_server) as store:
        store.client.flushall()
        units = FarTier.of(str(tmp_path)).units()
        loader = _loader(redis_server, store, tmp_path, chunk_size=2)
        going = Event()

        def cancel_some() -> None:
            going.wait(10)
            for task_id in dice.sample(UUIDS, 40):
                words.update(cancel(str(tmp_path), [task_id], broker_url=redis_server.url))

        thread = Thread(target=cancel_some)
        thread.start()
        try:
            going.set()
            for unit in units:
                _load(loader, [unit])
                _end(loader, store, [unit])
        finally:
            thread.join(30)
        assert len(words) == 40
        assert _sent(store) == {task_id for task_id in UUIDS if words.get(task_id) != "cancelled"}
        assert set(words.values()) == {"cancelled"}  # none was due, so each waited somewhere


def test_a_later_promotion_takes_over(redis_server: PrivateRedis, tmp_path: Path) -> None:
    """Of two promotions, the earlier is refused from where the later has begun, and each row is sent once."""
    commit(tmp_path, UUIDS, hours=2)
    with open_store(redis_server) as store:
        store.client.flushall()
        units = FarTier.of(str(tmp_path)).units()
        first, second = (_loader(redis_server, store, tmp_path) for _ in range(2))
        _load(first, units[:1])
        _load(second, units[:1])
        with pytest.raises(StragglerRefused, match="goes on in a later run"):
            _load(first, units[:1])
        _end(second, store, units[:1])
        _load(first, units)  # of the first hour nothing is left to do
        assert store.client.zcard("delayq:{q}:due") == len(UUIDS)
        assert _sent(store) == set(UUIDS)


def test_a_lost_file_is_an_error(redis_server: PrivateRedis, tmp_path: Path) -> None:
    """Rows that nobody has sent are missed, unlike those of a unit that is promoted meanwhile."""
    [file] = commit(tmp_path, UUIDS).files
    (tmp_path / file.path).unlink()
    with open_store(redis_server) as store:
        store.client.flushall()
        with pytest.raises(FarTierUnavailable, match=r"file data/.* of the far tier is missing"):
            _load(_loader(redis_server, store, tmp_path), FarTier.of(str(tmp_path)).units())


def test_a_text_is_no_list_of_ids(tmp_path: Path) -> None:
    """A single id by mistake would be taken for its letters."""
    with pytest.raises(InvalidSparkOption, match="ids is a text"):
        cancel(str(tmp_path), UUIDS[0], broker_url="redis://127.0.0.1:1/0")
