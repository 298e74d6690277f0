"""``scan.lua``: reads which messages of a part of a queue wait, a page at a time, and how long their bodies are."""

import pytest

from celery_ext.private_redis import PrivateRedis
from kombu_delayq.marks import body_of, id_of
from kombu_delayq.parts import PAGE_BYTES
from kombu_delayq.results import Change, Scanned
from kombu_delayq.store import DelayStore
from tests.lua.conftest import MakeStore
from tests.lua.keyspace import (
    BACKUP,
    BOUNDS,
    DUE,
    FUTURE_MS,
    PAST_MS,
    contents,
    odd,
    only,
    refuses_a_key_of_the_wrong_type,
    waiting,
)
from tests.lua.parts import WHOLE, cut_into, pages, scanned
from tests.waiting import until


def test_messages_come_in_the_order_of_delivery(store: DelayStore) -> None:
    """Messages are told in the order of delivery, with what is stored of them, and no key changes."""
    store.offer("q", waiting("z"), waiting("b", priority=6), waiting("past", PAST_MS, body="longer " * 9))
    before = contents(store.client)
    page = store.scan(WHOLE)
    assert page == Scanned(
        [b"past", b"z", b"\x7f00000001b"], [b"1000000000000", b"4102444800000", b"4102444800000"], [63, 9, 19], False
    )
    assert store.bodies("q", page.members) == [b"longer " * 9, b"body of z", b"\x7f000000016body of b"]
    assert contents(store.client) == before


def test_an_empty_part_has_one_empty_page(store: DelayStore) -> None:
    """Of a queue without messages, and within bounds that hold none, there is one page, and nothing on it."""
    nothing = Scanned([], [], [], more=False)
    assert store.scan(WHOLE) == nothing
    store.offer("q", waiting("i"))
    assert store.scan(WHOLE, from_ms=FUTURE_MS + 1) == nothing
    assert store.scan(WHOLE, from_ms=FUTURE_MS, to_ms=FUTURE_MS - 1) == nothing
    assert nothing.last is None


@pytest.mark.parametrize("count", [1, 2, 3, 50, 99, 100, 101, 5000])
@pytest.mark.parametrize("parts", [1, 3])
def test_pages_of_any_size_hold_each_message_once(store: DelayStore, count: int, parts: int) -> None:
    """With pages of any size each message is returned once, in order, and the last page says that it is the last."""
    store.offer("q", *(waiting(str(n), FUTURE_MS + n // 7) for n in range(100)))
    found = []
    for part in cut_into(store, parts):
        sizes = [len(page.members) for page in pages(store, part, count=count)]
        assert sizes[:-1] == [count] * (len(sizes) - 1)
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
        store.offer("q", waiting(name, FUTURE_MS + due_ms))
    found = [each for part in cut_into(store, parts) for each in scanned(store, part, **bounds, count=2)]
    assert found == list(expected)


@pytest.mark.parametrize("size", [1, 9_990, 2 * PAGE_BYTES])
def test_a_page_is_bounded_in_bytes(store: DelayStore, size: int) -> None:
    """A page holds one message at least, and behind the most bytes no further one."""
    store.offer("q", *(waiting(f"{n:03}", body="x" * size) for n in range(120)))
    for page in pages(store):
        assert page.members
        assert sum(page.lengths[:-1]) < PAGE_BYTES
    assert scanned(store) == [f"{n:03}" for n in range(120)]


@pytest.mark.parametrize("how", ["cancel", "reschedule", "transfer"])
def test_what_leaves_between_pages_hides_no_other(make_store: MakeStore, how: str) -> None:
    """While the last message of each page leaves before the next, also among equal due times, each is returned once."""
    store = make_store(transfer_batch=7)
    store.offer("q", *(waiting(f"{n % 10}{n}", PAST_MS + n // 25) for n in range(100)))
    expected = scanned(store)

    def between(page: Scanned) -> None:
        last = id_of(page.members[-1]).decode()
        if how == "cancel":
            store.cancel(["q"], [last])
        elif how == "reschedule":
            store.reschedule("q", [Change(only(store, last), FUTURE_MS, b"new")])
        else:
            store.transfer("q")

    assert scanned(store, WHOLE, between, count=7, to_ms=FUTURE_MS) == expected
    assert store.count("q", to_ms=FUTURE_MS) < 100


def test_what_is_lost_and_what_has_left(store: DelayStore) -> None:
    """The body of a message that lost it is empty and its length 0; of one that left after the page there is None."""
    store.offer("q", *(waiting(name) for name in "abc"), waiting("d", priority=3))
    store.client.hdel(BACKUP, "b", "d")
    page = store.scan(WHOLE)
    assert page.lengths == [9, 0, 19, 0]
    store.cancel(["q"], ["c"])
    assert store.bodies("q", page.members) == [b"body of a", b"", None, b""]
    store.offer("q", odd("empty", due_ms=PAST_MS)._replace(body=b""))
    assert store.scan(WHOLE, to_ms=FUTURE_MS).lengths == [0]
    assert store.bodies("q", [b"empty"]) == [b""]


def test_parts_are_read_from_a_replica(redis_server: PrivateRedis, store: DelayStore, make_store: MakeStore) -> None:
    """A replica, which takes no writes, is cut and read as its primary is."""
    store.offer("q", *(waiting(str(n)) for n in range(50)))
    with PrivateRedis("--replicaof", "127.0.0.1", str(redis_server.port)) as server:
        replica = make_store(server)
        until(lambda: replica.size("q") == 50)
        parts = cut_into(replica, 3)
        assert [each for part in parts for each in scanned(replica, part, count=4)] == [str(n) for n in range(50)]
        page = replica.scan(WHOLE)
        assert [body_of(each or b"") for each in replica.bodies("q", page.members)] == [
            f"body of {n}".encode() for n in range(50)
        ]


@pytest.mark.parametrize("key", [DUE, BACKUP])
def test_a_key_of_the_wrong_type_is_named(store: DelayStore, key: str) -> None:
    """Where somebody else's key is in the way, the error names it."""
    store.offer("q", waiting("i"))
    refuses_a_key_of_the_wrong_type(store, key, lambda: store.scan(WHOLE))
