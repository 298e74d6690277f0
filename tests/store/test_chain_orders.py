"""A step of a delay chain against a cancel: their calls in each order, where each takes several."""

from collections.abc import Callable, Iterator

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.waiting import by_id
from kombu_delayq.cluster import SlotKeys
from kombu_delayq.message.fields import CHAIN_ID
from kombu_delayq.options import LAYOUTS, Options
from kombu_delayq.redis import scripts
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support.store.interleaved import each_order
from tests.support.store.keyspace import FUTURE_MS, waiting

CHAIN = "[chain]"


def step(number: int) -> Offer:
    """Makes a step of the chain ``i``."""
    return waiting("i", FUTURE_MS, f'{{"headers": {{"retries": {number}}}, "chain": "{CHAIN} {CHAIN_ID}"}}')


def stored(number: int) -> Callable[[DelayStore], str]:
    """Returns a caller that stores a step, as a worker whose task has failed. It returns the word."""
    return lambda store: store.chains.step("q", CHAIN, step(number))


def cancelled(store: DelayStore) -> str:
    """Cancels the chain, as ``delayq cancel``. Returns the outcome."""
    store.lookup._searched = frozenset()
    [done] = by_id.cancel(store, ["i"])
    return done.outcome


def cancelled_again(store: DelayStore) -> str:
    """Cancels the chain, as a process that has cancelled other tasks of this queue before. Returns the outcome."""
    store.lookup._searched = frozenset(("q",))
    [done] = by_id.cancel(store, ["i"])
    return done.outcome


def discarded(store: DelayStore) -> str:
    """Removes the step that it finds waiting, as a cancel of a selection. Returns the word."""
    [found] = store.lookup.get(["q"], ["i"]).get("i", [None])
    return "nothing" if found is None else store.lookup.discard("q", [(found, "i")])[0]


@pytest.fixture(params=LAYOUTS)
def store(server: PrivateRedis, request: pytest.FixtureRequest) -> Iterator[DelayStore]:
    """A store on it, in each layout. The server has the scripts, so that no call is made twice."""
    store = DelayStore(redis.Redis(port=server.port), SlotKeys(), options=Options(layout=request.param))
    for operation in ("check_chain", "cancel", "discard", "get", "cancel_chains", "undo_step", "step"):
        store.client.script_load(scripts.load(operation, request.param).text)
    yield store
    store.close()


def runs(store: DelayStore) -> None:
    """The first step of the chain runs."""
    assert store.chains.check_chain(step(1))


def waits(store: DelayStore) -> None:
    """The first step waits still, as its run was delivered twice."""
    assert store.chains.step("q", CHAIN, step(1)) == "first"


@pytest.mark.parametrize("cancel", [cancelled, cancelled_again])
def test_a_step_and_a_cancel_of_a_chain_that_runs(store: DelayStore, cancel: Callable[[DelayStore], str]) -> None:
    """Whoever comes first: after the cancel no step waits, either of both says so, and no further step comes."""
    seen = set()
    for order, (word, outcome) in each_order(store, runs, stored(2), cancel):
        seen.add((word, outcome))
        assert (store.queues.size("q"), stored(3)(store)) == (0, "cancelled"), order
    assert seen == {("first", "cancelled"), ("cancelled", "chain_ended")}


@pytest.mark.parametrize("cancel", [cancelled, cancelled_again])
def test_a_step_and_a_cancel_of_a_step_that_waits(store: DelayStore, cancel: Callable[[DelayStore], str]) -> None:
    """Where an earlier step waits still, the cancel removes that one, or the one that replaces it, or neither is left.

    The worker may have replaced the earlier step, and taken its own one back, before the cancel searches.
    """
    seen = set()
    for order, (word, outcome) in each_order(store, waits, stored(2), cancel):
        seen.add((word, outcome))
        assert (store.queues.size("q"), stored(3)(store)) == (0, "cancelled"), order
    ended = set() if cancel is cancelled_again else {("cancelled", "chain_ended")}  # it looks before it refuses, too
    assert seen == {("first", "cancelled"), ("cancelled", "cancelled")} | ended


def test_a_step_and_a_cancel_of_what_a_selection_found(store: DelayStore) -> None:
    """A step that is removed as it was read ends its chain; one that was replaced meanwhile leaves the chain alone."""
    seen = set()
    for order, (word, removed) in each_order(store, waits, stored(2), discarded):
        ended = removed == "cancelled"
        seen.add((word, removed))
        assert store.queues.size("q") == (0 if ended else 1), (order, word, removed)
        assert (stored(3)(store) == "cancelled") is ended, (order, word, removed)
    assert seen == {("first", "cancelled"), ("first", "changed"), ("cancelled", "cancelled")}
