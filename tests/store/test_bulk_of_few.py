"""``Bulk`` where few of many messages are meant."""

from typing import Any

import pytest

from celery_ext.waiting import Bulk, BulkAction, Selection, take_snapshot
from celery_ext.waiting.bulk import IDS_A_CALL
from kombu_delayq.store import DelayStore
from tests.store.test_bulk import task
from tests.support.store.keyspace import FUTURE_MS


def test_few_of_many_are_changed_in_few_calls(store: DelayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of several pages are read and changed together."""
    count = 3 * IDS_A_CALL[store.layout]
    names = ["shop.few" if n % 100 == 0 else "shop.many" for n in range(count)]
    offers = [task(f"{n:04}", FUTURE_MS + n, name) for n, name in enumerate(names)]
    for start in range(0, count, 100):
        store.delivery.offer("q", *offers[start : start + 100])
    snapshot = take_snapshot(store, Selection(task="shop.few"))
    assert snapshot is not None
    calls: list[int] = []
    discard = store.lookup.discard

    def counted(queue: str, messages: Any) -> list[str]:
        calls.append(len(messages))
        return discard(queue, messages)

    monkeypatch.setattr(store.lookup, "discard", counted)
    bulk = Bulk(snapshot, BulkAction("cancel"))
    assert bulk.run(store)
    assert bulk.outcomes == {"cancelled": count // 100 + (count % 100 > 0)}
    assert calls == [bulk.done]
    assert store.queues.size("q") == count - bulk.done
