"""What Redis sees of our transfer worker and store is what it saw of Redisson's, but for a few differences."""

import struct
from collections.abc import Callable, Iterator
from functools import reduce

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.redis import scripts
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from kombu_delayq.transfer.worker import TransferWorker
from tests.support.conditions import until
from tests.support.store.fixtures import MakeStore
from tests.support.store.recorded import DELAY_MS, LISTED, MESSAGES, RECORDED, TIMEOUT, Command, Names, Recorder, Seen

Commands = list[Command]

#: Commands that only look at a key, of which Redisson uses none here.
LOOKS = {"TYPE", "EXISTS", "PTTL", "LLEN", "LINDEX", "ZCARD", "ZSCORE", "ZCOUNT"}


def without_looks(commands: Commands) -> Commands:
    """Before it writes, a script asks whether keys are what they should be; it asks how much there is, and what."""
    return [each for each in commands if each[0] not in LOOKS]


def without_search(commands: Commands) -> Commands:
    """A message is removed by its id: its entry is looked up first. Redisson goes through the list, with LINDEX."""
    return commands[1:] if commands[1:2] == [("LREM", LISTED, "1", "m6")] else commands


def without_our_own_keys(commands: Commands) -> Commands:
    """With the last message our own keys go, and what garbage the list has: here it is gone already."""
    everything = ("UNLINK", LISTED, "delayq:{q}:notes", "delayq:{q}:ids")
    return [each for each in commands if each != everything]


def with_redissons_page(commands: Commands) -> Commands:
    """Due times are read too, for metrics; and messages may be large, so that a few are read before more are."""
    ours = ("ZRANGEBYSCORE", TIMEOUT, "0", "now", "WITHSCORES", "LIMIT", "0", "8")
    return [("ZRANGEBYSCORE", TIMEOUT, "0", "now", "LIMIT", "0", "100") if each == ours else each for each in commands]


def with_redissons_pushes(commands: Commands) -> Commands:
    """Messages go where kombu expects them: to the other end of the list, all in one command, before any is removed."""
    pushed = [("RPUSH", "q", message) for each in commands if each[:2] == ("LPUSH", "q") for message in each[2:]]
    made: Commands = []
    for each in commands:
        if each[0] == "LREM" and pushed:
            made.append(pushed.pop(0))
        if each[0] != "LPUSH":
            made.append(each)
    return made + pushed


def with_redissons_removal(commands: Commands) -> Commands:
    """A message that is removed leaves the list first, as when it is transferred; Redisson turns these about."""
    return commands[::-1] if [each[0] for each in commands] == ["LREM", "ZREM"] else commands


def without_a_first_call(commands: Commands) -> Commands:
    """A worker calls a transfer before anything is due, so that no message waits for what the first call loads.

    Redis may see this before or after the subscription, which has a connection of its own. On a slow machine more calls
    follow until the test stops the worker.
    """
    subscribed = [each for each in commands if each[0] == "SUBSCRIBE"]
    if not subscribed:
        return commands
    rest = [each for each in commands if each not in subscribed]
    while len(rest) > 3 and rest[-2:] == rest[-4:-2]:
        rest = rest[:-2]
    return subscribed + rest


#: All that may differ; `now` is Redis's clock and no JVM's, which the names hide.
DIFFERENCES: list[Callable[[Commands], Commands]] = [
    without_looks,
    without_search,
    without_our_own_keys,
    with_redissons_page,
    with_redissons_pushes,
    with_redissons_removal,
    without_a_first_call,
]


def as_redisson(commands: Commands) -> Commands:
    """Returns what Redisson would have done instead of what we did."""
    return reduce(lambda done, difference: difference(done), DIFFERENCES, commands)


def without_heads(heard: list[Seen]) -> list[Seen]:
    """Returns what was heard, without what a worker does to learn when the head of each queue is due."""
    heads = scripts.load("heads", "redisson", guarded=True)
    kept, is_in_heads = [], False
    for seen in heard:
        if not seen.in_script:
            is_in_heads = bool({heads.sha.encode(), heads.text.encode()}.intersection(seen.parts))
        if not (is_in_heads and seen.in_script):
            kept.append(seen)
    return kept


@pytest.fixture
def layout() -> str:
    """The form whose session was recorded."""
    return "redisson"


@pytest.fixture
def monitor(client: redis.Redis, redis_server: PrivateRedis) -> Iterator[Recorder]:
    """Hears every command."""
    with Recorder(client, redis_server.port) as made:
        yield made


def start(make_store: MakeStore, monitor: Recorder) -> list[Seen]:
    """Starts a transfer worker and returns what it did until it had subscribed and transferred what is due."""
    worker = TransferWorker(make_store, queues=lambda: ["q"])
    heard: list[Seen] = []

    def has_transferred() -> bool:
        heard.extend(monitor.heard())
        return {b"SUBSCRIBE", b"ZRANGEBYSCORE"} <= {part for seen in heard for part in seen.parts}

    worker.start()
    try:
        until(has_transferred)
    finally:
        worker.stop()
    return without_heads([*heard, *monitor.heard()])


def test_the_session_is_that_of_redisson(store: DelayStore, make_store: MakeStore, monitor: Recorder) -> None:
    """Start, five offers, their transfer and a removal are, command by command, what was recorded of Redisson."""
    names = Names()
    did = {"start": names.named(start(make_store, monitor))}

    def step(name: str, act: Callable[[], object]) -> None:
        monitor.heard()
        act()
        did[name] = names.named(monitor.heard())

    def offer(number: int) -> None:
        store.delivery.offer("q", Offer(f"i{number}", f"+{DELAY_MS}", 0, MESSAGES[number - 1]))

    for number in range(1, 6):
        step(f"offer {number}", lambda number=number: offer(number))  # type: ignore[misc]
    entries = store.client.zrange(TIMEOUT, 0, -1)
    assert entries == store.client.lrange(LISTED, 0, -1)
    assert [each[8:] for each in entries] == [struct.pack("<Q", len(text)) + text.encode() for text in MESSAGES[:5]]
    store.client.zadd(TIMEOUT, dict.fromkeys(entries, 1.0))  # the time has come
    step("transfer", lambda: store.delivery.transfer("q"))
    step("offer 6", lambda: offer(6))
    step("remove", lambda: store.lookup.cancel(["q"], ["i6"]))
    assert {name: as_redisson(commands) for name, commands in did.items()} == RECORDED
