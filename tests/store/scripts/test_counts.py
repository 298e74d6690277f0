"""The counters that scripts keep of each queue: what was transferred, how late, and what else was done."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import redis
from redis.exceptions import NoPermissionError

from celery_ext.dead_letters.store import Letter, LetterStore
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from kombu_delayq.store.counts import LATENESS_BOUNDS_S, OPERATIONS, QueueCounts
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Requeued
from tests.support.store.consuming import fetch, lives
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, lose_body, only, waiting

COUNTS = "delayq:{q}:counts"
WEEK_S = 7 * 86_400


def counts(store: DelayStore, queue: str = "q") -> QueueCounts:
    return store.figures.counts([queue])[queue]


def drain(store: DelayStore) -> list[float]:
    """Transfers all that is due. Returns the time of each call by Redis's clock, ms since the epoch."""
    times, more = [], True
    while more:
        done = store.delivery.transfer("q")
        times.append(done.now_ms)
        more = done.more
    return times


def offer_late(store: DelayStore, *late_s: float) -> None:
    """Offers messages that are late already."""
    now_ms = store.now_ms()
    store.delivery.offer("q", *(waiting(f"{late_s[at]}-{at}", now_ms - 1000 * late_s[at]) for at in range(len(late_s))))


@pytest.mark.parametrize("batch", [1, 3, 200])
def test_each_message_counts_in_the_bucket_of_its_lateness(make_store: MakeStore, batch: int) -> None:
    """A message is counted by how late it was, in whatever batches messages leave, and whatever their number."""
    store = make_store(transfer_batch=batch)
    # Calls may take a second of a busy machine, so that bounds below that tell nothing; after more, messages are later.
    latenesses = [low + (high - low) / 10 for low, high in pairwise(LATENESS_BOUNDS_S[7:])]
    late = [*latenesses * 2, 4000.0, 5000.0]
    begun_ms = store.now_ms()
    offer_late(store, *late)
    store.delivery.offer("q", waiting("later"))
    passed_s = (drain(store)[-1] - begun_ms) / 1000
    found = counts(store)
    assert (found.transferred, found.lost) == (len(late), 0)
    for bound, count in zip(LATENESS_BOUNDS_S, found.lateness.buckets, strict=True):
        assert sum(one + passed_s <= bound for one in late) <= count <= sum(one <= bound for one in late)
    assert found.lateness.count == len(late)


def test_a_punctual_message_is_in_the_first_bucket(store: DelayStore) -> None:
    """A message that is hardly late counts in every bucket from the first on."""
    while not counts(store).lateness.buckets[0]:
        store.delivery.offer("q", waiting("i", store.now_ms() + 1))
        while not store.delivery.transfer("q").moved:
            pass
    found = counts(store)
    assert found.lateness.buckets[-1] == found.transferred
    assert found.lateness.sum_s >= 0.0025 * found.lateness.buckets[0]


@pytest.mark.parametrize(
    "late_s", [(7.0,), (7.0, 2.0), (9.0, 9.0, 9.0, 9.0), tuple(3.0 + at / 50 for at in range(150))]
)
def test_the_sum_of_the_lateness(store: DelayStore, late_s: tuple[float, ...]) -> None:
    """The sum is exact for few messages, for those of one due time, and for those that are evenly spread."""
    before_ms = store.now_ms()
    offer_late(store, *late_s)
    drain(store)
    passed_s = (store.now_ms() - before_ms) / 1000
    found = counts(store).lateness
    assert found.count == len(late_s)
    rounded_s = 0.001 * len(late_s)  # Redisson's layout has whole ms, rounded up
    assert sum(late_s) - rounded_s <= found.sum_s <= sum(late_s) + len(late_s) * (passed_s + 1)


def test_the_sum_of_the_lateness_is_close_for_any_due_times(make_store: MakeStore) -> None:
    """With due times that are unevenly spread, the sum of several batches is an estimate of a few percent."""
    store = make_store(transfer_batch=40)
    late_s = [1.0 + 100.0 * (at / 400) ** 3 for at in range(400)]
    before_ms = store.now_ms()
    for start in range(0, len(late_s), 100):
        offer_late(store, *late_s[start : start + 100])
    passed_s = (drain(store)[-1] - before_ms) / 1000
    assert 0.97 * sum(late_s) <= counts(store).lateness.sum_s <= 1.03 * (sum(late_s) + len(late_s) * passed_s)


def test_lost_messages_are_counted_apart(store: DelayStore) -> None:
    """An index entry without a body counts as lost and as nothing else."""
    store.delivery.offer("q", *(waiting(str(at), PAST_MS + at) for at in range(4)))
    lose_body(store, "1", "2")
    drain(store)
    found = counts(store)
    assert (found.transferred, found.lost, found.lateness.count) == (2, 2, 2)
    assert found.lateness.buckets[-1] == 0


def _change(store: DelayStore, identity: str, due_ms: float = FUTURE_MS + 1) -> list[Change]:
    return [Change(only(store, identity), due_ms, b"another body")]


def test_operations_count_messages(store: DelayStore) -> None:
    """Each operation counts the messages to which it was done, not its calls, and not what it could not do."""
    store.delivery.offer("q", *(waiting(str(at)) for at in range(12)), waiting("1", body="duplicate"))
    store.lookup.cancel(["q"], ["1", "2", "unknown"])
    store.lookup.reschedule("q", [*_change(store, "3"), *_change(store, "4"), *_change(store, "5", PAST_MS)])
    store.lookup.run_now("q", [*_change(store, "6"), *_change(store, "7"), *_change(store, "8")])
    store.lookup.run_now("q", [Change(only(store, "9")._replace(body=b"not this"), 0, b"")])
    assert store.lookup.discard("q", [(only(store, "10"), "")] * 2) == ["cancelled", "not_delayed"]
    assert store.queues.purge("q") == 6
    store.client.lpush("dead", "a", "b", "c", "d")
    goals: list[Any] = [(b"a", "queue", "q"), (b"c", "away"), (b"d", "away"), (b"gone", "away")]
    store.part(LetterStore).replay(
        "dead", "dead", {at: Letter(*goal) for at, goal in zip((0, 2, 3, 4), goals, strict=True)}
    )
    found = counts(store).operations
    assert found == {"cancel": 4, "reschedule": 2, "run_now": 3, "purge": 6, "replay": 0, "drop": 0}
    assert counts(store, "dead").operations == {**dict.fromkeys(OPERATIONS, 0), "replay": 1, "drop": 2}
    assert counts(store).transferred == 0


def test_what_changes_nothing_counts_nothing(store: DelayStore) -> None:
    """Operations that find no message leave no counters behind."""
    store.lookup.cancel(["q"], ["unknown"])
    store.queues.purge("q")
    store.part(LetterStore).replay("dead", "dead", {0: Letter(b"unknown", "away")})
    assert not store.client.keys("*:counts")


def test_messages_that_come_back_are_counted_if_they_are_delivered_again(store: DelayStore) -> None:
    """Of messages that consumers give back those count that are redelivered, each for its queue."""
    lives(store, queues=("q", "p", "fresh"))
    for first, queue in ((1, "q"), (10, "p"), (20, "fresh")):
        store.client.lpush(queue, "a", "b")
        rows = [Requeued(taken.tag, queue, 0, taken.body) for taken in fetch(store, 2, queue, first=first)]
        store.fetching.requeue([*rows, Requeued("gone", queue, 0, "c")], "next", redelivers=queue != "fresh")
    assert [counts(store, queue).redelivered for queue in ("q", "p", "fresh")] == [2, 2, 0]


#: Operations that count, each on messages that ``prepare`` brings; each returns whether it was done.
ACTS: dict[str, Callable[[DelayStore, Requeued], bool]] = {
    "transfer": lambda store, _: store.delivery.transfer("q").moved == 1,
    "cancel": lambda store, _: len(store.lookup.cancel(["q"], ["2"])["2"]) == 1,
    "reschedule": lambda store, _: store.lookup.reschedule("q", _change(store, "0")) == ["rescheduled"],
    "run_now": lambda store, _: store.lookup.run_now("q", _change(store, "1")) == ["transferred"],
    "redelivered": lambda store, held: store.fetching.requeue([held], "next", redelivers=True) == [],
    "drop": lambda store, _: store.part(LetterStore).replay("dead", "dead", {0: Letter(b"a", "away")}) == [0],
    "replay": lambda store, _: (
        store.part(LetterStore).replay("dead", "dead", {0: Letter(b"b", "queue", "q", 0, b"c")}) == [0]
    ),
    "purge": lambda store, _: store.queues.purge("q") > 0,
}


def prepare(store: DelayStore) -> Requeued:
    """Brings messages for all operations. Returns one that is held."""
    store.delivery.offer("q", *(waiting(str(at)) for at in range(4)))
    store.client.lpush("q", "held")
    store.client.lpush("dead", "a", "b")
    lives(store)
    [taken] = fetch(store, 1)
    store.delivery.offer("q", waiting("due", PAST_MS))
    return Requeued(taken.tag, "q", 0, taken.body)


def counted(store: DelayStore) -> set[str]:
    """Returns which of the operations were counted."""
    of_q, of_dead = counts(store), counts(store, "dead")
    found = {name for of in (of_q, of_dead) for name, number in of.operations.items() if number}
    return found | {name for name in ("transferred", "redelivered") if getattr(of_q, name)}


def test_a_key_of_the_wrong_type_disturbs_nothing(store: DelayStore) -> None:
    """Somebody else's key in the place of the counters stays as it is, and every operation works."""
    held = prepare(store)
    for queue in ("q", "dead"):
        store.client.set(f"delayq:{{{queue}}}:counts", "somebody else's")
    for name, act in ACTS.items():
        assert act(store, held), name
    assert store.client.get(COUNTS) == b"somebody else's"


#: The keys of a queue, and what all queues share, without the counters; on a plain server, and in hash slots.
OTHER_KEYS = [
    *(f"~{{delayq}}:{what}" for what in ("queues", "consumed_queues", "cancelled", "chains")),
    *(f"~delayq:{{q}}:{what}" for what in ("due", "bodies", "order", "duplicates", "notes", "ids", "landing*")),
    *(f"~delayq:{{q}}:{what}" for what in ("consumers", "consumed", "places*")),
    "~{delayq}:places*",
    *("~q*", "~{q}*", "~dead", "~unacked*", "~redisson*", "~*:moves"),
]


@pytest.mark.parametrize("rights", [["~*", "-hincrby"], OTHER_KEYS], ids=["command", "key"])
def test_a_user_who_may_not_count_can_do_all_else(
    make_store: MakeStore, own_server: PrivateRedis, rights: list[str]
) -> None:
    """Without the right for the command, or for the key of the counters, every operation works and counts nothing."""
    admin = make_store(own_server)
    held = prepare(admin)
    admin.client.execute_command("ACL", "SETUSER", "poor", "on", ">password", "&*", "+@all", *rights)
    client = redis.Redis(port=own_server.port, username="poor", password="password")
    store = DelayStore(client, admin.keys, options=admin.options)
    with pytest.raises(NoPermissionError):
        client.hincrby(COUNTS, "transferred", 1)
    # In Redisson's layout a message that is stored needs the same command.
    left_out = "reschedule" if "-hincrby" in rights and store.layout == "redisson" else ""
    for name, act in ACTS.items():
        assert name == left_out or act(store, held), name
    assert counted(admin) == set()
    store.close()


def test_all_operations_count(store: DelayStore) -> None:
    """The operations that the tests above use count, where nothing keeps them from it."""
    held = prepare(store)
    for name, act in ACTS.items():
        assert act(store, held), name
    assert counted(store) == {*ACTS.keys() - {"transfer"}, "transferred"}


def test_a_full_redis_counts_what_it_does(make_store: MakeStore, own_server: PrivateRedis) -> None:
    """A full Redis counts what can be done in it, such as to remove messages and to take them back."""
    store = make_store(own_server)
    held = prepare(store)
    store.client.config_set("maxmemory", 1)
    for name in (names := ["cancel", "redelivered", "drop", "purge"]):
        assert ACTS[name](store, held), name
    assert counted(store) == {*names}


def test_counters_survive_a_purge(store: DelayStore) -> None:
    """A purge keeps the counters for a week; a queue that is used again keeps them for good."""
    store.delivery.offer("q", waiting("i", PAST_MS))
    store.delivery.transfer("q")
    assert store.client.ttl(COUNTS) == -1
    store.client.delete("q")
    store.delivery.offer("q", waiting("i", PAST_MS))
    store.queues.purge("q")
    assert counts(store).transferred == counts(store).operations["purge"] == 1
    assert WEEK_S - 100 < store.client.ttl(COUNTS) <= WEEK_S
    store.delivery.offer("q", waiting("i", PAST_MS))
    store.delivery.transfer("q")
    assert counts(store).transferred == 2
    store.delivery.offer("q", waiting("later"))
    store.queues.keep_alive("q")
    assert store.client.ttl(COUNTS) == -1


def test_counters_of_a_deleted_queue_are_gone(store: DelayStore) -> None:
    """Whoever deletes a queue deletes its counters, and its name among the queues of dead letters."""
    store.delivery.offer("q", waiting("i"))
    store.lookup.cancel(["q"], ["i"])
    store.queues.note_dead_letters("q")
    assert store.queues.of_letters() == ["q"]
    assert store.queues.delete("q") == 0
    assert not store.client.exists(COUNTS)
    assert store.queues.of_letters() == []


def test_counters_live_as_long_as_a_queue_that_expires(store: DelayStore) -> None:
    """With x-expires counters end with the keys of the queue, or x-expires later than its last transfer."""
    expire_ms = 60_000
    due_ms = store.now_ms() + 3_600_000
    store.delivery.offer("q", waiting("i", PAST_MS), waiting("later", due_ms), expire_ms=expire_ms)
    store.delivery.transfer("q")
    keys = [COUNTS, LAYOUT_OF[store.layout].keys(store.keys, "q")[0]]
    own, of_queue = map(store.client.pttl, keys)
    assert abs(own - of_queue) < 5000
    store.delivery.offer("q", waiting("far", due_ms + 3_600_000), expire_ms=expire_ms)
    store.queues.keep_alive("q", expire_ms)
    own, of_queue = map(store.client.pttl, keys)
    assert abs(own - of_queue) < 5000
    assert own > 7_000_000
    store.lookup.cancel(["q"], ["far", "later"])
    store.delivery.offer("p", waiting("i", PAST_MS), expire_ms=expire_ms)
    store.delivery.transfer("p")
    assert 50_000 < store.client.pttl(COUNTS.replace("{q}", "{p}")) <= expire_ms + 1000


def test_a_queue_that_expires_no_more_keeps_its_counters(store: DelayStore) -> None:
    """Counters of a queue that loses its x-expires lose their end when a consumer keeps it alive."""
    store.delivery.offer("q", waiting("i", PAST_MS), expire_ms=60_000)
    store.delivery.transfer("q")
    assert 0 < store.client.pttl(COUNTS) <= 60_000
    store.queues.keep_alive("q")
    assert store.client.pttl(COUNTS) > 60_000, "nothing waits, so nobody knows yet"
    store.delivery.offer("q", waiting("later"))
    store.queues.keep_alive("q")
    assert store.client.pttl(COUNTS) == -1


def test_counters_of_queues_that_nobody_knows_end(store: DelayStore) -> None:
    """Counters of a queue that never held delayed messages, such as one of dead letters, are kept for a while."""
    store.client.lpush("dead", "a", "b")
    for message in (b"a", b"b"):
        store.part(LetterStore).replay("dead", "dead", {0: Letter(message, "away")})
        assert WEEK_S - 100 < store.client.ttl("delayq:{dead}:counts") <= WEEK_S
        store.client.expire("delayq:{dead}:counts", 5)
    assert counts(store, "dead").operations["drop"] == 2
