"""``leave.lua``: forgets a consumer that holds nothing any more, and gives up its places."""

from kombu_delayq.store import DelayStore
from tests.support.store.consuming import CONSUMED, CONSUMERS, ME, OTHER, fetch, lives
from tests.support.store.cost import round_trips
from tests.support.store.limited import asked, declare, keyed, look, numbers, push

A, B = "account:a", "account:b"


def test_a_consumer_that_leaves_is_forgotten(store: DelayStore) -> None:
    """Its lease and what it says of itself are gone; others stay."""
    lives(store, ME, OTHER)
    store.consumers.leave([ME], "q")
    assert store.client.zrange(CONSUMERS, 0, -1) == [OTHER.encode()]
    assert store.client.hkeys(CONSUMED) == [OTHER.encode()]
    store.consumers.leave([OTHER], "q")
    assert not store.client.exists(CONSUMERS, CONSUMED)


def test_many_leave_at_once(store: DelayStore) -> None:
    """A call forgets those that have no place left, and gives up as many of the others' as it may; others stay."""
    names = [f"host:{number}:00000000" for number in range(3)]
    lives(store, *names, OTHER)
    declare(store, account={"running": 300})
    push(store, *(keyed(A, number) for number in range(221)))
    for name, count in ((names[0], 60), (names[2], 160), (OTHER, 1)):
        found = [each.tag for first in range(1, count + 1, 20) for each in fetch(store, 20, name=name, first=first)]
        store.fetching.ack(found[:count], "q", going_on=count)
    assert round_trips(store, lambda: store.consumers.leave(names, "q")) <= 4  # one may load the script
    assert store.client.zrange(CONSUMERS, 0, -1) == store.client.hkeys(CONSUMED) == [OTHER.encode()]
    assert numbers(store)[A] == (0, 1)


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
    store.consumers.leave([ME], "q")
    assert look(store).places == {theirs.tag: B}
    assert asked(store, name=longer, first=2)[0] == ["a1"]
    store.consumers.leave([longer], "q")
    assert numbers(store) == {B: (1, 0)}
