"""``reschedule.lua``: changes when waiting messages are due."""

from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Waiting
from tests.support.store.keyspace import BODIES, DUE, FUTURE_MS, clock_ms, contents, in_form, only, waiting
from tests.support.store.layouts import hash_only


def change(store: DelayStore, identity: str, due_ms: float, body: bytes = b"new") -> str:
    """Reschedules the one message of an id."""
    [word] = store.lookup.reschedule("q", [Change(only(store, identity), due_ms, body)])
    return word


@hash_only
def test_a_message_that_needs_its_mark_no_more_goes_without(store: DelayStore) -> None:
    """A message that was marked for its due time alone is kept bare at one of its own."""
    store.delivery.offer("q", waiting("i"), waiting("j"))
    assert change(store, "j", FUTURE_MS + 1, b"\x7fbody") == "rescheduled"
    assert change(store, "j", FUTURE_MS + 2) == "rescheduled"
    assert contents(store.client)[b"delayq:{q}:due"] == [(b"i", FUTURE_MS), (b"j", FUTURE_MS + 2)]
    assert only(store, "j").body == b"new"


def test_an_expiring_queue_keeps_its_time(store: DelayStore) -> None:
    """Rescheduling the only message of a queue with ``x-expires`` lets the queue still expire when it would have."""
    store.delivery.offer("q", waiting("i"), expire_ms=60_000)
    assert change(store, "i", FUTURE_MS + 1) == "rescheduled"
    most_ms = FUTURE_MS - clock_ms(store.client) + 61_000
    assert all(most_ms - 60_000 < store.client.pttl(in_form(store, key)) <= most_ms for key in (DUE, BODIES))
    store.delivery.offer("other", waiting("i"))
    message = Waiting("other", "i", 0.0, 0, b"body of i", store.layout)
    store.lookup.reschedule("other", [Change(message, FUTURE_MS + 1, b"new")])
    assert store.client.pttl(in_form(store, "delayq:{other}:due")) == -1
