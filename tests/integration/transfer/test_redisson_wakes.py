"""How a transfer worker hears of messages in Redisson's layout, from our publishers and from other clients."""

import logging
import struct
import time
from collections.abc import Iterator

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.redisson_layout import RedissonKeys
from tests.support.conditions import stays, until
from tests.support.workers.held import KEYS
from tests.support.workers.transfers import QUEUE, Transfer, arrived, listeners, offer

#: More than any test here takes: what is delivered sooner was not found by a poll.
RARE_POLLS = {"poll_interval": 60.0}
LATE_S = 30.0
NONSENSE = ("abc", "", "1e999", "-1e999", "nan", "-5", "1e300", "0", "0x10", b"\xff\xfe", "9" * 5000, "1 2")

pytestmark = pytest.mark.parametrize("layout", ["redisson"], indirect=True)


@pytest.fixture
def store(client: redis.Redis) -> DelayStore:
    """Keeps messages in Redisson's layout, on an empty database."""
    return DelayStore(client, KEYS, options=Options(layout="redisson"))


@pytest.fixture
def raw(redis_server: PrivateRedis) -> Iterator[redis.Redis]:
    with redis.Redis(port=redis_server.port) as raw:
        yield raw


def offer_as_redisson(client: redis.Redis, value: str, delay_s: float, queue: str = QUEUE) -> None:
    """Offers a value as Redisson does, with what it publishes."""
    keys, message = KEYS, f'"{value}"'.encode()
    due_ms = int((time.time() + delay_s) * 1000)
    entry = struct.pack("<dQ", abs(hash(value)), len(message)) + message
    client.zadd(RedissonKeys(keys).timeout(queue), {entry: due_ms})
    client.rpush(RedissonKeys(keys).listed(queue), entry)
    if client.zrange(RedissonKeys(keys).timeout(queue), 0, 0) == [entry]:
        client.publish(RedissonKeys(keys).channel(queue), due_ms)


def test_a_new_head_is_delivered_on_time_without_a_poll(
    store: DelayStore, raw: redis.Redis, transfer: Transfer
) -> None:
    """The leader wakes for what a publisher of ours and another client announce, and is not early."""
    store.queues.know(QUEUE)
    transfer(**RARE_POLLS)
    until(lambda: listeners(store.client, "redisson") == 1)
    offer(store, "far", 3000)
    begun = time.time()
    offer(store, "ours", 0.4)
    until(lambda: arrived(store.client) == {"ours": 1}, LATE_S)
    assert time.time() >= begun + 0.4
    begun = time.time()
    offer_as_redisson(raw, "theirs", 0.4)
    until(lambda: arrived(store.client) == {"ours": 1, "theirs": 1}, LATE_S)
    assert time.time() >= begun + 0.399  # the client's clock, in whole ms


def test_queues_are_followed_as_they_become_known(store: DelayStore, raw: redis.Redis, transfer: Transfer) -> None:
    """A queue that gets its first message while a leader runs is followed from the next poll on."""
    transfer(poll_interval=0.2)
    for queue in ("orders", "with space", "{a}b"):
        offer(store, "first", 0.1, queue)
        until(lambda: listeners(store.client, "redisson", queue) == 1, LATE_S)  # noqa: B023
        offer_as_redisson(raw, "second", 0.1, queue)
        until(lambda: arrived(store.client, queue) == {"first": 1, "second": 1}, LATE_S)  # noqa: B023


def test_a_cut_subscription_is_made_again_with_a_transfer(
    store: DelayStore, raw: redis.Redis, transfer: Transfer
) -> None:
    """What is announced while the subscription is cut is delivered when it is there again, and not by a poll."""
    store.queues.know(QUEUE)
    transfer(**RARE_POLLS)
    until(lambda: listeners(store.client, "redisson") == 1)
    for n in range(5):
        with raw.pipeline() as pipe:  # nobody listens when it is announced
            pipe.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            offer_as_redisson(pipe, str(n), 0)
            pipe.execute()
        raw.zrange(RedissonKeys(KEYS).timeout(QUEUE), 0, -1)
        until(lambda: arrived(store.client)[str(n)] == 1, LATE_S)  # noqa: B023
        until(lambda: listeners(store.client, "redisson") == 1, LATE_S)
    assert set(arrived(store.client).values()) == {1}


def test_nonsense_on_the_channels_stops_nobody(
    store: DelayStore, raw: redis.Redis, transfer: Transfer, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is published on Redisson's channel or ours, the leader goes on, hears, and logs no fault."""
    store.queues.know(QUEUE)
    [worker] = transfer(**RARE_POLLS)
    until(lambda: listeners(store.client, "redisson") == 1)
    offer(store, "far", 3000)
    with caplog.at_level(logging.WARNING, "kombu_delayq"):
        for n, nonsense in enumerate(NONSENSE):
            for channel in (RedissonKeys(KEYS).channel(QUEUE), KEYS.wake):
                raw.publish(channel, nonsense)
            offer(store, str(n), 0.01)
            until(lambda: arrived(store.client)[str(n)] == 1, LATE_S)  # noqa: B023
    assert worker.leading
    assert caplog.messages == []


def test_a_leader_without_the_channel_polls_and_still_hears_ours(
    own_server: PrivateRedis, transfer: Transfer, caplog: pytest.LogCaptureFixture
) -> None:
    """Where an ACL forbids Redisson's channels, their messages cost a poll; those of the other layout are heard of."""
    admin = own_server.client()
    admin.execute_command("ACL", "SETUSER", "default", "resetchannels", "&delayq:*")
    admin.execute_command("ACL", "SETUSER", "admin", "on", ">secret", "~*", "&*", "+@all")
    client = redis.Redis(port=own_server.port, username="admin", password="secret", decode_responses=True)
    listed, hashed = DelayStore(client, KEYS, options=Options(layout="redisson")), DelayStore(client, KEYS)
    listed.queues.know(QUEUE)
    with caplog.at_level(logging.WARNING, "kombu_delayq"):
        transfer(server=own_server)
        until(lambda: caplog.messages)
        until(lambda: listeners(client, "hash") == 1)
        offer(listed, "listed", 0.1)
        until(lambda: arrived(client) == {"listed": 1}, LATE_S)
        offer(hashed, "hashed", 0.1)
        until(lambda: arrived(client) == {"listed": 1, "hashed": 1}, LATE_S)
        stays(lambda: listeners(client, "redisson") == 0, 1.0)
    refused = [each for each in caplog.messages if "Redisson's layout are noticed only every poll interval" in each]
    assert len(refused) == 1
    client.close()


def test_an_idle_leader_sends_as_many_commands_for_any_number_of_queues(
    store: DelayStore, raw: redis.Redis, transfer: Transfer
) -> None:
    """A poll costs two scripts, with one queue and with fifty that all have a message far away.

    In hash slots it is a script for each queue, all in one round trip, and one more.
    """

    def commands_per_poll(queue: str) -> float:
        until(lambda: listeners(store.client, "redisson", queue) == 1, LATE_S)
        before = calls()
        until(lambda: calls()["lead"] >= before["lead"] + 5)
        after = calls()
        return (after["all"] - before["all"]) / (after["lead"] - before["lead"])

    def calls() -> dict[str, int]:
        stats = raw.info("commandstats")
        leads = stats.get("cmdstat_smembers", {}).get("calls", 0)
        return {"lead": leads, "all": stats.get("cmdstat_evalsha", {}).get("calls", 0)}

    transfer(poll_interval=0.1)
    queues = [f"queue{n}" for n in range(50)]
    for some in (queues[:1], queues):
        for queue in some:
            offer(store, queue, 3000, queue)
        most = len(some) + 1.5  # a new queue costs a transfer besides
        until(lambda: commands_per_poll(some[-1]) <= most)  # noqa: B023
