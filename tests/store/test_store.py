"""What ``DelayStore`` does besides running scripts: the known queues, the script cache, round trips."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError
from redis.retry import Retry

from celery_ext.dead_letters.store import Letter, LetterStore
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.journal.promotion import ALL, Promotion
from celery_ext.limits import LimitStore
from celery_ext.periodic.store import PeriodicStore, Run
from celery_ext.repair.store import Idle, RepairStore
from celery_ext.serve.store import Answers
from celery_ext.spark.job_types import JobRun
from kombu_delayq.options import QueueLimits
from kombu_delayq.redis import scripts
from kombu_delayq.store import DelayStore
from kombu_delayq.store.client import StoreClient
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import DelayedQueue, Offer, PageId, Part, Request, Requeued, Waiting
from tests.support.store.cost import calls, round_trips
from tests.support.store.fixtures import MakeStore
from tests.support.store.jobs import jobs
from tests.support.store.keyspace import (
    FUTURE_MS,
    KEYS,
    PAST_MS,
    by_queue,
    clock_ms,
    contents,
    in_form,
    popped,
    waiting,
)
from tests.support.store.promoting import JOURNAL_ID, numbers, row

#: A bulk job.
JOB = JobRun("j", 1, 600_000)


def _change(store: DelayStore) -> Change:
    return Change(Waiting("q", "k", FUTURE_MS, 0, b"body of k", store.layout), FUTURE_MS + 1, b"")


def _begun(store: DelayStore) -> JobRun:
    """Returns a run that may write."""
    job = JOB._replace(name="other")
    jobs(store).begin(job)
    return job


def _replay(store: DelayStore) -> None:
    key = store.keys.ready("dead", (0,))[0]
    store.client.lpush(key, "letter")
    store.part(LetterStore).replay("dead", key, {0: Letter(b"letter", "away")})


OPERATIONS: dict[str, Callable[[DelayStore], Any]] = {
    "offer": lambda store: store.delivery.offer("q", waiting("i")),
    "adopt": lambda store: store.delivery.adopt("q", waiting("j"), ""),
    "transfer": lambda store: store.delivery.transfer("q"),
    "give_back": lambda store: store.delivery.give_back("q", 0, "body"),
    "transfer_limited": lambda store: store.delivery.transfer_limited("q", QueueLimits("run", None, 5, 5)),
    "bury": lambda store: store.delivery.bury(DelayedQueue("q", store.layout), [], "dead"),
    "heads": lambda store: store.delivery.heads(["q"]),
    "fetch": lambda store: store.fetching.fetch(Request("", 0, 1, ["q"], unnoted=["q"])),
    "ack": lambda store: store.fetching.ack(["unknown"], "q"),
    "requeue": lambda store: store.fetching.requeue([Requeued("unknown", "q", 0, "body")], "next"),
    "heartbeat": lambda store: store.consumers.heartbeat("host:1:name", ["q"], is_new=True),
    "fence": lambda store: store.consumers.fence(["unknown"], "q"),
    "leave": lambda store: store.consumers.leave(["unknown"], "q"),
    "refresh_keys": lambda store: store.part(LimitStore).refresh_keys("q"),
    "back_off": lambda store: store.part(LimitStore).back_off("q", "k", 0, "unknown", "", 0, is_early=False),
    "take_parked": lambda store: store.part(LimitStore).take_parked("q", [b"unknown"]),
    "unpark": lambda store: store.part(LimitStore).unpark("q"),
    "drop_parked": lambda store: store.part(LimitStore).drop_parked("q"),
    "stats": lambda store: store.queues.stats("q"),
    "watch_heads": lambda store: store.leases.watch_heads([DelayedQueue("q", store.layout)]),
    "lead": lambda store: store.leases.lead("name"),
    "look": lambda store: store.leases.look("name", store.delivery.dues(["q"])),
    "watched": lambda store: store.leases.watched(),
    "release": lambda store: store.leases.release("name"),
    "get": lambda store: store.lookup.get(["q"], ["i"]),
    "cancel": lambda store: store.lookup.cancel(["q"], ["i"]),
    "reschedule": lambda store: store.lookup.reschedule("q", [_change(store)]),
    "run_now": lambda store: store.lookup.run_now("q", [_change(store)]),
    "step": lambda store: store.chains.step("q", "chain", waiting("s", body="step of chain")),
    "check_chain": lambda store: store.chains.check_chain(waiting("s")),
    "undo_step": lambda store: store.chains.undo_step("q", "chain", waiting("k")),
    "cancel_chains": lambda store: store.chains.cancel_chains(["unknown"]),
    "repair_index": lambda store: store.part(RepairStore).repair_index("q", [b"unknown"], mend=True),
    "repair_bodies": lambda store: store.part(RepairStore).repair_bodies("q", [(b"unknown", None)], mend=True),
    "repair_list": lambda store: store.part(RepairStore).repair_list("q", 0, mend=True),
    "forget_idle": lambda store: store.part(RepairStore).forget_idle([Idle("unused", "list", 0)], 3600),
    "replay": _replay,
    "index": lambda store: LAYOUT_OF["redisson"].index_others(StoreClient(store.client, store.keys), "q"),
    "scan": lambda store: store.scan.scan(Part("q", layout=store.layout)),
    "split": lambda store: store.scan.split("q", [0]),
    "begin": lambda store: jobs(store).begin(JOB),
    "enqueue": lambda store: jobs(store).enqueue("q", JOB, [waiting("b")]),
    "finish": lambda store: jobs(store).finish(JOB, "committed"),
    "job_rate": lambda store: jobs(store).job_rate(JOB._replace(max_rate=1000.0), 1),
    "claim_ids": lambda store: jobs(store).claim_ids(_begun(store), ["unknown"]),
    "convert": lambda store: store.queues.convert("q"),
    "purge": lambda store: store.queues.purge("q"),
    "offer_once": lambda store: store.delivery.offer_once("q", "keep", waiting("once")),
    "put": lambda store: store.delivery.put("q", PageId(uuid4().hex, 1), [waiting("p")]),
    "keep_alive": lambda store: store.queues.keep_alive("q", 60_000),
    "due_counts": lambda store: store.figures.due_counts(["q"], [0, FUTURE_MS]),
    "held_page": lambda store: store.figures.held_page(0),
    "claim": lambda store: store.part(Answers).claim("key", "digest"),
    "end_claim": lambda store: store.part(Answers).end_claim(
        "key", store.part(Answers).claim("key", "digest"), "forget"
    ),
    "discard": lambda store: store.lookup.discard("q", [(_change(store).message, "")]),
    "elect": lambda store: store.part(Promotion).elect(JOURNAL_ID, 1, 1, 0, ["q"]),
    "journal_heartbeat": lambda store: store.part(Promotion).journal_heartbeat(JOURNAL_ID, 1, 0, [ALL], {}),
    "promote": lambda store: store.part(Promotion).promote(JOURNAL_ID, 1, [row(1)]),
    "claim_rows": lambda store: store.part(Promotion).claim_rows(numbers(2)),
    "settle_rows": lambda store: store.part(Promotion).settle_rows(JOURNAL_ID, 1, numbers(2)),
    "arm": lambda store: store.part(PeriodicStore).arm("q", 1, [Run("entry", "digest", 1, waiting("r"))]),
    "disarm": lambda store: store.part(PeriodicStore).disarm("q", ["entry"], 1),
    "forget_empty": lambda store: store.queues.forget_empty(["unknown"]),
    "close": lambda store: jobs(store).close(JOB),
    "count_minute": lambda store: store.figures.count_minute({"q": {"failed": 1}}),
}


#: Operations that are for one layout only.
ONLY = {"index": "redisson", "repair_bodies": "hash", "repair_list": "redisson"}
#: Operations whose scripts are not used in hash slots: what they do is done queue by queue there, by others.
PLAIN_ONLY = {"held_page", "look", "watched"}
USED = [each for each in OPERATIONS if each not in PLAIN_ONLY]


def test_there_is_a_call_for_every_operation() -> None:
    """The tests below leave no operation out."""
    assert OPERATIONS.keys() == scripts.operations().keys()


def test_a_flushed_script_cache_is_not_noticed(store: DelayStore) -> None:
    """After ``SCRIPT FLUSH`` every operation works, and its script is known again."""
    for each in USED:
        OPERATIONS[each](store)
    for each in USED:
        store.delivery.offer("q", waiting("k"))
        store.client.script_flush()
        OPERATIONS[each](store)
        script = scripts.load(each, ONLY.get(each, store.layout), guarded=bool(store.keys.guards(["q"])))
        assert store.client.script_exists(script.sha) == [True], each


def test_a_publish_costs_one_round_trip(store: DelayStore) -> None:
    """A message costs one round trip and one command; the first one of a queue another, which makes the queue known."""
    store.client.ping()
    store.delivery.offer("other", waiting("i"))  # Redis has the scripts from here on
    for name in "abcd":
        expected = 2 if name == "a" else 1
        assert round_trips(store, lambda name=name: store.delivery.offer("q", waiting(name))) == expected
    store.client.config_resetstat()
    store.delivery.offer("q", waiting("e"))
    sent = calls(store)
    assert sent["evalsha"] == 1
    assert not {"eval", "sadd", "multi"} & sent.keys()


def test_a_queue_is_known_as_soon_as_it_holds_a_message(store: DelayStore) -> None:
    """Every queue that was offered a message is known, and stays so for a while when its messages have left."""
    store.delivery.offer("b", waiting("i", PAST_MS))
    store.delivery.offer("a", waiting("i"))
    assert store.queues.names() == ["a", "b"]
    store.delivery.transfer("b")
    assert store.queues.names() == ["a", "b"]


def test_a_queue_is_known_again_after_its_name_was_lost(make_store: MakeStore) -> None:
    """After ``FLUSHALL``, or a purge by another process, the next message makes its queue known again."""
    store, other = make_store(), make_store()
    for lose in (store.client.flushall, lambda: other.queues.purge("q")):
        for name in "abc":
            store.delivery.offer("q", waiting(name))
        lose()
        assert other.queues.names() == []
        assert store.delivery.offer("q", waiting("d")).place == "first"
        assert store.queues.names() == ["q"]


def test_an_adopted_message_makes_its_queue_known(store: DelayStore) -> None:
    """A queue whose first delayed message is an adopted one is known."""
    store.delivery.adopt("q", waiting("i"), "")
    assert store.queues.names() == ["q"]


def test_a_pipeline_of_ones_own_may_offer(store: DelayStore) -> None:
    """``offering`` is what ``offer`` does: the messages are stored, and the queue is known."""
    commands = list[tuple[object, ...]]()
    before_ms = clock_ms(store.client)
    with store.delivery.offering(
        [("q", [waiting("i"), Offer("j", "+1000000", 3, "body")], 60_000)], lambda *command: commands.append(command)
    ):
        [reply] = [store.client.execute_command(*command) for command in commands]
    assert store.queues.names() == ["q"]
    assert reply == [b"first", 2, 0, 0]
    assert store.queues.size("q") == 2
    assert before_ms + 1_000_000 <= by_queue(store.delivery.heads(["q"]))["q"] < FUTURE_MS
    assert store.client.pttl(in_form(store, "delayq:{q}:due")) > 60_000


def test_the_leader_is_who_holds_the_lease(store: DelayStore) -> None:
    """Nobody leads until one takes the lease, nor after it is given back."""
    assert store.leases.leader() is None
    store.leases.lead("host:1:ab")
    assert store.leases.leader() == "host:1:ab"
    store.leases.release("host:1:ab")
    assert store.leases.leader() is None


def test_a_queue_in_use_is_kept_alive(store: DelayStore) -> None:
    """``keep_alive`` gives all keys of a queue their full time again, and makes none.

    It takes one round trip, in Redisson's layout another one, which makes the queue known.
    """
    store.delivery.offer("q", waiting("i", PAST_MS, priority=3), waiting("i", PAST_MS), expire_ms=10_000)
    store.queues.keep_alive("q", 10_000)  # Redis has the script from here on
    before = contents(store.client)
    assert round_trips(store, lambda: store.queues.keep_alive("q", 60_000)) == (1 if store.layout == "hash" else 2)
    store.queues.keep_alive("q", 60_000)
    assert contents(store.client) == before
    for key in LAYOUT_OF[store.layout].keys(store.keys, "q"):
        assert 10_000 < store.client.pttl(key) <= 60_000


def test_a_client_that_decodes_will_do(redis_server: PrivateRedis, client: redis.Redis) -> None:
    """A store works with a client that decodes its replies too."""
    store = DelayStore(client, KEYS)
    for each in USED:
        OPERATIONS[each](store)
    store.delivery.offer("q", waiting("i", PAST_MS), waiting("j"))
    assert "q" in store.queues.names()
    assert store.delivery.transfer("q").moved == 1
    assert "body of i" in popped(client, "q")


def test_errors_of_redis_pass_through(own_server: PrivateRedis) -> None:
    """Where Redis is gone, every operation raises the Redis client's own error."""
    store = DelayStore(redis.Redis(port=own_server.port, retry=Retry(NoBackoff(), 0)), KEYS)
    store.client.ping()
    own_server.stop()
    for each in USED:
        with pytest.raises(redis.ConnectionError):
            OPERATIONS[each](store)


def test_a_user_without_publish_still_stores(make_store: MakeStore, own_server: PrivateRedis) -> None:
    """A wake message that an ACL forbids does not fail the publish."""
    admin = make_store(own_server)
    admin.client.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~*", "resetchannels", "+@all", "-publish")
    app = redis.Redis(port=own_server.port, username="app", password="pw")
    restricted = DelayStore(app, KEYS, options=admin.options)
    with pytest.raises(NoPermissionError):
        restricted.client.publish(restricted.keys.wake, "x")
    assert restricted.delivery.offer("q", waiting("i")) == ("first", 1, 0, 0)
    assert restricted.delivery.offer("q", waiting("j", PAST_MS)).place == "head"
    assert restricted.delivery.transfer("q").moved == 1
    assert admin.queues.size("q") == 1
    restricted.close()


def test_a_tracer_of_the_client_sees_what_is_published(store: DelayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishing asks Redis without the client's own way, unless somebody listens there."""
    seen: list[str] = []
    for number in range(2):  # the queue is registered
        store.delivery.offer("q", Offer(f"i{number}", repr(FUTURE_MS), 0, "body"))
    original = redis.Redis.execute_command

    def traced(self: Any, *args: Any, **options: Any) -> Any:
        seen.append(args[0])
        return original(self, *args, **options)

    monkeypatch.setattr(redis.Redis, "execute_command", traced)
    store.delivery.offer("q", Offer("i2", repr(FUTURE_MS), 0, "body"))
    assert seen == ["EVALSHA"]
