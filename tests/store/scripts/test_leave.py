"""``leave.lua``: forgets a consumer that holds nothing any more, and gives up its places."""

from kombu_delayq.store import DelayStore
from tests.support.store.consuming import CONSUMED, CONSUMERS, ME, OTHER, fetch, lives
from tests.support.store.limited import asked, declare, keyed, look, numbers, push

A, B = "account:a", "account:b"


def test_a_consumer_that_leaves_is_forgotten(store: DelayStore) -> None:
    """Its lease and what it says of itself are gone; others stay."""
    lives(store, ME, OTHER)
    store.consumers.leave(ME, "q")
    assert store.client.zrange(CONSUMERS, 0, -1) == [OTHER.encode()]
    assert store.client.hkeys(CONSUMED) == [OTHER.encode()]
    store.consumers.leave(OTHER, "q")
    assert not store.client.exists(CONSUMERS, CONSUMED)


def test_its_places_are_free(store: DelayStore) -> None:
    """What it has acknowledged early gives its places up; those of another consumer stay taken."""
    longer = f"{ME}0"
    lives(store, ME, longer)
    declare(store, account={"running": 1})
    push(store, *(keyed(key, f"{key[-1]}{number}") for number in range(2) for key in (A, B)))
    [mine] = fetch(store, 1)
    [theirs] = fetch(store, 1, name=longer)
    for each in (mine, theirs):
        store.fetching.ack([each.tag], "q", going_on=1)
    store.consumers.leave(ME, "q")
    assert look(store).places == {theirs.tag: B}
    assert asked(store, name=longer, first=2)[0] == ["a1"]
    store.consumers.leave(longer, "q")
    assert numbers(store) == {B: (1, 0)}
