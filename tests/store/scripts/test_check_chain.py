"""``check_chain.lua``: asks whether a delay chain may take its next step."""

from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import FUTURE_MS, waiting


def test_a_step_is_noted_unless_its_chain_is_cancelled(store: DelayStore) -> None:
    """A chain is known once it takes a step; cancelled, it takes none and is known no more, until that ends."""
    assert store.chains.check_chain(waiting("i"))
    assert store.client.zscore("{delayq}:chains", "i") == FUTURE_MS
    assert store.chains.cancel_chains(["i"]).chains == {"i"}
    assert not store.chains.check_chain(waiting("i"))
    assert store.client.zscore("{delayq}:chains", "i") is None
    store.chains.accept(["i"])
    assert store.chains.check_chain(waiting("i"))
