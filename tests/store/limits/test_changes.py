"""Limits change while messages wait: what workers declare, and what people set in its place."""

import pytest

from celery_ext.limits import Limit, LimitStore
from kombu_delayq.store import DelayStore
from tests.support.store.consuming import fetch, lives
from tests.support.store.limited import asked, bodies, declare, keyed, look, numbers, push

A, B = "account:a", "account:b"

pytestmark = pytest.mark.parametrize("layout", ["hash"], indirect=True)  # the scripts are the same in both


def limited(store: DelayStore) -> LimitStore:
    """Lets four messages of each of two keys wait, of which one is in hand. Returns the part of the store."""
    lives(store)
    declare(store, account={"running": 1})
    push(store, *(keyed(key, f"{key[-1]}{number}") for number in range(4) for key in (A, B)))
    assert asked(store)[0] == ["a0", "b0"]
    return store.part(LimitStore)


def test_the_last_worker_that_starts_wins(store: DelayStore) -> None:
    """What it declares replaces what was declared, also where messages wait; it says for which queues that is."""
    part = limited(store)
    assert part.declare({"account": Limit(running=1)}, ["q"]) == []
    assert part.declare({"account": Limit(running=3)}, ["q"]) == ["q"]
    part.refresh("q")
    assert asked(store, first=3)[0] == ["a1", "b1", "a2", "b2"]
    assert part.declare({"other": Limit(running=3)}, ["q"]) == ["q"]
    part.refresh("q")
    assert sorted(asked(store, first=7)[0]) == ["a3", "b3"]


def test_a_lower_bound_takes_nothing_back(store: DelayStore) -> None:
    """What is in hand stays so; the next message goes once there are fewer than the new bound."""
    lives(store)
    declare(store, account={"running": 3})
    push(store, *(keyed(A, number) for number in range(5)))
    held = fetch(store)
    store.part(LimitStore).override("account", Limit(running=1), ["q"])
    for each in held[:2]:
        store.fetching.ack([each.tag], "q")
        assert asked(store, first=4)[0] == []
    store.fetching.ack([held[2].tag], "q")
    assert asked(store, first=4)[0] == ["3"]
    assert numbers(store) == {A: (1, 1)}


def test_people_set_a_limit_or_one_key(store: DelayStore) -> None:
    """What is set for a key goes before what is set for its limit, and both before what workers declare."""
    part = limited(store)
    part.override("account", Limit(running=2), ["q"])
    part.override(A, Limit(running=0), ["q"])
    assert asked(store, first=3)[0] == ["b1"]
    declare(store, account={"running": 4})
    part.refresh("q")
    assert asked(store, first=4)[0] == []
    part.override(A, None, ["q"])
    assert asked(store, first=5)[0] == ["a1"]
    part.override("account", None, ["q"])
    assert sorted(asked(store, first=6)[0]) == ["a2", "a3", "b2", "b3"]
    assert (part.limits("q").of(A), part.limits("q").set) == (Limit(running=4), {})


def test_a_limit_that_nobody_declares_is_none(store: DelayStore) -> None:
    """Messages of its keys only take turns."""
    lives(store)
    declare(store, other={"running": 1})
    push(store, *(keyed(A, number) for number in range(3)))
    assert asked(store)[0] == ["0", "1", "2"]
    assert store.part(LimitStore).limits("q").of(A) is None


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", "7", "null", '{"running": "x"}', '{"rate": [null, "x"]}', '{"rate": 5, "weight": []}']
)
def test_a_limit_that_somebody_else_has_written_is_none(store: DelayStore, text: str) -> None:
    """What cannot be read of it does not hold, and no message is lost."""
    lives(store)
    declare(store, account={"running": 1})
    store.client.hset(store.keys.places("q") + ":limits", "account", text)
    push(store, keyed(A, 1), keyed(A, 2))
    assert bodies(fetch(store)) == ["1", "2"]
    assert look(store).waiting == {}


def test_nothing_is_declared_any_more(store: DelayStore) -> None:
    """A fleet whose workers declare no limits any more runs what waits in sub-queues, and notes nothing in the end."""
    part = limited(store)
    assert part.declare({}, ["q"]) == ["q"]
    part.refresh("q")
    found = fetch(store, 10, first=3)
    assert sorted(bodies(found)) == ["a1", "a2", "a3", "b1", "b2", "b3"]
    store.fetching.ack([each.tag for each in found], "q")
    assert numbers(store) == {A: (0, 1), B: (0, 1)}
