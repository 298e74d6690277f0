"""The lines of the audit of ``delayq repair``."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from celery_ext.cli.commands import repair
from celery_ext.cli.commands.repair import check
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from tests.support.commands.repairs import message, offer
from tests.support.commands.shell import Audit, run
from tests.support.workers.held import KEYS


@pytest.fixture
def store(raw_client: redis.Redis) -> DelayStore:
    """A store with a body that has no index entry and no eta, and one that only lacks the entry."""
    store = DelayStore(raw_client, KEYS)
    store.delivery.offer("q", offer(0))
    raw_client.delete(KEYS.due("q"))
    raw_client.hset(KEYS.bodies("q"), "plain", message("plain"))
    return store


def test_each_mended_message_counts_once(broker: PrivateRedis, store: DelayStore, audit: Audit) -> None:
    """One without an eta is named as such, and is no further message; a dry run and a second repair leave no line."""
    for args in (("--dry-run",), ("--yes",), ("--yes",)):
        run(broker, "repair", *args, code=int("--dry-run" in args))
    [note] = audit()
    assert (note["action"], note["count"]) == ("repair", 2)
    assert note["what"] == {"queue": "q", "outcomes": {"unindexed": 2, "undated": 1}}


@pytest.mark.parametrize("error", [redis.ConnectionError("gone"), redis.ResponseError("WRONGTYPE")], ids=repr)
def test_a_repair_that_fails_half_way_is_noted(
    broker: PrivateRedis, store: DelayStore, monkeypatch: pytest.MonkeyPatch, error: Exception, audit: Audit
) -> None:
    """What it has mended by then is in the audit, whether the whole repair ends, or this queue is left."""

    def fails(store: DelayStore, findings: Any, *args: Any, **options: Any) -> Iterator[None]:
        yield from check(store, findings, *args, **options)
        if isinstance(error, redis.ConnectionError):
            raise error
        findings.error = str(error)

    monkeypatch.setattr(repair, "check", fails)
    run(broker, "repair", "--yes", code=1)
    [note] = audit()
    assert (note["action"], note["count"], note["what"].get("error")) == (
        "repair",
        2,
        "WRONGTYPE" if isinstance(error, redis.ResponseError) else None,
    )
