"""``run_now.lua``: moves waiting messages to the lists from which kombu consumes before they are due."""

from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Waiting
from tests.support.store.keyspace import FUTURE_MS, Ear, look, lose_body, lose_index, only, waiting


def run_now(store: DelayStore, *messages: Waiting, body: bytes = b"new") -> list[str]:
    return store.lookup.run_now("q", [Change(message, 0.0, body) for message in messages])


def test_a_message_goes_to_the_end_of_its_queue(store: DelayStore, ear: Ear) -> None:
    """A message that is to run now is consumed after those that are ready, with its new body, and waits no more."""
    store.client.lpush("q", "ready before")
    store.delivery.offer("q", waiting("j", FUTURE_MS + 1))
    before = look(store)
    store.delivery.offer("q", waiting("i"))
    ear.heard()
    assert run_now(store, only(store, "i")) == ["transferred"]
    assert look(store) == {**before, b"q": [b"new", b"ready before"]}
    assert ear.heard() == []
    assert store.delivery.transfer("q").moved == 0


def test_half_a_message_is_not_delayed(store: DelayStore) -> None:
    """A message whose body is lost cannot run, and the call says that it does not wait."""
    store.delivery.offer("q", waiting("i"), waiting("j"))
    i, j = only(store, "i"), only(store, "j")
    lose_body(store, "i")
    lose_index(store, "j")
    assert run_now(store, i, j) == ["not_delayed", "not_delayed"]
    assert not store.client.exists("q")
