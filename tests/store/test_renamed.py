"""Messages under the names that keys have on a plain server, or in the release before, on a server with hash slots."""

import json
from collections.abc import Iterator
from threading import Event, Thread

import pytest
import redis

from celery_ext.cli.repairing import Findings, all_queues, check
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.lookup import Change
from kombu_delayq.transfer.renaming import Renaming
from kombu_delayq.transfer.worker import TransferWorker
from tests.support.conditions import until
from tests.support.slots import need_slots, plain_only
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, popped, waiting


@pytest.fixture(scope="module")
def slots_server() -> Iterator[PrivateRedis]:
    """A Redis Cluster of one node."""
    need_slots()
    with PrivateRedis(slots=True) as server:
        yield server


@pytest.fixture(scope="module")
def plain_server() -> Iterator[PrivateRedis]:
    """A plain server, from which data are copied."""
    with PrivateRedis(slots=False) as server:
        yield server


class Before:
    """What publishers of the release before use: the names of a plain server."""

    def __init__(self, server: PrivateRedis, prefix: str, layout: str = "hash") -> None:
        self.client = redis.Redis(port=server.port)
        self.keys = Keys(prefix)
        self.store = DelayStore(self.client, self.keys, options=Options(layout=layout))


@pytest.fixture(params=["", "app:"])
def before(slots_server: PrivateRedis, request: pytest.FixtureRequest) -> Iterator[Before]:
    """The release before, without and with a prefix, on an empty database."""
    made = Before(slots_server, request.param)
    made.client.flushall()
    yield made
    made.store.close()


@pytest.fixture
def store(slots_server: PrivateRedis, before: Before) -> Iterator[DelayStore]:
    """This release, on the same database."""
    made = DelayStore(redis.Redis(port=slots_server.port), Keys(before.keys.prefix, slots=True))
    yield made
    made.close()


def move_all(store: DelayStore) -> None:
    """Does what the leading transfer worker does, until nothing is left."""
    renaming = Renaming()
    renaming.go_on(store, ["q"])
    while store.renamed.queues(["q"]):
        renaming.stop()
        renaming.go_on(store, ["q"])


def ready_of(store: DelayStore) -> list[bytes]:
    """Takes all ready messages, in the order in which they are consumed."""
    return [body for key in store.keys.ready("q", (0, 3, 6, 9)) for body in popped(store.client, key)]


def test_delayed_messages_are_found_under_their_old_names(store: DelayStore, before: Before) -> None:
    """Before anybody has moved them, messages are listed, counted and found by their ids, as those under new names."""
    before.store.delivery.offer("q", waiting("a"), waiting("b", FUTURE_MS + 1), waiting("a", FUTURE_MS + 2, "twin"))
    store.delivery.offer("q", waiting("new", FUTURE_MS + 1.5))
    assert store.queues.names() == ["q"]
    assert (store.queues.size("q"), store.scan.count("q"), store.scan.count("q", FUTURE_MS + 1)) == (4, 4, 3)
    assert [one.body for one in store.lookup.get(["q"], ["a"])["a"]] == [b"body of a", b"twin"]
    first = store.scan.browse("q", count=2)
    then = store.scan.browse("q", first, count=2)
    found = [one.body for page in (first, then) for one in page.messages]
    assert found == [b"body of a", b"body of b", b"body of new", b"twin"]
    assert store.queues.size("q") == 4


def test_what_is_done_to_them_is_done(store: DelayStore, before: Before) -> None:
    """A message under its old name is cancelled, rescheduled or run now by its id."""
    before.store.delivery.offer("q", *(waiting(name) for name in "abc"))
    queues, _ = store.chains.refuse(["a"])
    assert list(store.lookup.cancel(queues, ["a"])) == ["a"]
    changes = {name: Change(store.lookup.get(["q"], [name])[name][0], FUTURE_MS + 5, b"changed") for name in "bc"}
    assert store.lookup.reschedule("q", [changes["b"]]) == ["rescheduled"]
    assert store.lookup.run_now("q", [changes["c"]]) == ["transferred"]
    move_all(store)
    assert [(one.id, one.due_ms) for one in store.scan.browse("q").messages] == [("b", FUTURE_MS + 5)]
    assert ready_of(store) == [b"changed"]


@pytest.mark.parametrize("layout", ["hash", "redisson"])
def test_what_was_copied_from_a_plain_server_moves_as_it_is(
    plain_server: PrivateRedis, store: DelayStore, before: Before, layout: str
) -> None:
    """Priority, order, twins and the expiry of the queue stay, and nothing is left under the old names."""
    old = Before(plain_server, before.keys.prefix, layout)
    old.client.flushall()
    offers = [waiting(f"i{n % 400}", FUTURE_MS, f"body {n}", n % 10) for n in range(450)]
    old.store.delivery.offer("q", *offers, expire_ms=600_000)
    for key in old.client.keys("*"):
        before.client.restore(key, max(old.client.pttl(key), 0), old.client.dump(key))
    move_all(store)
    found, page = [], None
    while page is None or page.more:
        page = store.scan.browse("q", page)
        found += [((one.body or b"").decode(), one.priority) for one in page.messages]
    assert found == [(offer.body, offer.priority) for offer in offers]
    assert len(store.lookup.get(["q"], ["i7"])["i7"]) == 2
    assert store.client.pttl(store.keys.stored("q", layout)[0]) > 600_000
    assert store.renamed.names() == []
    assert not [key for key in store.client.keys("*") if b"delayq:{q}" in key and before.keys.prefix]
    old.store.close()


def test_ready_messages_of_any_priority_move_in_order(store: DelayStore, before: Before) -> None:
    """Lists of stock publishers, whose queue nobody has registered, move behind what the new ones have."""
    lists = before.keys.ready("q", (0, 3, 6, 9))
    for step, key in enumerate(lists):
        before.client.lpush(key, *(f"{step} {n}" for n in range(120)))
    store.client.lpush(store.keys.ready("q", (0, 3, 6, 9))[1], "new")
    assert store.renamed.size("q") == 360
    move_all(store)
    expected = [f"{step} {n}".encode() for step in range(4) for n in range(120)]
    expected.insert(120, b"new")
    assert ready_of(store) == expected
    assert not [key for key in lists[1:] if store.client.exists(key)]


def test_what_consumers_held_is_next(store: DelayStore, before: Before) -> None:
    """Messages in hand go back to their queues, of stock consumers too; a note of another kind stays where it is."""
    message = {"body": "ours", "properties": {"priority": 9, "delivery_info": {}}, "headers": {}}
    stock = {"body": "stock", "properties": {"priority": 0, "delivery_info": {}}, "headers": {}}
    notes = {
        "ours": json.dumps(message) + ',"","q"',
        "stock": json.dumps(stock) + ',"direct","key"',
        "lost": json.dumps(stock) + ',"unknown","key"',
    }
    before.client.sadd(before.keys.bindings("direct"), "key\x06\x16\x06\x16q")
    for tag, note in notes.items():
        before.client.hset(before.keys.unacked(""), tag, f"[{note}]")
        before.client.zadd(before.keys.unacked_index(""), {tag: 1.0})
    store.client.lpush(store.keys.ready("q", (0,))[0], '{"body": "later"}')
    move_all(store)
    assert [json.loads(body)["body"] for body in ready_of(store)] == ["stock", "later", "ours"]
    assert before.client.hkeys(before.keys.unacked("")) == [b"lost"]
    assert before.client.zrange(before.keys.unacked_index(""), 0, -1) == [b"lost"]


def test_a_move_that_was_cut_short_is_done_again(store: DelayStore, before: Before) -> None:
    """A message that is under both names, because the mover has died, is one message then."""
    before.store.delivery.offer("q", waiting("a"), waiting("b"))
    store.delivery.offer("q", waiting("a"))
    move_all(store)
    assert sorted(one.id for one in store.scan.browse("q").messages) == ["a", "b"]


def test_a_repair_finds_and_moves_them(store: DelayStore, before: Before) -> None:
    """A dry run counts what is under old names, and a repair moves it."""
    before.store.delivery.offer("q", waiting("a"), waiting("b"))
    before.client.lpush(before.keys.ready("q", (0, 9))[1], "c")
    here = 3 if before.keys.prefix else 1
    assert "q" in all_queues(store, [])
    for mend in (False, True):
        findings = Findings("q")
        list(check(store, findings, ["q"], mend=mend))
        assert (findings.renamed, findings.mendable) == (here, True)
    list(check(store, again := Findings("q"), ["q"], mend=False))
    assert (again.renamed, again.delayed, again.mendable) == (0, 2, False)


def test_a_name_that_has_no_slot_stops_nobody(store: DelayStore, before: Before) -> None:
    """Queues whose names cannot be used here are left alone, in either registry; all others move."""
    before.client.sadd(before.keys.queues, "a}b", "{", "q")
    store.client.sadd(store.keys.queues, "a}b")
    before.store.delivery.offer("q", waiting("i"))
    move_all(store)
    assert store.queues.names() == store.leases.lead("one").queues == ["q"]
    assert store.lookup.get(store.chains.refuse(["i"]).queues, ["i"]).keys() == {"i"}


def test_two_do_not_move_at_once(store: DelayStore, before: Before) -> None:
    """While one moves messages, another does not."""
    with store.renamed.moving() as first, store.renamed.moving(0.0) as second:
        assert (first, second) == (True, False)
    with store.renamed.moving(0.0) as again:
        assert again


def test_publishers_of_both_releases_lose_nothing(
    slots_server: PrivateRedis, before: Before, store: DelayStore
) -> None:
    """While a publisher goes on to use the old names, a worker of this release delivers each of its messages once."""
    done, sent = Event(), []

    def publish() -> None:
        while not done.is_set() or len(sent) < 300:
            number = len(sent)
            before.store.delivery.offer("q", waiting(f"i{number}", store.now_ms() + number % 3 * 50, f"b{number}"))
            before.client.lpush(before.keys.ready("q", (0, 3, 6, 9))[3], f"r{number}")
            sent.append(number)

    def connect() -> DelayStore:
        keys = Keys(before.keys.prefix, slots=True)
        return DelayStore(redis.Redis(port=slots_server.port), keys, options=Options(poll_interval=0.1))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kombu_delayq.transfer.renaming.EVERY_S", 0.05)
        worker, publisher = TransferWorker(connect, queues=lambda: ["q"]), Thread(target=publish)
        publisher.start()
        worker.start()
        found: list[bytes] = []
        try:
            until(lambda: found.extend(ready_of(store)) or len(found) > 200)  # type: ignore[func-returns-value]
            done.set()
            publisher.join()
            until(lambda: found.extend(ready_of(store)) or len(found) >= 2 * len(sent))  # type: ignore[func-returns-value]
        finally:
            done.set()
            publisher.join()
            worker.stop()
    assert sorted(found) == sorted(f"{kind}{n}".encode() for n in sent for kind in "br")
    assert store.renamed.queues(["q"]) == []


@plain_only("names of keys have hash tags")
def test_on_a_plain_server_no_name_changes_and_nobody_looks(redis_server: PrivateRedis) -> None:
    """There, all names are those of the release before, and nothing is asked about others."""
    client = redis.Redis(port=redis_server.port)
    client.flushall()
    store = DelayStore(client)
    store.delivery.offer("q", waiting("i", PAST_MS, priority=9), waiting("later"))
    store.delivery.transfer("q")
    assert {key.decode() for key in client.keys("*")} == {
        "q\x06\x169", *(f"delayq:{{q}}:{what}" for what in ("due", "bodies", "order", "counts")), "delayq:queues",
    }  # fmt: skip
    client.config_resetstat()
    Renaming().go_on(store, ["q"])
    assert (store.renamed.queues(["q"]), store.renamed.names(), store.renamed.size("q")) == ([], [], 0)
    assert "cmdstat_smembers" not in client.info("commandstats")
    store.close()
