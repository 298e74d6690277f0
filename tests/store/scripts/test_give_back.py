"""``give_back.lua``: returns a message to the list it came from."""

from kombu_delayq.store import DelayStore


def test_the_message_is_the_next_to_be_consumed(store: DelayStore) -> None:
    """A message given back stands at the end of its list from which kombu consumes."""
    store.client.lpush("q", "behind")
    assert store.delivery.give_back("q", 0, "taken") == 2
    assert store.client.brpop(["q"]) == (b"q", b"taken")
