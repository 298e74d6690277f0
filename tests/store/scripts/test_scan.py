"""``scan.lua`` without bodies: reads which messages of a part of a queue wait, and how long their bodies are."""

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.waiting import by_id
from kombu_delayq.store import DelayStore
from kombu_delayq.store.hash_layout import body_of
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.redisson_layout import RedissonKeys, priority_of
from kombu_delayq.store.scan import PAGE_BYTES
from kombu_delayq.store.types import Scanned
from tests.support.conditions import until
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import BODIES, BOUNDS, FUTURE_MS, ODD_IDS, PAST_MS, contents, odd, only, waiting
from tests.support.store.layouts import hash_only, redisson_only
from tests.support.store.parts import cut_into, ids_of, pages, read_whole, scanned, whole
from tests.support.store.redisson_layout import offer, task

#: Messages as other clients may write them.
MESSAGES = [
    *(b"", b"no JSON", b"[]", b"null", b"\xff\x00", b'{"headers": 1}', b'{"headers": {"task": null, "id": "i"}}'),
    *(b'{"headers": {"id": "i"}}', b'{"headers": {"task": "t", "id": ""}, "properties": {"delivery_tag": "tag"}}'),
    *(b'{"headers": {"task": "t", "id": 5}, "properties": {"delivery_tag": 5, "priority": 7.9}}',),
    *(b'{"id": "first", "headers": {"task": "t", "id": "\xff \xc3\xbc \\u00fc"}, "properties": {"priority": "3"}}',),
    *(b'{"properties": {"priority": %s}}' % each for each in (b"-1", b"1e9", b"true", b'"x"', b"null", b"[]")),
]


@hash_only
def test_messages_come_in_the_order_of_delivery(store: DelayStore) -> None:
    """Messages are told in the order of delivery, with what is stored of them, and no key changes."""
    store.delivery.offer("q", waiting("z"), waiting("b", priority=6), waiting("past", PAST_MS, body="longer " * 9))
    before = contents(store.client)
    page = store.scan.scan(whole(store))
    assert page == Scanned(
        [b"past", b"z", b"\x7f00000001b"], [b"1000000000000", b"4102444800000", b"4102444800000"], [63, 9, 19], False
    )
    assert store.scan.bodies(whole(store), page.members) == [b"longer " * 9, b"body of z", b"\x7f000000016body of b"]
    assert contents(store.client) == before


def test_ids_bodies_and_lengths_are_those_of_browse(store: DelayStore) -> None:
    """What a scan tells of messages of any id, some of one id and one without a body, is what ``browse`` does."""
    for n, identity in enumerate(ODD_IDS):
        store.delivery.offer("q", odd(identity, f"body {n}" * n, FUTURE_MS + n % 5, n % 10), odd(identity, "two"))
    store.delivery.offer("q", waiting("task", PAST_MS, task("task")), waiting("i", body=task("another id")))
    before = contents(store.client)
    messages = [*by_id.browse(store, "q")]
    page, part = read_whole(store), whole(store)
    assert ids_of(store, page) == [each.id for each in messages]
    assert list(map(float, page.dues)) == [each.due_ms for each in messages]
    bodies = [body_of(each or b"") if part.layout == "hash" else each for each in store.scan.bodies(part, page.members)]
    assert bodies == [each.body for each in messages]
    if part.layout == "redisson":
        assert page.lengths == [len(each.body or b"") for each in messages]
        assert [priority_of(*each) for each in zip(page.members, bodies, strict=True)] == [
            each.priority for each in messages
        ]
    assert contents(store.client) == before


@pytest.mark.parametrize("with_bodies", [True, False])
def test_a_page_ends_when_it_takes_long(store: DelayStore, with_bodies: bool) -> None:
    """Of as many messages as a reader asks for, a call leaves some to the next, so that others have their turn."""
    store.delivery.offer("q", *(waiting(str(number), FUTURE_MS + number, "") for number in range(10_000)))
    if with_bodies:
        first = store.scan.browse("q", count=10_000)
        assert 16 <= len(first.messages) < 10_000
        assert [one.id for one in by_id.browse(store, "q")] == [str(number) for number in range(10_000)]
    else:
        assert 16 <= len(store.scan.scan(whole(store), count=10_000).members) < 10_000
        assert scanned(store, count=10_000) == [str(number) for number in range(10_000)]


@redisson_only
@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_of_another_client_is_as_of_browse(store: DelayStore, message: bytes) -> None:
    """Whatever another client has offered, in either layout of entry, id, body and priority are as in ``browse``."""
    offer(store, 1, message)
    offer(store, 2**52, message, old=True)
    store.client.zadd(RedissonKeys(store.keys).timeout("q"), dict.fromkeys([b"", b"\x07", b"\x08" * 17], FUTURE_MS + 1))
    page, part = store.scan.scan(whole(store)), whole(store)
    bodies = store.scan.bodies(part, page.members)
    priorities = [priority_of(member, body or b"") for member, body in zip(page.members, bodies, strict=True)]
    messages = [*by_id.browse(store, "q")]
    assert [(each.id, each.body or b"", each.priority) for each in messages] == list(
        zip(ids_of(store, page), bodies, priorities, strict=True)
    )
    assert page.lengths == list(map(len, map(bytes, bodies)))  # type: ignore[arg-type]


@redisson_only
def test_a_page_goes_on_without_the_message_at_its_end(store: DelayStore) -> None:
    """To read on, what an entry begins with is sent back, and not the message in it."""
    store.delivery.offer("q", *(waiting(str(n), body=f"{n}" * 100_000) for n in range(3)))
    store.client.config_resetstat()
    assert scanned(store, count=1) == ["0", "1", "2"]
    assert store.client.info("stats")["total_net_input_bytes"] < 20_000


def test_an_empty_part_has_one_empty_page(store: DelayStore) -> None:
    """Of a queue without messages, and within bounds that hold none, there is one page, and nothing on it."""
    nothing = Scanned([], [], [], more=False)
    assert store.scan.scan(whole(store)) == nothing
    store.delivery.offer("q", waiting("i"))
    assert store.scan.scan(whole(store), from_ms=FUTURE_MS + 1) == nothing
    assert store.scan.scan(whole(store), from_ms=FUTURE_MS, to_ms=FUTURE_MS - 1) == nothing
    assert nothing.last is None


@pytest.mark.parametrize("count", [1, 2, 3, 50, 99, 100, 101, 5000])
@pytest.mark.parametrize("parts", [1, 3])
def test_pages_of_any_size_hold_each_message_once(store: DelayStore, count: int, parts: int) -> None:
    """With pages of any size each message is returned once, in order, and the last page says that it is the last."""
    store.delivery.offer("q", *(waiting(str(n), FUTURE_MS + n // 7) for n in range(100)))
    found = []
    for part in cut_into(store, parts):
        sizes = [len(page.members) for page in pages(store, part, count=count)]
        assert all(min(count, 16) <= size <= count for size in sizes[:-1])  # fewer where Redis is slow
        assert 0 < sizes[-1] <= count
        found += scanned(store, part, count=count)
    assert found == [str(n) for n in range(100)]


@pytest.mark.parametrize(("bounds", "expected"), BOUNDS)
@pytest.mark.parametrize("parts", [1, 3])
def test_the_lower_bound_is_in_and_the_upper_is_out(
    store: DelayStore, bounds: dict[str, float], expected: str, parts: int
) -> None:
    """Messages due at the lower bound are returned, those due at the upper are not, wherever parts are cut."""
    for name, due_ms in zip("abcde", (0, 1, 1, 2, 3), strict=True):
        store.delivery.offer("q", waiting(name, FUTURE_MS + due_ms))
    found = [each for part in cut_into(store, parts) for each in scanned(store, part, **bounds, count=2)]
    assert found == list(expected)


@pytest.mark.parametrize("size", [1, 9_990, 2 * PAGE_BYTES])
def test_a_page_is_bounded_in_bytes(store: DelayStore, size: int) -> None:
    """A page holds one message at least, and behind the most bytes no further one."""
    count = 120 if size < PAGE_BYTES else 20
    store.delivery.offer("q", *(waiting(f"{n:03}", body="x" * size) for n in range(count)))
    for page in pages(store):
        assert page.members
        assert sum(page.lengths[:-1]) < PAGE_BYTES
    assert scanned(store) == [f"{n:03}" for n in range(count)]


@pytest.mark.parametrize("how", ["cancel", "reschedule", "transfer"])
def test_what_leaves_between_pages_hides_no_other(make_store: MakeStore, how: str) -> None:
    """While the last message of each page leaves before the next, also among equal due times, each is returned once."""
    store = make_store(transfer_batch=7)
    store.delivery.offer("q", *(waiting(f"{n % 10}{n}", PAST_MS + n // 25) for n in range(100)))
    expected = scanned(store)

    def between(page: Scanned) -> None:
        last = ids_of(store, page)[-1]
        if how == "cancel":
            store.lookup.cancel(["q"], [last])
        elif how == "reschedule":
            store.lookup.reschedule("q", [Change(only(store, last), FUTURE_MS, b"new")])
        else:
            store.delivery.transfer("q")

    assert scanned(store, None, between, count=7, to_ms=FUTURE_MS) == expected
    assert store.scan.count("q", to_ms=FUTURE_MS) < 100


@hash_only
def test_what_is_lost_and_what_has_left(store: DelayStore) -> None:
    """The body of a message that lost it is empty and its length 0; of one that left after the page there is None."""
    store.delivery.offer("q", *(waiting(name) for name in "abc"), waiting("d", priority=3))
    store.client.hdel(BODIES, "b", "d")
    page = store.scan.scan(whole(store))
    assert page.lengths == [9, 0, 19, 0]
    store.lookup.cancel(["q"], ["c"])
    assert store.scan.bodies(whole(store), page.members) == [b"body of a", b"", None, b""]
    store.delivery.offer("q", odd("empty", due_ms=PAST_MS)._replace(body=b""))
    assert store.scan.scan(whole(store), to_ms=FUTURE_MS).lengths == [0]
    assert store.scan.bodies(whole(store), [b"empty"]) == [b""]


@pytest.mark.plain_server
def test_parts_are_read_from_a_replica(server: PrivateRedis, store: DelayStore, make_store: MakeStore) -> None:
    """A replica, which takes no writes, is cut and read as its primary is."""
    store.delivery.offer("q", *(waiting(str(n)) for n in range(50)))
    with PrivateRedis("--replicaof", "127.0.0.1", str(server.port)) as follower:
        replica = make_store(follower)
        until(lambda: replica.queues.size("q") == 50)
        parts = cut_into(replica, 3)
        assert [each for part in parts for each in scanned(replica, part, count=4)] == [str(n) for n in range(50)]
        page = replica.scan.scan(whole(replica), count=15)  # a short one, which never ends early
        assert [body_of(each or b"") for each in replica.scan.bodies(whole(replica), page.members)] == [
            f"body of {n}".encode() for n in range(15)
        ]
