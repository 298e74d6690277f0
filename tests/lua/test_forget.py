"""``forget.lua``: forgets queues that have been empty and unused for long, and who keeps it from doing so."""

import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
import redis

from kombu_delayq.connection.commands import RedisCommands
from kombu_delayq.store import DelayStore
from kombu_delayq.store.job_types import JobRun
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.types import PageId
from tests.support.conditions import until
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import PAST_MS, contents, waiting
from tests.support.store.plain_names import name_in, unacked_of

QUEUES, USED = "delayq:queues", "delayq:used"
DAY_S = 86_400.0


def unused(store: DelayStore, *queues: str, for_s: float = DAY_S) -> None:
    """Makes queues known that were used last some time ago."""
    now_ms = store.now_ms()
    store.client.sadd(QUEUES, *queues)
    store.client.zadd(USED, dict.fromkeys(queues, now_ms - for_s * 1000))


def test_queues_that_were_unused_for_long_are_forgotten(store: DelayStore) -> None:
    """Of empty queues those go that were not used for the time, and nothing of them is left."""
    odd = ["o{dd}", "~"] if store.keys.slots else ["", "{odd"]
    unused(store, "old", *odd)
    unused(store, "new", for_s=DAY_S - 60)
    assert sorted(store.queues.forget(["old", "new", *odd], DAY_S)) == sorted(["old", *odd])
    assert store.queues.names() == ["new"]
    assert store.client.zrange(USED, 0, -1) == [b"new"]


def test_the_count_of_a_forgotten_queue_goes_too(make_store: MakeStore) -> None:
    """What the last messages of the default layout leave goes with the name of their queue."""
    store = make_store(layout="hash")
    store.delivery.offer("q", waiting("i", PAST_MS, priority=3))
    store.delivery.transfer("q")
    store.client.delete("q\x06\x163")
    unused(store, "q")
    assert store.queues.forget(["q"], DAY_S) == ["q"]
    assert contents(store.client) == {}


@pytest.mark.parametrize("form", ["hash", "redisson"])
def test_a_queue_with_a_message_stays(store: DelayStore, make_store: MakeStore, form: str) -> None:
    """A queue with a message in either layout is in use, however long nobody has seen to it."""
    unused(store, "q")
    make_store(layout=form).delivery.offer("q", waiting("i"))
    for _ in range(2):
        assert store.queues.forget(["q"], DAY_S) == []
    make_store(layout=form).queues.purge("other")
    assert store.queues.names() == ["q"]
    assert store.client.zscore(USED, "q") > store.now_ms() - 60_000


def test_a_queue_that_is_seen_for_the_first_time_stays(store: DelayStore) -> None:
    """Names that earlier releases have left are forgotten a time after they were first seen."""
    store.client.sadd(QUEUES, "q")
    assert store.queues.forget(["q"], 0.05) == []
    until(lambda: store.queues.forget(["q"], 0.05) == ["q"])


def test_a_queue_that_is_consumed_stays(store: DelayStore) -> None:
    """A consumer's note keeps its queue; one about a queue that is not known leaves nothing in the default layout."""
    unused(store, "q")
    store.queues.keep_alive("q")
    assert store.queues.forget(["q"], DAY_S) == []
    store.client.delete(QUEUES, USED)
    store.queues.keep_alive("q")
    assert contents(store.client) == ({} if store.layout == "hash" else {QUEUES.encode(): {b"q"}})


@pytest.mark.parametrize("workers", [1, 3])
def test_a_queue_of_which_a_jvm_service_hears_stays(store: DelayStore, workers: int) -> None:
    """Redisson subscribes to the channel of its queue; a leader and its deputies, who may do so too, do not count."""
    channels = Keys().channel("q"), Keys().wake

    def subscribers() -> list[int]:
        return [count for _, count in store.client.pubsub_numsub(*channels)]

    with ExitStack() as listening:
        for _ in range(workers):
            listening.enter_context(store.delivery.listen()).follow(["q"])
        jvm = listening.enter_context(store.client.pubsub())
        jvm.subscribe(channels[0])
        until(lambda: subscribers() == [workers + 1, workers])
        unused(store, "q")
        assert store.queues.forget(["q"], DAY_S, ["q"]) == []
        jvm.unsubscribe()
        until(lambda: subscribers() == [workers, workers])
        unused(store, "q")
        assert store.queues.forget(["q"], DAY_S) == []
        unused(store, "q")
        assert store.queues.forget(["q"], DAY_S, ["q"]) == ["q"]


def test_times_of_names_that_are_gone_go_too(store: DelayStore) -> None:
    """What tools or earlier releases have taken from the registry leaves no time of its last use for good."""
    store.client.zadd(USED, {f"gone-{n}": 1.0 for n in range(150)})
    for _ in range(2):
        store.queues.forget(["q"], DAY_S)
    assert store.client.zrange(USED, 0, -1) == [b"q"]


@pytest.mark.parametrize("key", [QUEUES, USED])
def test_a_key_of_the_wrong_type_is_named(store: DelayStore, key: str) -> None:
    """Where somebody else's key is in the way, the error names it."""
    store.client.set(key, "in the way")
    with pytest.raises(redis.ResponseError, match=name_in(store, key)):
        store.queues.forget(["q"], DAY_S)


def _enqueue(store: DelayStore) -> object:
    run = JobRun("j", store.jobs.new_run(), ttl_ms=60_000)
    store.jobs.begin(run)
    return store.jobs.enqueue("q", run, [waiting("i")])


def _publish(store: DelayStore) -> object:
    run = JobRun("j", store.jobs.new_run(), ttl_ms=60_000, staged=True)
    store.jobs.begin(run)
    store.jobs.enqueue("q", run, [waiting("i")])
    store.jobs.finish(run, "committed")
    return store.jobs.publish(run)


#: All that brings a message into a queue.
BRING: dict[str, Callable[[DelayStore], object]] = {
    "offer": lambda store: store.delivery.offer("q", waiting("i")),
    "offer_commands": lambda store: RedisCommands(store.client).send(
        store.delivery.offer_commands("q", [waiting("i")])
    ),
    "put": lambda store: store.delivery.put("q", PageId("s", 1), [waiting("i")]),
    "adopt": lambda store: store.delivery.adopt("q", waiting("i"), "", *unacked_of(store)),
    "step": lambda store: store.chains.step("q", "chain", waiting("i", body="chain")),
    "enqueue": _enqueue,
    "publish": _publish,
}


@pytest.mark.parametrize("bring", BRING.values(), ids=list(BRING))
def test_a_purge_while_a_message_comes_leaves_no_message_that_nobody_knows(
    store: DelayStore, make_store: MakeStore, bring: Callable[[DelayStore], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever comes between making a queue known and its first message, the queue is known when that is there."""
    pipeline = redis.client.Pipeline.execute_command
    other = redis.Redis(port=store.client.connection_pool.connection_kwargs["port"])

    def with_a_purge_between(pipe: redis.client.Pipeline, *command: object) -> object:
        pipeline(pipe, *command)
        if command[0] == "SADD" and len(pipe.command_stack) == 1:
            DelayStore(other, store.keys, options=store.options).queues.purge(
                "q"
            )  # what is sent together may still be run apart
            pipeline(pipe, "SREM", store.keys.queues, "q")
            replies.append(pipe)
        return pipe

    def without_the_extra(pipe: redis.client.Pipeline, *args: object, **kwargs: object) -> list[object]:
        found = execute(pipe, *args, **kwargs)
        return [found[0], *found[2:]] if pipe in replies else found

    replies: list[redis.client.Pipeline] = []
    execute = redis.client.Pipeline.execute
    monkeypatch.setattr(redis.client.Pipeline, "execute_command", with_a_purge_between)
    monkeypatch.setattr(redis.client.Pipeline, "execute", without_the_extra)
    bring(store)
    monkeypatch.undo()
    assert store.queues.size("q") == 1
    assert store.queues.names() == ["q"]
    other.close()


def test_publishers_and_those_who_forget_leave_no_message_that_nobody_knows(
    store: DelayStore, make_store: MakeStore
) -> None:
    """While a queue is offered messages, emptied and forgotten all the time, what is left in it is known."""
    publisher = make_store(forget_after=1.0)
    deadline, n = time.monotonic() + 2, 0
    while time.monotonic() < deadline:
        publisher.delivery.offer("q", waiting(f"i{n}"))
        assert store.queues.names() == ["q"]
        store.lookup.cancel(["q"], [f"i{n}"])
        unused(store, "q")
        assert store.queues.forget(["q"], DAY_S) == ["q"]
        n += 1
