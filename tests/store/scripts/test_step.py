"""``step.lua``: stores the next step of a delay chain, unless the chain was cancelled or a step of it waits."""

from math import inf

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support.conditions import until
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import FUTURE_MS, Ear, announced, clock_ms, kept_ms, look, only, waiting

CANCELLED, CHAINS = "{delayq}:cancelled", "{delayq}:chains"
CHAIN = "[chain 1]"


def step(identity: str = "i", due_ms: float = FUTURE_MS, number: int = 1, chain: str = CHAIN) -> Offer:
    return waiting(identity, due_ms, f"step {number} of {chain}")


def test_a_step_is_stored_as_any_message(store: DelayStore, ear: Ear) -> None:
    """On an empty database a step makes what an offer makes, says which place it got, and a new head is announced."""
    assert store.chains.step("q", CHAIN, step("i")) == "first"
    assert store.chains.step("q", CHAIN, step("later", FUTURE_MS + 1)) == "behind"
    assert store.chains.step("q", CHAIN, Offer("head", repr(FUTURE_MS - 1), 3, CHAIN)) == "head"
    assert ear.heard() == [announced(store, FUTURE_MS), announced(store, FUTURE_MS - 1)]
    assert look(store) == {
        b"waiting in q": [
            ("head", FUTURE_MS - 1, 3, CHAIN.encode()),
            ("i", FUTURE_MS, 0, b"step 1 of [chain 1]"),
            ("later", FUTURE_MS + 1, 0, b"step 1 of [chain 1]"),
        ],
        b"{delayq}:queues": {b"q"},
        # When the latest step of each chain is due; and that chains are in use.
        b"{delayq}:chains": [(b"head", FUTURE_MS - 1), (b"i", FUTURE_MS), (b"later", FUTURE_MS + 1), (b"", inf)],
    }


def test_the_text_of_a_chain_is_no_pattern(store: DelayStore) -> None:
    """What names a chain is looked for as it is written."""
    store.delivery.offer("q", waiting("i", body="a step of chain x"))
    assert store.chains.step("q", "chain .", step(chain="chain .")) == "behind"
    assert store.chains.step("q", "%a+", step(chain="%a+")) == "behind"


def test_a_refusal_ends_after_its_time(make_store: MakeStore) -> None:
    """A cancelled chain takes steps again when the time of its note is over, and not before."""
    store = make_store(cancelled_ttl=3600)
    store.chains.cancel_chains(["i"])
    words = [store.chains.step("q", CHAIN, step())]
    end_ms = round(clock_ms(store.client) + 200)
    store.client.zadd(CANCELLED, {"i": end_ms})  # its time counts, not that of the key

    def stored() -> bool:
        words.append(store.chains.step("q", CHAIN, step()))
        return words[-1] == "first"

    until(stored)
    assert clock_ms(store.client) >= end_ms
    assert words[0] == "cancelled"
    assert set(words[:-1]) == {"cancelled"}


def test_of_the_chains_that_may_run_a_bounded_number_is_known(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All chains that wait are known, and of those whose step has left the latest ones, for a time; others go."""
    store = make_store(cancelled_ttl=1000)
    monkeypatch.setattr("kombu_delayq.store.chains.KNOWN_CHAINS", 3)
    now_ms = clock_ms(store.client)
    for n in range(4):
        store.chains.step("q", CHAIN, step(f"waits {n}"))
        store.chains.step("q", CHAIN, step(f"ended {n}", now_ms - 2_000_000 + n))
    for n in range(9):
        store.chains.step("q", CHAIN, step(f"runs {n}", now_ms - 900_000 + n))
    known = [each.decode() for each in store.client.zrange(CHAINS, 0, -1)]
    assert known == [*(f"runs {n}" for n in (6, 7, 8)), *(f"waits {n}" for n in range(4)), ""]


def test_a_relative_due_time_counts_from_redis_clock(store: DelayStore) -> None:
    """The delay of a step counts from the moment at which it reaches Redis."""
    before_ms = clock_ms(store.client)
    store.chains.step("q", CHAIN, Offer("i", "+60000.5", 0, CHAIN))
    due_ms = only(store, "i").due_ms
    assert kept_ms(store, before_ms + 60_000.5) <= due_ms <= kept_ms(store, clock_ms(store.client) + 60_000.5)
