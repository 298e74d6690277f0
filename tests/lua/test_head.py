"""``head.lua``: reads which message of a queue is next, for a deputy. ``test_oversee`` shows more where it is used."""

from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import QueueForm
from tests.support.store.keyspace import FUTURE_MS, in_form, waiting


def test_it_reads_what_oversee_reads(store: DelayStore) -> None:
    """Queue by queue it reads the same heads: also none, and one with somebody else's key in the way."""
    forms = [QueueForm(queue, store.layout) for queue in ("q", "none", "broken")]
    store.delivery.offer("q", waiting("i"))
    store.client.rpush(in_form(store, "delayq:{broken}:due"), "somebody else's")
    store.leases.lead("one")
    seen, found = store.leases.oversee(forms), store.leases.head(forms)
    assert found.heads == seen.heads
    assert found.heads[forms[0]].due_ms == FUTURE_MS
    assert not found.is_gone
    store.leases.release("one")
    assert store.leases.head(forms).is_gone
