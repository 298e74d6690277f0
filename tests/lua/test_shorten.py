"""``shorten.lua``: removes messages from the end of a list, as far as they are there still."""

import pytest

from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import refuses_a_key_of_the_wrong_type
from tests.support.store.layouts import hash_only


@hash_only
@pytest.mark.parametrize(
    ("messages", "removed"), [(["a", "b"], 2), (["a", "b", "c", "d"], 3), (["b"], 0), (["a", "x", "b"], 1), ([], 0)]
)
def test_messages_at_the_end_are_removed_as_far_as_they_are_the_same(
    store: DelayStore, messages: list[str], removed: int
) -> None:
    """The call stops at the first message that is another one."""
    store.client.lpush("q", "a", "b", "c")
    assert store.renamed.shorten("q", messages) == removed
    assert store.client.llen("q") == 3 - removed


@hash_only
def test_a_key_of_the_wrong_type_is_named_and_left_alone(store: DelayStore) -> None:
    """Where somebody else's key is in the way, the error names it."""
    refuses_a_key_of_the_wrong_type(store, "q", lambda: store.renamed.shorten("q", ["a"]))
