"""What ``Upkeep`` does besides running scripts: reading whole queues and dead letters in parts."""

from collections.abc import Iterable

import pytest

from celery_ext.dead_letters.store import LetterStore
from celery_ext.repair.store import RepairStore
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from kombu_delayq.text import as_bytes
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import BODIES, DUE, ODD_IDS, contents, odd, waiting
from tests.support.store.layouts import hash_only

MANY = 3000
#: The last is a name that is no UTF-8.
QUEUES = ["q", "with space", "{a}", "tagged:a", "a:due", "*?[a-z]", "ünïcödé", "\udcff"]


def together(pages: Iterable[set[str]]) -> set[str]:
    return set().union(*pages)


@hash_only
@pytest.mark.parametrize("count", [0, 1, MANY])
def test_all_of_a_queue_is_read_in_parts(store: DelayStore, count: int) -> None:
    """Index and bodies are read whole, some hundreds a call, and no key changes."""
    for at in range(0, count, 500):
        store.delivery.offer("q", *(waiting(str(n)) for n in range(at, min(at + 500, count))))
    before = contents(store.client)
    index, layout = list(store.part(RepairStore).index_pages("q")), list(store.part(RepairStore).body_pages("q"))
    assert {member for page in index for member in page} == set(store.client.zrange(DUE, 0, -1))
    assert dict(item for page in layout for item in page.items()) == store.client.hgetall(BODIES)
    assert contents(store.client) == before
    if count == MANY:
        assert max(map(len, index)) < 1000
        assert max(map(len, layout)) < 500


@hash_only
@pytest.mark.parametrize("marked", [False, True])
def test_members_and_ids_of_any_bytes_are_read(store: DelayStore, marked: bool) -> None:
    """Members, ids and bodies of any bytes are read as they are kept."""
    store.delivery.offer("q", *(odd(each, "\x00\x7f", priority=3 * marked) for each in ODD_IDS))
    members = [member for page in store.part(RepairStore).index_pages("q") for member in page]
    assert sorted(members) == sorted(store.client.zrange(DUE, 0, -1))
    bodies = dict(item for page in store.part(RepairStore).body_pages("q") for item in page.items())
    assert bodies.keys() == {as_bytes(each) for each in ODD_IDS}
    assert bodies == store.client.hgetall(BODIES)


@pytest.mark.parametrize("prefix", ["", "app:", "a*?[b]^-\\", "*", "[a-z]:", "delayq:"])
def test_queues_are_found_by_their_keys(make_store: MakeStore, prefix: str) -> None:
    """Queues of any name are found though nobody knows them, and only those of the store's own prefix."""
    store = make_store(keys=Keys(prefix))
    for other in ("", "app:", "ab:", "b:", "aXYb^-\\", "x"):
        if other != prefix:
            make_store(keys=Keys(other)).delivery.offer("of another", waiting("i"))
    for queue in QUEUES[:-1]:
        store.delivery.offer(queue, waiting("i"))
    store.client.hset(as_bytes(store.keys.bodies(QUEUES[-1])), "i", "only a body")
    store.client.delete(store.keys.queues)
    for noise in range(MANY):
        store.client.set(f"noise{noise}", "x")
    assert together(store.part(RepairStore).queue_pages()) == set(QUEUES)


def test_a_queue_with_one_of_its_keys_is_found(store: DelayStore) -> None:
    """A queue that has lost its index or its bodies is found by the other key; the name of a queue alone is none."""
    for queue, key in (("no index", store.keys.due), ("no bodies", store.keys.bodies)):
        store.delivery.offer(queue, waiting("i"))
        store.client.delete(key(queue))
    store.client.sadd("{delayq}:queues", "no keys")
    store.client.set("delayq:{other}:order", "1")
    assert together(store.part(RepairStore).queue_pages()) == {"no index", "no bodies"}


def test_dead_letters_lie_in_a_list_for_each_priority(make_store: MakeStore) -> None:
    """The lists of a dead letter queue are those of kombu, each with its length."""
    store = make_store(keys=Keys("app:"), steps=(0, 5))
    store.client.lpush("app:dead", "a", "b")
    lowest = "app:{app:dead}\x06\x165"
    assert store.part(LetterStore).lists("dead") == {"app:dead": 2, lowest: 0}


@pytest.mark.parametrize(
    ("skip", "count", "expected"),
    [(0, 100, "abcde"), (0, 2, "ab"), (2, 2, "cd"), (3, 100, "de"), (4, 1, "e"), (5, 10, ""), (90, 100, "")],
)
def test_dead_letters_are_read_oldest_first(store: DelayStore, skip: int, count: int, expected: str) -> None:
    """A page begins after as many of the oldest as are skipped, and reading changes nothing."""
    store.client.lpush("dead", *"abcde")
    before = contents(store.client)
    assert store.part(LetterStore).page("dead", skip, count) == [each.encode() for each in expected]
    assert store.part(LetterStore).page("never used", skip, count) == []
    assert contents(store.client) == before
