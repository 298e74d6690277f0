"""Which messages a fetch gets where limits are declared: bounds, turns, priorities, and messages without a key."""

import json
from typing import Any

import pytest

from celery_ext.limits import LIMIT_HEADER, Limit, LimitStore
from celery_ext.limits.keys import LimitKeys
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import InFlight, LeaseEnded, Requeued
from tests.support.store.consuming import ME, OTHER, fetch, land, lives
from tests.support.store.keyspace import Ear
from tests.support.store.limited import asked, bodies, declare, keyed, look, numbers, push

A, B = "account:a", "account:b"

pytestmark = pytest.mark.parametrize("layout", ["hash"], indirect=True)  # the scripts are the same in both


def test_a_key_has_at_most_its_bound_in_hand(store: DelayStore) -> None:
    """So many messages of each key are in hand at once, of all consumers; an acknowledgement lets the next one go."""
    lives(store, ME, OTHER)
    declare(store, account={"running": 2})
    push(store, *(keyed(key, f"{key[-1]}{number}") for number in range(4) for key in (A, B)))
    first = fetch(store, 3)
    assert bodies(first) == ["a0", "b0", "a1"]
    assert asked(store, name=OTHER)[0] == ["b1"]
    assert asked(store, name=OTHER, first=9) == ([], pytest.approx(10))
    assert numbers(store) == {A: (2, 2), B: (2, 2)}
    assert (store.fetching.ready(["q"]), store.fetching.limited(["q"]), store.fetching.available(["q"])) == (
        [4],
        [4],
        [0],
    )
    assert store.fetching.ack([first[1].tag], "q") == []
    assert asked(store, first=4)[0] == ["b2"]


def test_a_place_lasts_as_long_as_its_task(store: DelayStore) -> None:
    """A message that is acknowledged early keeps its place; the acknowledgement at the end gives it up, once."""
    lives(store)
    declare(store, account={"running": 1})
    push(store, keyed(A, 1), keyed(A, 2), keyed(A, 3))
    [held] = fetch(store)
    assert store.fetching.ack([held.tag], "q", going_on=1) == []
    assert asked(store, first=2)[0] == []
    assert store.fetching.ack([held.tag], "q") == []
    assert store.fetching.ack([held.tag], "q") == [held.tag]
    assert numbers(store) == {A: (2, 0)}
    assert asked(store, first=2)[0] == ["2"]


@pytest.mark.parametrize(("place", "wanted"), [("next", ["1", "2"]), ("last", ["2", "1"])])
def test_what_goes_back_gives_its_place_up(store: DelayStore, place: Any, wanted: list[str]) -> None:
    """A message that is put back is the next one of its key, or the last; once fetched, it needs a place again."""
    lives(store)
    declare(store, account={"running": 1})
    push(store, keyed(A, 1), keyed(A, 2))
    [held] = fetch(store)
    assert store.fetching.requeue([Requeued(held.tag, "q", 0, held.body)], place) == []
    found = []
    for first in (2, 3):
        [held] = fetch(store, first=first)
        found += bodies([held])
        store.fetching.ack([held.tag], "q")
    assert found == wanted
    assert numbers(store) == {}


def test_a_pause_keeps_all_of_a_key(store: DelayStore) -> None:
    """With ``running`` 0 nothing of the key goes, and others do; a look at it says so."""
    lives(store)
    declare(store, account={"running": 2})
    store.part(LimitStore).override(A, Limit(running=0), ["q"])
    push(store, keyed(A), keyed(B, 2))
    assert asked(store)[0] == ["2"]
    assert store.fetching.limited(["q"]) == [1]
    store.part(LimitStore).override(A, None, ["q"])
    assert asked(store, first=2)[0] == ["1"]


def test_one_message_behind_many_of_another_key(store: DelayStore) -> None:
    """A message of another key is the second to go, however many are before it, once they are sorted."""
    lives(store)
    declare(store, account={})
    push(store, *(keyed(A, number) for number in range(600)), keyed(B, "b"))
    assert asked(store, 1)[0] == ["0"]
    found: list[str] = []
    while "b" not in found:
        found += asked(store, 1, first=2 + len(found))[0]
    assert len(found) <= 5  # 150 messages are sorted at each fetch, and then it is its turn
    assert numbers(store)[B] == (0, 1)


def test_a_new_key_begins_at_the_present(store: DelayStore) -> None:
    """A key that comes late takes turns with the others; it does not catch up on turns that they had before."""
    lives(store)
    declare(store, account={})
    push(store, *(keyed(A, f"a{number}") for number in range(20)))
    assert len(asked(store, 10)[0]) == 10
    push(store, *(keyed(B, f"b{number}") for number in range(10)))
    found = "".join(each[0] for each in asked(store, 10, first=11)[0])
    assert found in ("ab" * 5, "ba" * 5)


def test_a_key_has_turns_by_its_weight(store: DelayStore) -> None:
    """A key of weight 3 has three turns for each one of another key."""
    lives(store)
    declare(store, big={"weight": 3}, small={})
    push(store, *(keyed(name, name) for name in ("big", "small") for _ in range(40)))
    found = asked(store, 40)[0]
    assert found.count("big") == pytest.approx(30, abs=1)
    for at in range(0, 36, 4):
        assert 2 <= found[at : at + 4].count("big") <= 4


def test_messages_without_a_key_take_turns_with_the_keys(store: DelayStore) -> None:
    """They are as those of one key, which has no bound and takes no place."""
    lives(store)
    declare(store, account={"running": 5})
    push(store, keyed(B))
    assert asked(store, 1)[0] == ["1"]
    push(store, *(keyed("", f"-{number}") for number in range(6)), *(keyed(A, f"a{number}") for number in range(3)))
    found = asked(store, 9, first=2)[0]
    assert [each for each in found if each[0] == "-"] == [f"-{number}" for number in range(6)]
    assert [each for each in found if each[0] == "a"] == ["a0", "a1", "a2"]
    assert found.index("a2") < 7
    assert numbers(store) == {A: (0, 3), B: (0, 1)}


def test_a_queue_without_keys_is_as_before(store: DelayStore) -> None:
    """Nothing is sorted before a message with a key comes, and nothing is noted."""
    lives(store)
    declare(store, account={"running": 1})
    push(store, *(keyed("", number) for number in range(5)))
    assert asked(store, 3)[0] == ["0", "1", "2"]
    assert store.client.llen("q") == 2
    assert not store.client.exists(store.keys.parked_keys("q"), store.keys.parked("q"), store.keys.places("q"))


def test_without_limits_a_key_is_not_read(store: DelayStore) -> None:
    """In a fleet that has declared none, messages with a key go as all others do."""
    lives(store)
    push(store, *(keyed(A, number) for number in range(5)))
    assert asked(store, 3) == (["0", "1", "2"], None)
    assert store.client.llen("q") == 2
    assert not store.client.exists(store.keys.parked_keys("q"), store.keys.places("q"))


def test_a_higher_priority_comes_first(store: DelayStore) -> None:
    """A step of priorities is served before the next one, and keys take turns within it."""
    lives(store)
    declare(store, account={"running": 1})
    for step in (2, 1):
        for key in (A, B):
            push(store, *(keyed(key, f"{key[-1]}{step}{number}") for number in range(2)), step=step)
    order = []
    for first in range(1, 9):
        [held] = fetch(store, 1, first=first)
        order += bodies([held])
        store.fetching.ack([held.tag], "q")
    assert [each[1] for each in order] == ["1"] * 4 + ["2"] * 4
    assert {"".join(each[0] for each in order[at : at + 2]) for at in range(0, 8, 2)} <= {"ab", "ba"}


def test_a_full_key_of_a_high_priority_holds_up_no_other(store: DelayStore) -> None:
    """Where the messages of a higher priority may not go, those of a lower one do."""
    lives(store)
    declare(store, account={"running": 1})
    push(store, keyed(A, 1), keyed(A, 2))
    push(store, keyed(B, "low"), step=3)
    assert asked(store)[0] == ["1", "low"]


def test_places_are_taken_for_free_processes_only(store: DelayStore) -> None:
    """A consumer with one free process takes one message with a bound or a rate, and asks again once one is free."""
    lives(store)
    declare(store, account={"running": 5}, api={"rate": [100, 100]}, tenant={})
    push(store, *(keyed(key, key) for key in (A, B, "api", "tenant:1", "tenant:2", "") for _ in range(2)))
    found, again_s = asked(store, 12, free=1)
    assert len([each for each in found if each.startswith(("account", "api"))]) <= 1
    assert again_s == float("inf")
    assert asked(store, 12, first=20, free=0)[1] == float("inf")
    more = asked(store, 12, first=40, free=12)[0]
    assert sorted(found + more) == sorted([A, B, "api", "tenant:1", "tenant:2", ""] * 2)


def test_a_consumer_that_does_not_acknowledge_takes_no_place(store: DelayStore) -> None:
    """It gets messages in turns, and owns nothing; those of a key without a free place stay."""
    lives(store)
    declare(store, account={"running": 1})
    push(store, keyed(A, 1), keyed(A, 2), keyed(B, 3), keyed(B, 4))
    assert asked(store, 1)[0] == ["1"]
    assert asked(store, unnoted={"q"}, first=2)[0] == ["3", "4"]
    assert numbers(store) == {A: (1, 1)}


def test_what_has_landed_is_sorted_first(store: DelayStore) -> None:
    """A message of an in-flight list waits in its key's sub-queue if that is full, and comes before later ones."""
    lives(store)
    declare(store, account={"running": 1})
    push(store, keyed(A, 1), keyed(A, 2), keyed(A, 3))
    [held] = fetch(store, 1)
    store.part(LimitStore).unpark("q")  # as for consumers that know no limits
    in_flight = InFlight("q", 0, ME)
    assert land(store, in_flight)
    assert asked(store, first=2, in_flight=[in_flight])[0] == []
    assert not store.client.exists(store.keys.in_flight(*in_flight), "q")
    store.fetching.ack([held.tag], "q")
    assert asked(store, first=3)[0] == ["2"]
    assert look(store).waiting == {A: [keyed(A, 3).encode()]}


def test_what_has_landed_goes_at_once_where_it_may(store: DelayStore) -> None:
    """In a queue in which nothing was sorted yet, a message of an in-flight list takes its place."""
    lives(store)
    declare(store, account={"running": 1})
    push(store, keyed(A, 1), keyed(A, 2))
    in_flight = InFlight("q", 0, ME)
    assert land(store, in_flight)
    assert asked(store, in_flight=[in_flight])[0] == ["1"]
    assert numbers(store) == {A: (1, 1)}


def test_a_paused_queue_gives_nothing(store: DelayStore) -> None:
    """Its lists and sub-queues stay; resumed, it goes on."""
    lives(store)
    declare(store, account={"running": 1})
    push(store, keyed(A, 1), keyed(A, 2), keyed(B, 3))
    assert asked(store, 1)[0] == ["1"]
    push(store, keyed(B, 4))
    store.fetching.pause("q")
    assert asked(store, first=2)[0] == []
    assert store.fetching.available(["q"]) == [0]
    store.fetching.resume("q")
    assert asked(store, first=3)[0] == ["3"]
    look(store)


def test_a_consumer_without_a_lease_takes_no_place(store: DelayStore) -> None:
    """It gets nothing, and nothing is noted of it."""
    declare(store, account={"running": 1})
    push(store, keyed(A, 1))
    with pytest.raises(LeaseEnded):
        fetch(store)
    assert not store.client.exists(store.keys.places("q"))
    lives(store)
    assert asked(store)[0] == ["1"]


#: Headers from which no key is read.
ODD = [
    rb'"account:\"x"',
    rb'"account:\u0061"',
    b'"account:\xc3\xa4"',
    b'"account: a"',
    b'""',
    b"7",
    b"null",
    b'["account:a"]',
    b'"account:a',
    b'  "account:a"',
]


@pytest.mark.parametrize("value", ODD)
def test_what_is_no_key_is_a_message_without_one(store: DelayStore, value: bytes) -> None:
    """A message whose header was written by somebody else, and is no key, goes as one without, byte for byte."""
    lives(store)
    declare(store, account={"running": 1})
    odd = b'{"headers": {"%s": %s}}' % (LIMIT_HEADER.encode(), value)
    push(store, keyed(A, "first"), odd, odd)
    assert [each.body for each in fetch(store)].count(odd) == 2
    assert numbers(store) == {A: (0, 1)}


def test_a_key_in_an_argument_is_none(store: DelayStore) -> None:
    """Only the header counts: in a text of a message, its quotes are escaped."""
    lives(store)
    declare(store, account={"running": 1})
    text = json.dumps({LIMIT_HEADER: A})
    inside = json.dumps({"body": text, "headers": {"argsrepr": text}})
    push(store, inside, inside)
    assert len(fetch(store)) == 2
    assert numbers(store) == {}


@pytest.mark.parametrize("header", [b'"delayq_limit":"account:a"', b'"delayq_limit": "account:a"'])
def test_compact_and_spaced_json_is_read(store: DelayStore, header: bytes) -> None:
    """A publisher may write a space after the colon, or none."""
    lives(store)
    declare(store, account={"running": 1})
    push(store, b'{"headers": {%s}, "body": "1"}' % header, b'{"headers": {%s}, "body": "2"}' % header)
    assert asked(store)[0] == ["1"]
    assert numbers(store) == {A: (1, 1)}


@pytest.mark.parametrize("body", [b"\x00\xff\r\n", bytes(range(256))])
def test_messages_are_kept_byte_for_byte(store: DelayStore, body: bytes) -> None:
    """Whatever else is in a message comes out of a sub-queue as it was."""
    lives(store)
    declare(store, account={"running": 1})
    message = b'{"headers": {"delayq_limit": "account:a"}}' + body
    push(store, keyed(A, 1), message, body)
    [held, other] = fetch(store)
    assert {held.body, other.body} == {keyed(A, 1).encode(), body}
    store.fetching.ack([held.tag, other.tag], "q")
    assert [each.body for each in fetch(store, first=3)] == [message]


def test_a_long_list_is_sorted_in_steps(store: DelayStore) -> None:
    """One fetch sorts 150 messages of a list at most, and is asked again at once until all are sorted."""
    lives(store)
    declare(store, account={"running": 1})
    push(store, *(keyed(f"account:{number % 7}", number) for number in range(3000)))
    lengths = []
    while True:
        _, again_s = asked(store, 0 if lengths else 7, first=1)
        lengths.append(store.client.llen("q"))
        if again_s != 0:
            break
    assert lengths[:3] == [2849, 2699, 2549]  # the first message with a key has shown that there are any
    assert lengths[-1] == 0
    assert len(lengths) <= 21
    assert sum(waits for waits, _ in numbers(store).values()) == 3000 - 7
    assert store.fetching.ready(["q"]) == [3000 - 7]
    waiting = look(store).waiting
    for key, messages in waiting.items():
        found = [int(json.loads(message)["body"]) for message in messages]
        assert found == sorted(found), key


def test_messages_of_many_bytes_are_sorted_in_more_steps(store: DelayStore) -> None:
    """A fetch that has sorted about 400,000 bytes leaves the rest to the next one."""
    lives(store)
    declare(store, account={"running": 1})
    push(store, *(keyed(A, "x" * 100_000) for _ in range(120)))
    asked(store, 1)
    assert 0 < store.client.llen("q") < 120
    for _ in range(30):
        asked(store, 0)
    assert store.client.llen("q") == 0
    assert numbers(store) == {A: (119, 1)}


def test_a_consumer_that_waits_is_woken(store: DelayStore) -> None:
    """Who found nothing that may go is noted, and hears of the place that another one gives up."""
    lives(store, ME, OTHER)
    declare(store, account={"running": 1})
    push(store, keyed(A, 1), keyed(A, 2))
    [held] = fetch(store, 1)
    assert asked(store, name=OTHER)[0] == []
    assert store.client.smembers(LimitKeys(store.keys).idle("q")) == {store.keys.presence(OTHER).encode()}
    ear = Ear(store.client, store.keys.presence(OTHER))
    store.fetching.ack([held.tag], "q")
    assert ear.heard() == [""]
    ear.close()
    assert asked(store, name=OTHER, first=5)[0] == ["2"]
