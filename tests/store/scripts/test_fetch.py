"""``fetch.lua``: takes messages from queues for a consumer, and notes them as unacked."""

import json
from itertools import product
from typing import Any

import pytest
import redis
from redis.exceptions import ResponseError

from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.types import InFlight, LeaseEnded, Request
from tests.support.store.consuming import INDEX, ME, OTHER, UNACKED, end_lease, fetch, land, lives, message
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import clock_ms, contents, popped

STEP = "\x06\x16"
#: For a test of a request for several queues.
SEVERAL = pytest.mark.plain_server


def bodies(taken: list[Any]) -> list[bytes]:
    return [each.body for each in taken]


def test_messages_leave_in_the_order_of_the_queue(store: DelayStore) -> None:
    """The messages that stock kombu would get next are taken, up to the number asked for."""
    lives(store)
    store.client.lpush("q", *(json.dumps(number) for number in range(5)))
    assert bodies(fetch(store, 3)) == [b"0", b"1", b"2"]
    assert bodies(fetch(store, 3, first=4)) == [b"3", b"4"]
    assert fetch(store, first=6) == []
    assert not store.client.exists("q")


def test_each_is_noted_as_unacked_as_stock_does(store: DelayStore) -> None:
    """Tags count from the first number on; kombu's keys have the message, no exchange and the queue, and the time."""
    lives(store)
    store.client.lpush("q", json.dumps(message(1)), json.dumps(message(2)))
    before_s = clock_ms(store.client) / 1000
    assert [(each.tag, each.queue) for each in fetch(store, first=7)] == [(f"{ME}.7", "q"), (f"{ME}.8", "q")]
    after = contents(store.client)
    notes = {tag.decode(): json.loads(note) for tag, note in after[b"unacked:{q}"].items()}
    assert notes == {f"{ME}.7": [message(1), "", "q"], f"{ME}.8": [message(2), "", "q"]}
    times = dict(after[b"unacked_index:{q}"])
    assert times.keys() == after[b"unacked:{q}"].keys()
    assert all(before_s <= time <= clock_ms(store.client) / 1000 for time in times.values())


NAMES = ["ünï", 'quo"ted', "back\\slash", "a'b", "line\nfeed", "{eu}.x", "\udcff", "q✓"]


@pytest.mark.parametrize("queue", NAMES)
def test_any_queue_name_is_noted_as_stock_reads_it(store: DelayStore, queue: str) -> None:
    """The routing key of a note is the queue's name, whatever that is made of."""
    lives(store, queues=(queue,))
    store.client.lpush(store.keys.ready(queue, (0,))[0].encode(errors="surrogateescape"), "{}")
    [taken] = fetch(store, 8, queue)
    assert taken.queue == queue
    [note] = store.client.hvals(store.keys.unacked(queue).encode(errors="surrogateescape"))
    assert json.loads(note) == [{}, "", queue]


@pytest.mark.parametrize("body", [b"no JSON", b"", b"\x00\xff\r\n", bytes(range(256)), b'{"a": "\xff"}'])
def test_any_message_is_taken_as_it_is(store: DelayStore, body: bytes) -> None:
    """A message that nobody can read is taken and noted, byte for byte, like any other."""
    lives(store)
    store.client.lpush("q", body)
    assert bodies(fetch(store)) == [body]
    assert contents(store.client)[b"unacked:{q}"] == {f"{ME}.1".encode(): b"[" + body + b',"","q"]'}


@SEVERAL
@pytest.mark.parametrize(
    ("queues", "most", "in_turns", "taken"),
    [("abc", 8, True, "a0 b0 c0 a1 c1 a2"), ("cab", 4, True, "c0 a0 b0 c1"), ("bac", 5, False, "b0 a0 a1 a2 c0")],
)
def test_queues_are_served_in_turns_or_one_after_the_other(
    store: DelayStore, queues: str, most: int, in_turns: bool, taken: str
) -> None:
    """Of several queues a message each is taken in turn, or all of the first; the rest keep what is over the number."""
    lives(store)
    for queue, count in (("a", 3), ("b", 1), ("c", 2)):
        store.client.lpush(queue, *(f"{queue}{number}" for number in range(count)))
    assert b" ".join(bodies(fetch(store, most, *queues, in_turns=in_turns))).decode() == taken
    assert sum(store.client.llen(queue) for queue in "abc") == 6 - len(taken.split())


@SEVERAL
@pytest.mark.parametrize("in_turns", [True, False])
def test_a_higher_priority_of_any_queue_comes_first(store: DelayStore, in_turns: bool) -> None:
    """All queues' lists of one priority step are served before those of the next, as stock kombu serves them."""
    lives(store)
    for queue, step in product("ab", (0, 3, 6, 9)):
        store.client.lpush(f"{queue}{STEP}{step}" if step else queue, f'"{queue}{step}"')
    expected = [f'"{queue}{step}"'.encode() for step in (0, 3, 6, 9) for queue in "ba"]
    assert bodies(fetch(store, 8, "b", "a", in_turns=in_turns)) == expected


@pytest.mark.parametrize(("sizes", "calls"), [((700_000,) * 3, [2, 1]), ((10, 3_000_000, 2_000_000, 10), [2, 1, 1])])
def test_large_messages_leave_in_several_calls(store: DelayStore, sizes: tuple[int, ...], calls: list[int]) -> None:
    """A call takes no further message once those that it took have many bytes; its caller sees that more may wait."""
    lives(store)
    for size in sizes:
        store.client.lpush("q", json.dumps("x" * size))
    found = []
    while len(found) < len(calls):
        taken = fetch(store, first=1 + sum(map(len, found)))
        found.append(taken)
        assert len(found) == len(calls) or store.fetching.may_have_more(taken, 8)
    assert list(map(len, found)) == calls
    assert not store.client.exists("q")


@SEVERAL
def test_more_queues_than_lua_unpacks_are_served(store: DelayStore) -> None:
    """A consumer may have more lists than Lua can pass to a function, which are 8,000."""
    lives(store)
    queues = [f"q{number}" for number in range(2100)]
    store.client.lpush(queues[-1], "1", "2")
    store.client.lpush(queues[0] + f"{STEP}9", "3")
    assert bodies(fetch(store, 8, *queues)) == [b"1", b"2", b"3"]


#: Names that follow kombu's options: list, in-flight list, what is held, its times, leases and their queues.
OF_OPTIONS = [
    *("p:{p:q}~3", "p:delayq:{p:q}:landing:1:", "p:held:{p:q}", "p:held_index:{p:q}"),
    *("p:delayq:{p:q}:consumers", "p:delayq:{p:q}:consumed"),
]


def test_prefix_separator_and_keys_of_kombu_are_those_of_the_options(make_store: MakeStore) -> None:
    """All names follow kombu's options ``global_keyprefix``, ``sep``, ``unacked_key`` and ``unacked_index_key``."""
    ready, landed, *names = OF_OPTIONS
    store = make_store(keys=Keys("p:", 0, "~", "held", "held_index"))
    lives(store)
    store.client.lpush(ready, "{}")
    in_flight = InFlight("q", 1, ME)
    assert land(store, in_flight)
    assert store.client.exists(f"{landed}{ME}")
    assert bodies(fetch(store, in_flight=[in_flight])) == [b"{}"]
    assert set(map(bytes.decode, store.client.keys())) == {*names, "p:{delayq}:consumed_queues"}


def test_what_has_landed_comes_first(store: DelayStore) -> None:
    """A message in an in-flight list is taken before the queue's lists, whatever its priority."""
    lives(store)
    store.client.lpush(f"{{q}}{STEP}9", '"landed"')
    in_flight = InFlight("q", 3, ME)
    assert land(store, in_flight)
    store.client.lpush("q", '"next"')
    taken = fetch(store, in_flight=[in_flight])
    assert bodies(taken) == [b'"landed"', b'"next"']
    assert [(each.tag, each.queue) for each in taken] == [(f"{ME}.1", "q"), (f"{ME}.2", "q")]
    assert len(contents(store.client)[b"unacked:{q}"]) == 2


@pytest.mark.parametrize("most", [0, 1])
def test_what_stays_in_in_flight_lists_is_next_in_its_queue(store: DelayStore, most: int) -> None:
    """Landed messages beyond the number asked for go back to the end that is consumed next, in their order."""
    lives(store)
    store.client.lpush("q", *(str(number) for number in range(6)))
    in_flight = InFlight("q", 0, ME)
    for _ in range(3):
        assert land(store, in_flight)
    assert bodies(fetch(store, most, in_flight=[in_flight])) == [b"0"][:most]
    assert not store.client.exists(store.keys.in_flight(*in_flight))
    assert popped(store.client, "q") == [b"0", b"1", b"2", b"3", b"4", b"5"][most:]


@SEVERAL
def test_other_queues_of_a_request_are_noted(store: DelayStore) -> None:
    """Beside a queue whose consumer does not acknowledge, the messages of others keep their tags and notes."""
    lives(store)
    store.client.lpush("free", "1", "2")
    store.client.lpush("q", "3")
    in_flight = InFlight("free", 0, ME)
    assert land(store, in_flight)
    taken = fetch(store, 8, "q", "free", unnoted={"free"}, in_flight=[in_flight])
    assert [(each.tag, each.body) for each in taken] == [("", b"1"), (f"{ME}.2", b"3"), ("", b"2")]
    assert contents(store.client)[b"unacked"] == {f"{ME}.2".encode(): b'[3,"","q"]'}


def test_a_paused_queue_keeps_its_messages(store: DelayStore) -> None:
    """Nothing is taken of it, noted or not; what has landed goes back to be next; and the reply names the queue."""
    lives(store)
    store.client.lpush("q", "1", "2", "3")
    in_flight = InFlight("q", 0, ME)
    assert land(store, in_flight)
    assert store.fetching.available(["q"]) == [2]
    assert (store.fetching.pause("q"), store.fetching.pause("q")) == (True, False)
    assert list(store.fetching.paused()) == ["q"]
    assert store.fetching.available(["q"]) == [0]
    request = Request(ME, 1, 8, ["q"], in_flight=[in_flight])
    reply = store.client.execute_command(*store.fetching.fetch_command(request, by_text=True))
    assert (store.fetching.fetched(request, reply), store.fetching.paused_in(request, reply)) == ([], ["q"])
    assert fetch(store, unnoted={"q"}) == []
    assert store.client.lrange("q", 0, -1) == [b"3", b"2", b"1"]
    assert (store.fetching.resume("q"), store.fetching.resume("q")) == (True, False)
    assert bodies(fetch(store)) == [b"1", b"2", b"3"]
    assert not store.client.keys("*paused*")


@SEVERAL
def test_other_queues_of_a_request_are_not_paused(store: DelayStore) -> None:
    """Beside a paused queue, the others are served as before."""
    lives(store)
    for queue in ("a", "b", "{c}"):
        store.client.lpush(queue, f'"{queue}0"', f'"{queue}1"')
    store.fetching.pause("b")
    assert bodies(fetch(store, 8, "a", "b", "{c}")) == [b'"a0"', b'"{c}0"', b'"a1"', b'"{c}1"']


def test_without_any_note_no_lease_is_needed(store: DelayStore) -> None:
    """Who acknowledges nothing holds nothing, and takes without a lease."""
    store.client.lpush("q", "1")
    assert bodies(fetch(store, unnoted={"q"})) == [b"1"]
    assert not store.client.keys()


@pytest.mark.parametrize("left", ["ended", "unknown"])
def test_without_a_lease_nothing_is_taken(store: DelayStore, left: str) -> None:
    """A consumer whose lease has ended takes nothing, and what it has in in-flight lists goes back."""
    lives(store)
    store.client.lpush("q", "0", "1", "2")
    in_flight = InFlight("q", 0, ME)
    assert land(store, in_flight)
    end_lease(store) if left == "ended" else store.consumers.leave([ME], "q")
    with pytest.raises(LeaseEnded):
        fetch(store, in_flight=[in_flight])
    assert not store.client.exists(INDEX, UNACKED, store.keys.in_flight(*in_flight))
    assert popped(store.client, "q") == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("wrong", "whole", "queues"), [("q", f"{{q}}{STEP}3", ["q"]), pytest.param("a", "b", ["a", "b"], marks=SEVERAL)]
)
def test_a_list_of_the_wrong_type_holds_up_no_other(
    store: DelayStore, wrong: str, whole: str, queues: list[str]
) -> None:
    """From the other lists messages are taken; when these are empty, the error names the key in the way."""
    lives(store)
    store.client.sadd(wrong, "somebody else's")
    store.client.lpush(whole, "1")
    assert bodies(fetch(store, 8, *queues)) == [b"1"]
    with pytest.raises(ResponseError, match=f"WRONGTYPE key {wrong} holds a set"):
        fetch(store, 8, *queues, first=2)


def test_a_request_for_queues_in_several_slots_is_refused(store: DelayStore) -> None:
    """Nothing is taken by a request that Redis could not serve."""
    lives(store, queues=("a", "b"))
    for queue in "ab":
        store.client.lpush(queue, "1")
    with pytest.raises(ValueError, match="one request cannot fetch from 2 queues"):
        store.fetching.fetch(Request(ME, 1, 8, ("a", "b")))
    assert [store.client.llen(queue) for queue in "ab"] == [1, 1]


def test_an_in_flight_list_of_the_wrong_type_loses_nothing(store: DelayStore) -> None:
    """Messages of the queue are taken and noted all the same; the key in the way stays as it is."""
    lives(store)
    in_flight = InFlight("q", 0, ME)
    store.client.sadd(store.keys.in_flight(*in_flight), "somebody else's")
    store.client.lpush("q", "1")
    assert bodies(fetch(store, in_flight=[in_flight])) == [b"1"]
    assert store.client.hlen(UNACKED) == 1
    assert store.client.scard(store.keys.in_flight(*in_flight)) == 1


def test_a_message_that_cannot_go_back_stays_where_it_landed(store: DelayStore) -> None:
    """Where somebody else's key is in the place of the queue's list, the landed message is not lost."""
    lives(store)
    store.client.lpush("q", "1", "2")
    in_flight = InFlight("q", 0, ME)
    for _ in range(2):
        assert land(store, in_flight)
    store.client.sadd("q", "somebody else's")
    assert bodies(fetch(store, 1, in_flight=[in_flight])) == [b"1"]
    assert store.client.lrange(store.keys.in_flight(*in_flight), 0, -1) == [b"2"]


def test_its_command_can_be_read_later(store: DelayStore) -> None:
    """The command by SHA and the one with the script's text do what ``fetch`` does, and their reply is read apart."""
    lives(store)
    store.client.lpush("q", "1", "2")
    for number, by_text in ((1, True), (2, False)):
        request = Request(ME, number, 1, ["q"])
        reply = store.client.execute_command(*store.fetching.fetch_command(request, by_text=by_text))
        assert store.fetching.fetched(request, reply) == [(f"{ME}.{number}", "q", str(number).encode())]
    end_lease(store)
    request = Request(ME, 3, 1, ["q"])
    with pytest.raises(LeaseEnded):
        store.fetching.fetched(request, store.client.execute_command(*store.fetching.fetch_command(request)))


@SEVERAL
def test_an_error_of_one_consumer_keeps_nothing_from_another(store: DelayStore) -> None:
    """Where an ACL forbids a queue, what is in flight to its consumer stays, and that of others goes back."""
    for queue, name in (("a", ME), ("b", OTHER)):
        store.client.lpush(queue, "message")
        assert land(store, InFlight(queue, 0, name))
    allowed = {"categories": ["+@all"], "keys": ["{delayq}:*", "unacked*", "b*", "delayq:{b}:*"]}
    store.client.acl_setuser("narrow", enabled=True, nopass=True, **allowed)
    port = store.client.connection_pool.connection_kwargs["port"]
    client = redis.Redis(port=port, username="narrow", password="any")
    narrow = DelayStore(client, store.keys, options=store.options)
    try:
        errors = narrow.fetching.return_in_flight({ME: ["a"], OTHER: ["b"]})
        assert list(errors) == [ME]
        assert (store.client.llen("a"), store.client.llen("b")) == (0, 1)
    finally:
        narrow.close()
        store.client.acl_deluser("narrow")
