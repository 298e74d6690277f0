"""``delayq repair``: whatever was lost or damaged, what can be delivered is delivered, once and in order; and noted."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.repair import check
from celery_ext.repair import command as repair
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.types import Offer
from tests.support.commands.shell import Audit, lines, run, terminal
from tests.support.store.keyspace import contents
from tests.support.store.redisson_layout import IDS, LISTED, NOTES, TIMEOUT
from tests.support.workers.held import KEYS

PAST = datetime(2020, 1, 1, tzinfo=UTC)
#: Messages of each test. Three have the same due time, and every fifth has a priority.
COUNT = 300
SOUND = {"lost": 0, "unindexed": 0, "undated": 0, "unnamed": 0, "landed": 0, "held": 0, "unreadable": 0}
SOUND |= {"unknown": False, "error": None, "examples": {}}
DUE, BODIES, ORDER, DUPLICATES = (f"delayq:{{q}}:{what}" for what in ("due", "bodies", "order", "duplicates"))


def message(identity: str, eta: datetime | None = None, tag: str = "") -> str:
    """Makes a task's message as kombu keeps it."""
    properties = {"delivery_tag": tag or identity, "delivery_info": {"exchange": "", "routing_key": "q"}}
    headers = {"task": "t", "id": identity, "eta": eta and eta.isoformat()}
    return json.dumps({"body": "W1tdLCB7fSwge31d", "headers": headers, "properties": {**properties, "priority": 0}})


def offer(n: int, identity: str = "", priority: int = 0) -> Offer:
    """Makes an offer of a message that has long been due. Three numbers in a row have the same due time."""
    eta = PAST + timedelta(milliseconds=n // 3 * 10.125)
    due_ms = (eta - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1)
    return Offer(identity or f"t{n}", repr(due_ms), priority, message(identity or f"t{n}", eta, f"tag {n}"))


def delivered(store: DelayStore, queue: str = "q") -> list[int]:
    """Transfers all that is due. Returns the numbers in the tags of what was pushed to the queue's list."""
    while store.delivery.transfer(queue).moved:
        pass
    bodies = [*store.client.lrange(queue, 0, -1)[::-1], *store.client.lrange(f"{queue}\x06\x163", 0, -1)[::-1]]
    return [int(json.loads(body)["properties"]["delivery_tag"].split()[1]) for body in bodies]


def expected(gone: Callable[[int], bool] = lambda n: False) -> list[int]:
    """Returns the numbers of the messages in the order of delivery: those without a priority, then the others."""
    plain, urgent = ([n for n in range(COUNT) if (n % 5 == 0) == first and not gone(n)] for first in (False, True))
    return plain + urgent


@pytest.fixture
def store(raw_client: redis.Redis, layout: str) -> DelayStore:
    """A store with one queue, whose messages are published in an order that is not that of their due times."""
    store = DelayStore(raw_client, KEYS, options=Options(layout=layout))
    order = [n for third in range(3) for n in range(third, COUNT, 3)]
    for start in range(0, COUNT, 50):
        store.delivery.offer("q", *(offer(n, priority=(n % 5 == 0 and 3) or 0) for n in order[start : start + 50]))
    return store


def members(raw_client: redis.Redis) -> dict[int, bytes]:
    """The index members by the numbers of their messages."""
    return {int(member.rpartition(b"t")[2]): member for member in raw_client.zrange(DUE, 0, -1)}


def drop_bodies(raw_client: redis.Redis) -> None:
    raw_client.hdel(BODIES, *(f"t{n}" for n in range(0, COUNT, 7)))


def add_ghosts(raw_client: redis.Redis) -> None:
    raw_client.zadd(DUE, {f"ghost{n}": n for n in range(600)} | {"\x7f00000001ghost": 1, "\x7f": 2, "": 3})


def make_stale(raw_client: redis.Redis) -> None:
    """Gives every seventh message an index entry that is not the one of its body, with its due time."""
    for n, member in members(raw_client).items():
        if n % 7 == 0:
            wrong = member[9:] if member.startswith(b"\x7f") else b"\x7f00000001" + member
            raw_client.zadd(DUE, {wrong: raw_client.zscore(DUE, member)})
            raw_client.zrem(DUE, member)


def forget_queue(raw_client: redis.Redis) -> None:
    raw_client.delete("{delayq}:queues")


def all_at_once(raw_client: redis.Redis) -> None:
    make_stale(raw_client)
    drop_bodies(raw_client)
    raw_client.zrem(DUE, *(member for n, member in members(raw_client).items() if n % 7 and n % 2))
    add_ghosts(raw_client)
    forget_queue(raw_client)
    raw_client.delete(ORDER, DUPLICATES)


def all_of_redisson(raw_client: redis.Redis) -> None:
    raw_client.zrem(TIMEOUT, *raw_client.zrange(TIMEOUT, 0, -1)[::7])
    raw_client.zadd(TIMEOUT, {f"ghost{n}": n for n in range(600)} | {"": 1, b"\x08": 2, b"\x07" * 17: 3})
    raw_client.delete(NOTES)
    forget_queue(raw_client)


#: How a queue is damaged, by layout; what a repair finds; and which messages are lost for good.
DAMAGE: dict[tuple[str, str], tuple[Callable[[redis.Redis], Any], dict[str, Any], Callable[[int], bool]]] = {
    ("hash", "nothing"): (lambda raw_client: None, {}, lambda n: False),
    ("hash", "due"): (lambda raw_client: raw_client.delete(DUE), {"unindexed": COUNT}, lambda n: False),
    ("hash", "bodies"): (drop_bodies, {"lost": 43}, lambda n: n % 7 == 0),
    ("hash", "stale"): (make_stale, {"unnamed": 43}, lambda n: False),
    ("hash", "queues"): (forget_queue, {"unknown": True}, lambda n: False),
    ("hash", "all"): (all_at_once, {"unknown": True, "lost": 646, "unindexed": 129}, lambda n: n % 7 == 0),
    ("redisson", "nothing"): (lambda raw_client: None, {}, lambda n: False),
    ("redisson", "index"): (lambda raw_client: raw_client.delete(TIMEOUT), {"unindexed": COUNT}, lambda n: False),
    ("redisson", "queues"): (forget_queue, {"unknown": True}, lambda n: False),
    ("redisson", "all but the index"): (
        lambda raw_client: raw_client.delete(LISTED, NOTES, IDS),
        {"unnamed": COUNT},
        lambda n: False,
    ),
    ("redisson", "all"): (all_of_redisson, {"unknown": True, "lost": 603, "unindexed": 43}, lambda n: False),
}


@pytest.mark.parametrize(("layout", "what"), DAMAGE, indirect=["layout"])
def test_after_a_repair_all_that_has_a_body_is_delivered_once_and_in_order(
    broker: PrivateRedis, store: DelayStore, layout: str, what: str
) -> None:
    """A dry run tells the damage and changes nothing, a repair mends it, a second one finds all sound."""
    raw_client = store.client
    damage, found, gone = DAMAGE[layout, what]
    damage(raw_client)
    before = contents(raw_client)
    command = ["-o", f"layout={layout}", "repair", *(["q"] if "but" in what else [])]
    [dry] = lines(broker, *command, "--dry-run", code=int(bool(found)))
    assert contents(raw_client) == before
    [mended] = lines(broker, *command, "--yes")
    for findings in (dry, mended):
        for kind, count in found.items():
            assert findings[kind] == count, kind
    assert mended["mended"] == bool(found)
    [again] = lines(broker, "-o", f"layout={layout}", "repair", "--dry-run")
    assert {kind: again[kind] for kind in SOUND} == SOUND
    assert store.queues.names() == ["q"]
    if what == "nothing":
        assert contents(raw_client) == before
    order = expected(gone)
    assert again["delayed"] == len(order)
    assert len(store.lookup.get(["q"], [f"t{n}" for n in range(COUNT)])) == len(order)
    if layout == "redisson" or raw_client.exists(ORDER):  # what comes later, to the due time of others, goes behind
        late = offer(150)
        store.delivery.offer("q", late._replace(id="late", body=message("late", PAST, "tag -1")))
        order.insert(order.index(151) + 1 + (152 in order) if 151 in order else 0, -1)
    assert delivered(store) == order
    assert not raw_client.exists(
        *LAYOUT_OF[layout].keys(KEYS, "q")[: 2 if layout == "hash" else 4]
    )  # the hash goes on counting


def test_bodies_that_tell_no_due_time_are_due_now_and_no_messages_are_left_alone(
    broker: PrivateRedis, raw_client: redis.Redis
) -> None:
    """Messages without an eta are named and due now; what no consumer could take is named and stays, exit code 1."""
    store = DelayStore(raw_client, KEYS)
    plain = message("plain")
    odd_eta = message("odd", None).replace('"eta": null', '"eta": "soon"')
    odd = {"text": b"no json", "binary": b"\xff\xfe\x00", "list": b"[]", "bare": b"{}", "empty": b"", "\x7f": b"\x7f"}
    raw_client.hset(
        BODIES, mapping={"plain": plain, "odd eta": odd_eta, "marked": b"\x7f00000009" + b"3" + plain.encode()}
    )
    raw_client.hset(BODIES, mapping=odd)  # type: ignore[arg-type]
    before_ms = store.now_ms()
    for _ in range(2):
        result = run(broker, "repair", "--dry-run", code=1)
        assert "3 of these have no eta" in result.stdout
        assert "6 bodies without an index entry that are no messages" in result.stdout
    [found] = lines(broker, "repair", "--yes", code=1)
    assert (found["unindexed"], found["undated"], found["unreadable"], found["unknown"]) == (3, 3, 6, True)
    assert sorted(found["examples"]["undated"]) == ["marked", "odd eta", "plain"]
    assert sorted(found["examples"]["unreadable"]) == sorted(odd)
    assert all(before_ms <= due <= store.now_ms() for _, due in raw_client.zrange(DUE, 0, -1, withscores=True))
    assert store.delivery.transfer("q").moved == 3
    assert raw_client.hgetall(BODIES) == {key.encode(): body for key, body in odd.items()}
    assert [each["unreadable"] for each in lines(broker, "repair", "--yes", code=1)] == [6]


def test_keys_of_another_type_are_named_and_left_and_hide_nothing(broker: PrivateRedis, store: DelayStore) -> None:
    """Whichever key of a queue has another type is named, the other queues are mended, and the exit code is 1."""
    raw_client = store.client
    keys = KEYS
    for what in ("due", "bodies", "order", "duplicates"):
        store.delivery.offer(what, offer(0))
        key = getattr(keys, what)(what)
        raw_client.delete(key)
        raw_client.lpush(key, "x")
    raw_client.delete(DUE)
    known = raw_client.dump(keys.queues)
    raw_client.set(keys.queues, "x")
    result = run(broker, "repair", "--yes", code=1)
    assert f"key {keys.queues}: WRONGTYPE" in result.stderr
    for what in ("due", "bodies", "order", "duplicates"):
        assert f"left: WRONGTYPE key {getattr(keys, what)(what)} holds a list" in result.stdout
    raw_client.restore(keys.queues, 0, known, replace=True)
    found = {each["queue"]: each["error"] is None for each in lines(broker, "repair", code=1)}
    assert found == {"bodies": False, "due": False, "order": False, "q": True, "duplicates": False}
    assert delivered(store) == expected()


def test_only_the_queues_that_are_given_are_mended_and_odd_names_are_found(
    broker: PrivateRedis, raw_client: redis.Redis
) -> None:
    """Queues with braces, colons, stars and a key prefix are found; keys of others, and queues not asked for, stay."""
    names = ["a", "{a}", "a{b}c", "due", "x:due", "*", "a b", "ü", "tagged:{x}", "{a}:due"]
    for prefix in ("", "p?*:"):
        store = DelayStore(raw_client, Keys(prefix))
        for name in names:
            store.delivery.offer(name, offer(0), offer(1))
            raw_client.delete(store.keys.due(name))
        raw_client.delete(store.keys.queues)
    raw_client.set("delayq:other", 1)
    raw_client.hset("delayq:{no}:data", "a", "b")
    raw_client.hset(b"delayq:{\xff}:bodies", "a", "b")
    run(broker, "repair", "--yes", "*", "{a}")
    assert sorted(DelayStore(raw_client, KEYS).queues.names()) == ["*", "{a}"]
    found = lines(broker, "repair", "--yes", code=1)  # one body has no eta
    errors = {each["queue"]: each["error"] for each in found}
    assert errors == dict.fromkeys([*names, "\udcff"])
    assert {each["queue"] for each in found if each["unindexed"]} == {*names} - {"*", "{a}"}
    prefixed = DelayStore(raw_client, Keys("p?*:"))
    assert prefixed.queues.names() == []
    result = run(broker, "-o", "global_keyprefix=p?*:", "repair", "--yes")
    assert result.stdout.count("2 bodies without an index entry") == len(names)
    for each in (DelayStore(raw_client, KEYS), prefixed):
        assert {name: each.queues.size(name) for name in names} == dict.fromkeys(names, 2)
        assert set(each.queues.names()) == set(names)


def test_queues_of_redisson_alone_are_left_alone(broker: PrivateRedis, raw_client: redis.Redis) -> None:
    """A queue that only other clients ever used is not searched for, and not made known."""
    raw_client.zadd(TIMEOUT, {b"\x07" * 17: 1})
    before = contents(raw_client)
    assert run(broker, "-o", "layout=redisson", "repair").stdout == "no queue holds delayed messages\n"
    assert contents(raw_client) == before


@pytest.mark.journey
def test_nothing_is_mended_unasked(broker: PrivateRedis, store: DelayStore) -> None:
    """Without --yes the findings are shown first; nobody can be asked without a terminal, and a no changes nothing."""
    store.client.delete(DUE)
    before = contents(store.client)
    result = run(broker, "repair", code=2)
    assert "300 bodies without an index entry" in result.stdout
    assert "give --yes" in result.stderr
    with terminal(broker, "repair") as shell:
        shell.read_until(f"Mend this on {broker.url}?")
        shell.type("n")
        assert shell.wait() == 1
    assert contents(store.client) == before
    with terminal(broker, "repair") as shell:
        shell.read_until("Mend this on")
        shell.type("y")
        assert shell.wait() == 0
        assert "indexed by the due time that is kept, or by the eta" in shell.script
    assert delivered(store) == expected()
    run(broker, "repair")


def test_an_empty_broker_is_sound(broker: PrivateRedis) -> None:
    """Without any queue there is nothing to mend, and no error."""
    assert run(broker, "repair").stdout == "no queue holds delayed messages\n"


@pytest.fixture
def damaged(raw_client: redis.Redis) -> DelayStore:
    """A damaged with a body that has no index entry and no eta, and one that only lacks the entry."""
    damaged = DelayStore(raw_client, KEYS)
    damaged.delivery.offer("q", offer(0))
    raw_client.delete(KEYS.due("q"))
    raw_client.hset(KEYS.bodies("q"), "plain", message("plain"))
    return damaged


def test_each_mended_message_counts_once(broker: PrivateRedis, damaged: DelayStore, audit: Audit) -> None:
    """One without an eta is named as such, and is no further message; a dry run and a second repair leave no line."""
    for args in (("--dry-run",), ("--yes",), ("--yes",)):
        run(broker, "repair", *args, code=int("--dry-run" in args))
    [note] = audit()
    assert (note["action"], note["count"]) == ("repair", 2)
    assert note["what"] == {"queue": "q", "outcomes": {"unindexed": 2, "undated": 1}}


@pytest.mark.parametrize("error", [redis.ConnectionError("gone"), redis.ResponseError("WRONGTYPE")], ids=repr)
def test_a_repair_that_fails_half_way_is_noted(
    broker: PrivateRedis, damaged: DelayStore, monkeypatch: pytest.MonkeyPatch, error: Exception, audit: Audit
) -> None:
    """What it has mended by then is in the audit, whether the whole repair ends, or this queue is left."""

    def fails(damaged: DelayStore, findings: Any, *args: Any, **options: Any) -> Iterator[None]:
        yield from check(damaged, findings, *args, **options)
        if isinstance(error, redis.ConnectionError):
            raise error
        findings.error = str(error)

    monkeypatch.setattr(repair, "check", fails)
    run(broker, "repair", "--yes", code=1)
    [note] = audit()
    assert (note["action"], note["count"], note["what"].get("error")) == (
        "repair",
        2,
        "WRONGTYPE" if isinstance(error, redis.ResponseError) else None,
    )
