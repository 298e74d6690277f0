"""The store of two has all that the Redis store has."""

from pathlib import Path

import pytest
from redis import Redis

from celery_ext.journal import JournaledStore
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys

REDIS = DelayStore(Redis())
PARTS = [name for name in vars(REDIS) if not name.startswith("_") and name not in ("client", "keys", "options")]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> JournaledStore:
    """A store of two that has connected to nothing."""
    path: Path = tmp_path_factory.mktemp("journal") / "j.db"
    return JournaledStore(Redis(), Keys(), (0, 3, 6, 9), Options(journal_url=f"sqlite:///{path}"))


@pytest.mark.parametrize("part", PARTS)
def test_each_part_has_the_operations_of_the_redis_store(both: JournaledStore, part: str) -> None:
    """A part of the store of two has each public operation of the same part of the Redis store."""
    of_redis = {name for name in dir(getattr(REDIS, part)) if not name.startswith("_")}
    assert not of_redis - set(dir(getattr(both, part)))
