"""``check_chain.lua``: asks whether a delay chain may take its next step."""

import pytest

from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import FUTURE_MS, refuses_a_key_of_the_wrong_type, waiting


def test_a_step_is_noted_unless_its_chain_is_cancelled(store: DelayStore) -> None:
    """A chain is known once it takes a step; cancelled, it takes none and is known no more, until that ends."""
    assert store.chains.check_chain(waiting("i"))
    assert store.client.zscore("{delayq}:chains", "i") == FUTURE_MS
    assert store.chains.cancel_chains(["i"]).chains == {"i"}
    assert not store.chains.check_chain(waiting("i"))
    assert store.client.zscore("{delayq}:chains", "i") is None
    store.chains.accept(["i"])
    assert store.chains.check_chain(waiting("i"))


@pytest.mark.parametrize("key", ["{delayq}:cancelled", "{delayq}:chains"])
def test_a_key_of_the_wrong_type_is_named_and_left_alone(store: DelayStore, key: str) -> None:
    """Where somebody else's key is in the way, the error names it."""
    refuses_a_key_of_the_wrong_type(store, key, lambda: store.chains.check_chain(waiting("i")))
