"""``celery_ext.waiting.by_id``: operations by task id that take several calls of the store."""

from collections.abc import Sequence
from typing import Any

import pytest

from celery_ext.waiting import Cancelled, by_id
from kombu_delayq.message.fields import CHAIN_ID
from kombu_delayq.store import DelayStore
from kombu_delayq.store.chains import CancelledChains
from kombu_delayq.store.lookup import MAX_DUPLICATES
from kombu_delayq.store.types import Offer
from tests.support.store.cost import round_trips
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, clock_ms, waiting
from tests.support.store.layouts import hash_only

CANCELLED = "{delayq}:cancelled"


def of_chain(identity: str, due_ms: float = FUTURE_MS) -> Offer:
    return waiting(identity, due_ms, f'{{"properties": {{"{CHAIN_ID}": "token"}}}}')


def cancel(store: DelayStore, *ids: str) -> dict[str, str]:
    return {each.id: each.outcome for each in by_id.cancel(store, ids)}


def noted(store: DelayStore) -> list[bytes]:
    return list(store.client.zrange(CANCELLED, 0, -1))


def test_all_messages_of_an_id_are_cancelled_however_many(store: DelayStore) -> None:
    """Of an id with more messages than a call removes none is left, also when the first one has left already."""
    store.delivery.offer(
        "q", waiting("i", PAST_MS, "first"), *(waiting("i", body=str(n)) for n in range(2 * MAX_DUPLICATES + 10))
    )
    store.delivery.offer("other", *(waiting("i", FUTURE_MS + n, str(n)) for n in range(3)))
    store.delivery.transfer("q")
    [cancelled] = by_id.cancel(store, ["i"])
    assert (cancelled.id, len(set(cancelled.messages))) == ("i", 2 * MAX_DUPLICATES + 13)
    assert store.queues.size("q") == store.queues.size("other") == 0
    assert list(by_id.cancel(store, ["i"])) == [Cancelled("i", [])]


def test_a_cancelled_step_that_was_delivered_twice_has_no_successor(store: DelayStore) -> None:
    """When the next step of a chain is cancelled, a second run of the one before cannot offer it again.

    An id of a task without a delay chain is forgotten at once.
    """
    store.chains.step("q", "token", of_chain("step"))
    store.delivery.offer("q", waiting("task"))
    assert cancel(store, "step", "task") == {"step": "cancelled", "task": "cancelled"}
    assert store.chains.step("q", "token", of_chain("step")) == "cancelled"
    assert noted(store) == [b"step"]


@pytest.mark.parametrize("queues", ["ab", "ba", "aa"])
def test_a_task_and_a_step_of_one_id_are_both_ended(store: DelayStore, queues: str) -> None:
    """Where a task without a chain and a step share an id, in whichever queues, both go, and no step comes after."""
    store.chains.step(queues[0], "token", of_chain("i"))
    store.delivery.offer(queues[1], waiting("i"))
    [cancelled] = by_id.cancel(store, ["i"])
    assert len(cancelled.messages) == 2
    for queue in "abc":
        assert store.chains.step(queue, "token", of_chain("i")) == "cancelled"


def test_a_step_that_comes_between_two_queues_is_ended(store: DelayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an id that a task and a chain share, a step that is stored before the chain is refused again is found."""
    store.chains.step("b", "token", of_chain("i"))
    store.delivery.offer("a", waiting("i"))
    refuse, calls = store.chains.cancel_chains, []

    def refuse_after_a_step(ids: Sequence[str], **options: Any) -> CancelledChains:
        calls.append(ids)
        if len(calls) == 2:  # the message of queue a took the first refusal back
            store.chains.accept(ids)
            assert store.chains.step("a", "token", of_chain("i")) == "first"
        return refuse(ids, **options)

    monkeypatch.setattr(store.chains, "cancel_chains", refuse_after_a_step)
    [cancelled] = by_id.cancel(store, ["i"])
    assert len(cancelled.messages) == 3
    assert store.queues.size("a") == store.queues.size("b") == 0
    assert store.chains.step("a", "token", of_chain("i")) == "cancelled"


def test_a_step_for_a_new_queue_is_found_or_refused(store: DelayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is stored just before its chain is refused, in a queue that nobody knew of, is cancelled."""
    refuse = store.chains.cancel_chains

    def refuse_after_a_step(ids: Sequence[str], **options: Any) -> CancelledChains:
        store.chains.step("new queue", "token", of_chain("i"))
        return refuse(ids, **options)

    monkeypatch.setattr(store.chains, "cancel_chains", refuse_after_a_step)
    assert cancel(store, "i") == {"i": "cancelled"}
    assert store.queues.size("new queue") == 0


def test_a_chain_whose_step_has_left_is_told_from_an_unknown_id(store: DelayStore) -> None:
    """While a step runs, the outcome is that the chain has ended, as often as one asks; the next step is refused.

    When a step was refused or removed, nothing of the chain is left, and the id is as any other.
    """
    store.chains.step("q", "token", of_chain("i", clock_ms(store.client) - 1))
    assert store.delivery.transfer("q").moved == 1
    assert cancel(store, "i", "unknown") == {"i": "chain_ended", "unknown": "not_delayed"}
    assert cancel(store, "i") == {"i": "chain_ended"}
    assert store.chains.step("q", "token", of_chain("i")) == "cancelled"
    assert cancel(store, "i") == {"i": "not_delayed"}
    store.chains.step("q", "token", of_chain("j"))
    assert [cancel(store, "j"), cancel(store, "j")] == [{"j": "cancelled"}, {"j": "not_delayed"}]


@hash_only
def test_a_cancel_costs_one_round_trip(make_store: MakeStore) -> None:
    """A task is removed from all queues at once, however many; what is not found, or a step, is refused then.

    The first cancel of a process reads which queues there are. Whoever has seen them all looks for a step once more.
    """
    store = make_store()
    for queue in ("a", "b", "c"):
        store.delivery.offer(queue, waiting(f"task in {queue}"), waiting("shared", body=queue))
    cancel(make_store(), "compiled")  # Redis knows the scripts
    assert round_trips(store, lambda: cancel(store, "shared")) == 3
    for used in (False, True):
        if used:
            store.chains.use_chains()
        store.chains.step("b", "token", of_chain("step"))
        store.delivery.offer("b", waiting("task in b"))
        for each, expected in (("unknown", 2), ("task in b", 1), ("step", 4), ("unknown", 2)):
            assert round_trips(store, lambda each=each: cancel(store, each)) == expected, each
        store.chains.accept(["step"])
    assert round_trips(store, lambda: cancel(store, "task in a", "task in c")) == 1


def test_a_queue_that_is_new_to_a_process_is_searched(store: DelayStore, make_store: MakeStore) -> None:
    """What another process has sent to another queue is cancelled, with what has the same id in a known one."""
    store.delivery.offer("q", waiting("i"), waiting("other"))
    assert cancel(store, "other") == {"other": "cancelled"}
    make_store().delivery.offer("new", waiting("i", body="in another queue"))
    [cancelled] = by_id.cancel(store, ["i"])
    assert sorted(message.queue for message in cancelled.messages) == ["new", "q"]
    assert (noted(store), store.queues.size("q"), store.queues.size("new")) == ([], 0, 0)


def test_a_queue_that_cannot_be_searched_any_more_hides_no_other(store: DelayStore) -> None:
    """Where a key of a known queue has another type meanwhile, what waits elsewhere is cancelled all the same."""
    for queue in ("p", "q"):
        store.delivery.offer(queue, waiting(f"first in {queue}"), waiting(f"in {queue}"))
    assert cancel(store, "first in p") == {"first in p": "cancelled"}
    store.client.delete(*store.client.keys("*{p}*"))
    for key in store.client.keys("*"):
        if b"{q}" in key and store.client.type(key) == b"zset":
            store.client.set(key.replace(b"{q}", b"{p}"), "text")
    assert cancel(store, "in q", "in p") == {"in q": "cancelled", "in p": "not_delayed"}
