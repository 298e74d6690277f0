"""Somebody else's key in the way, or no memory: no message is lost, and no place."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from redis.exceptions import ResponseError

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.limits import LimitStore
from celery_ext.limits.keys import LimitKeys
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Fetched, InFlight, Requeued
from kombu_delayq.text import as_text
from tests.store.test_full_memory import fill, relieve
from tests.support.store.consuming import ME, OTHER, fetch, land, lives
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import FUTURE_MS, contents, waiting
from tests.support.store.limited import asked, declare, keyed, look, numbers, push

A, B = "account:a", "account:b"

pytestmark = pytest.mark.parametrize("layout", ["hash"], indirect=True)  # the scripts are the same in both


def prepare(store: DelayStore) -> list[Fetched]:
    """Lets a consumer hold a message of two keys each, the first acknowledged early, and others wait everywhere."""
    lives(store, ME, OTHER)
    declare(store, account={"running": 1})
    push(store, *(keyed(key, f"{key[-1]}{number}") for number in range(3) for key in (A, B)))
    held = fetch(store)
    push(store, keyed(A, "a3"), keyed("", "-0"))
    assert land(store, InFlight("q", 0, ME))
    return held


def messages(store: DelayStore) -> Counter[bytes]:
    """Counts all messages that there are, wherever they are."""
    found = Counter[bytes]()
    for key, value in contents(store.client).items():
        if isinstance(value, list):
            items = [row[0] if isinstance(row, tuple) else row for row in value]
            found.update(each for item in items for each in (item.partition(b"\0")[2][17:] or item,) if b"{" in each)
        elif key == store.keys.unacked("q").encode():
            found.update(note[1 : note.rindex(b',"","q"]')] for note in value.values())
    return found


def refused(act: Callable[[], Any]) -> str:
    """Returns why Redis refuses something; empty where it does not."""
    try:
        act()
    except ResponseError as error:
        return str(error)
    return ""


#: What consumers do: from the store and what is held to a result.
ACTS: dict[str, Callable[[DelayStore, list[Fetched]], Any]] = {
    "fetch": lambda store, held: asked(store, first=20, in_flight=[InFlight("q", 0, ME)]),
    "requeue next": lambda store, held: store.fetching.requeue(
        [Requeued(each.tag, "q", 0, each.body) for each in held], "next"
    ),
    "requeue last": lambda store, held: store.fetching.requeue(
        [Requeued(each.tag, "q", 0, each.body) for each in held], "last"
    ),
    "back_off": lambda store, held: store.part(LimitStore).back_off(
        "q", A, 60, held[0].tag, held[0].body.decode(), 0, is_early=False
    ),
    "refresh_keys": lambda store, held: store.part(LimitStore).refresh("q"),
    "nudge": lambda store, held: store.part(LimitStore).nudge(["q"]),
    "unpark": lambda store, held: store.part(LimitStore).unpark("q"),
    "leave": lambda store, held: store.consumers.leave([OTHER], "q"),
}
#: Keys of a queue and its slot group.
KEYS: dict[str, Callable[[DelayStore], str]] = {
    "places": lambda store: store.keys.places("q"),
    "limits": lambda store: LimitKeys(store.keys).limits("q"),
    "parked": lambda store: store.keys.parked("q"),
    "keys": lambda store: store.keys.parked_keys("q"),
    "turns": lambda store: LimitKeys(store.keys).turns("q"),
    "rests": lambda store: LimitKeys(store.keys).rests("q"),
    "idle": lambda store: LimitKeys(store.keys).idle("q"),
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("act", ACTS)
def test_a_key_of_the_wrong_type_loses_nothing(store: DelayStore, act: str, key: str) -> None:
    """An operation is refused and changes nothing, or it does without the key; put right, all goes on."""
    held = prepare(store)
    before, name = messages(store), KEYS[key](store)
    kept = store.client.dump(name)
    store.client.delete(name)
    store.client.set(name, "somebody else's")
    spoiled = messages(store)
    refusal = refused(lambda: ACTS[act](store, held))
    assert not refusal or f"WRONGTYPE key {name}" in refusal or key == "limits"
    assert store.client.get(name) == b"somebody else's"
    assert messages(store) == spoiled
    store.client.delete(name)
    if kept is not None:
        store.client.restore(name, 0, kept)
    assert messages(store) == before
    store.part(LimitStore).refresh("q")
    look(store)
    runs_all(store, held)


@pytest.mark.parametrize("key", KEYS)
def test_an_acknowledgement_counts_whatever_is_in_the_way(store: DelayStore, key: str) -> None:
    """What is acknowledged is gone, and its place, too, once the key is put right."""
    held = prepare(store)
    name = KEYS[key](store)
    kept = store.client.dump(name)
    store.client.delete(name)
    store.client.set(name, "somebody else's")
    refusal = refused(lambda: store.fetching.ack([each.tag for each in held], "q"))
    assert not refusal or f"WRONGTYPE key {name}" in refusal
    assert store.client.hlen(store.keys.unacked("q")) == (len(held) if refusal else 0)
    store.client.delete(name)
    if kept is not None:
        store.client.restore(name, 0, kept)
    store.fetching.ack([each.tag for each in held], "q")
    assert not store.client.exists(store.keys.unacked("q"), store.keys.unacked_index("q"), store.keys.places("q"))
    store.part(LimitStore).refresh("q")
    look(store)


@pytest.mark.parametrize("act", ACTS)
def test_a_full_redis_loses_nothing(make_store: MakeStore, own_server: PrivateRedis, act: str) -> None:
    """An operation does all that it should, or nothing; and what is held can be acknowledged."""
    store = make_store(own_server, lease_ttl=3600)
    held = prepare(store)
    before = messages(store)
    fill(store)
    ACTS[act](store, held)
    assert messages(store) == before
    look(store)
    store.fetching.ack([each.tag for each in held], "q")
    look(store)
    relieve(store)
    runs_all(store, held)


def test_a_full_redis_gives_what_may_go(make_store: MakeStore, own_server: PrivateRedis) -> None:
    """While the memory is full, messages of keys go as before, also behind one whose key rests."""
    store = make_store(own_server, lease_ttl=3600)
    lives(store, ME)
    declare(store, account={"running": 1}, api={"rate": [0.01, 1]})
    push(store, keyed("api", "now"), keyed(A, "a0"), keyed("api", "later"))
    assert asked(store, 2)[0] == ["a0", "now"]
    push(store, keyed(B, "b0"), keyed(B, "b1"))
    assert asked(store, 0) == ([], None)
    fill(store)
    assert asked(store, 2, first=3)[0] == ["b0"]
    assert asked(store, 2, first=4)[0] == []
    assert asked(store, 2, first=4)[0] == []
    look(store)
    relieve(store)


def test_a_full_redis_gives_behind_a_key_that_has_no_token(make_store: MakeStore, own_server: PrivateRedis) -> None:
    """A key that has to rest when it is its turn holds up no other key."""
    store = make_store(own_server, lease_ttl=3600)
    lives(store, ME)
    declare(store, account={"running": 1}, api={"rate": [0.01, 1]})
    push(store, keyed("api", "now"), keyed(A, "a0"))
    assert asked(store, 2)[0] == ["a0", "now"]
    push(store, keyed(B, "b0"), keyed("api", "later"), keyed(B, "b1"))
    assert asked(store, 1, first=3)[0] == ["b0"]
    fill(store)
    assert asked(store, 2, first=4)[0] == []
    look(store)
    relieve(store)


def test_what_comes_too_early_gives_its_place_up(store: DelayStore) -> None:
    """A message that is adopted into the store holds none until it is due."""
    [first, _] = prepare(store)
    assert store.delivery.adopt("q", waiting("i", FUTURE_MS, first.body), first.tag) == "first"
    assert numbers(store)[A][1] == 0
    assert "a1" in asked(store, first=20)[0]


def runs_all(store: DelayStore, held: list[Fetched]) -> None:
    """Fetches and acknowledges all messages, and sees that nothing is left."""
    store.fetching.ack([each.tag for each in held], "q")
    rests = LimitKeys(store.keys).rests("q")
    for key in store.client.zrange(rests, 0, -1):
        store.client.zadd(rests, {key: 0})
    store.part(LimitStore).refresh("q")
    in_flight = [InFlight("q", 0, ME)]
    for first in range(100, 200, 8):
        fetch(store, first=first, in_flight=in_flight)
        store.fetching.ack([as_text(tag) for tag in store.client.hkeys(store.keys.unacked("q"))], "q")
    assert not messages(store)
    assert numbers(store) == {}
    assert not store.client.exists(store.keys.places("q"))
