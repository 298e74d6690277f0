"""``celery_ext.backlog``: operations by task id that take several calls of the store."""

from collections.abc import Sequence

import pytest

from celery_ext import backlog
from kombu_delayq.message import CHAIN_ID
from kombu_delayq.store import DelayStore
from kombu_delayq.waiting import MAX_TWINS
from tests.lua.keyspace import FUTURE_MS, PAST_MS, waiting


def test_all_messages_of_an_id_are_cancelled_however_many(store: DelayStore) -> None:
    """Of an id with more messages than a call removes none is left, also when the first one has left already."""
    store.offer("q", waiting("i", PAST_MS, "first"), *(waiting("i", body=str(n)) for n in range(2 * MAX_TWINS + 10)))
    store.offer("other", *(waiting("i", FUTURE_MS + n, str(n)) for n in range(3)))
    store.transfer("q")
    [(identity, messages)] = backlog.cancel(store, ["i"])
    assert (identity, len(set(messages))) == ("i", 2 * MAX_TWINS + 13)
    assert store.size("q") == store.size("other") == 0
    assert list(backlog.cancel(store, ["i"])) == [("i", [])]


def test_a_cancelled_step_that_was_delivered_twice_has_no_successor(store: DelayStore) -> None:
    """When the next step of a chain is cancelled, a second run of the one before cannot offer it again.

    An id of a task without a delay chain is forgotten at once.
    """
    body = f'{{"properties": {{"{CHAIN_ID}": "token"}}}}'
    store.step("q", "token", waiting("step", body=body))
    store.offer("q", waiting("task"))
    assert [len(messages) for _, messages in backlog.cancel(store, ["step", "task"])] == [1, 1]
    assert store.step("q", "token", waiting("step", body=body)) == "cancelled"
    assert store.client.zrange(store.keys.cancelled, 0, -1) == [b"step"]


def test_a_step_for_a_new_queue_is_found_or_refused(store: DelayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is stored just before its chain is refused, in a queue that nobody knew of, is cancelled."""
    refuse = store.refuse

    def refuse_after_a_step(ids: Sequence[str]) -> int:
        store.step("new queue", "token", waiting("i", body=CHAIN_ID))
        return refuse(ids)

    monkeypatch.setattr(store, "refuse", refuse_after_a_step)
    assert [len(messages) for _, messages in backlog.cancel(store, ["i"])] == [1]
    assert store.size("new queue") == 0
