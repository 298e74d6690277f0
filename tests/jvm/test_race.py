"""Redisson's transfer task and ours work on one queue at once: every message is delivered once, and none early."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from kombu_delayq.text import as_text
from tests.support.conditions import stays, until, until_equal
from tests.support.jvm.redisson import Jvm
from tests.support.jvm.shared import transferring
from tests.support.workers.harness import APPS, TRANSPORT

TIMEOUT, LISTED = "redisson_delay_queue_timeout:{q}", "redisson_delay_queue:{q}"
#: How long after the offers begin messages become due, and for how long.
HEAD_START_S, SPREAD_S = 30.0, 3.0
#: How long all that is due may take, in s.
PATIENCE_S = HEAD_START_S + 60.0


@pytest.fixture
def store(client: redis.Redis, redis_server: PrivateRedis) -> Iterator[DelayStore]:
    """A store in Redisson's layout, on an empty database."""
    store = _store(redis_server)
    yield store
    store.close()


def _store(server: PrivateRedis) -> DelayStore:
    return DelayStore(redis.Redis(port=server.port), options=Options(layout="redisson", poll_interval=0.3))


def _offer_from_both_sides(jvm: Jvm, store: DelayStore, ours: Sequence[str], javas: Sequence[str]) -> dict[str, float]:
    """Offers messages that become due mixed. Returns when each is due, ms since the epoch."""
    begin = store.now_ms() + HEAD_START_S * 1000
    jvm.offer_tasks("q", javas, HEAD_START_S, SPREAD_S, wait=False)
    for first in range(0, len(ours), 100):
        store.delivery.offer("q", *(_offer(ours, number, begin) for number in range(first, first + 100)))
    assert jvm.answer() == len(javas)
    waiting = dict(store.client.zrange(TIMEOUT, 0, -1, withscores=True))
    dues = {_id_of(entry[17 if entry[0] == 8 else 16 :]): due for entry, due in waiting.items()}
    assert sorted(dues) == sorted([*ours, *javas]), "all must wait before the first is due"
    return dues


def _offer(ids: Sequence[str], number: int, begin_ms: float) -> Offer:
    body = json.dumps({"headers": {"task": "t", "id": ids[number]}, "properties": {}})
    return Offer(ids[number], repr(begin_ms + SPREAD_S * 1000 * number / len(ids)), number % 10, body)


def _id_of(message: bytes) -> str:
    return str(json.loads(message)["headers"]["id"])


def _consume(store: DelayStore, dues: dict[str, float], until_count: int) -> Counter[str]:
    """Takes messages from all lists until so many have come. None must come before it is due."""
    lists = store.keys.ready("q", (0, 3, 6, 9))
    seen: Counter[str] = Counter()
    deadline = time.monotonic() + PATIENCE_S
    while seen.total() < until_count:
        assert time.monotonic() < deadline, f"{seen.total()} of {until_count} came"
        with store.client.pipeline() as pipe:
            for name in lists:
                pipe.rpop(name, 200)
            pipe.time()
            *popped, (seconds, microseconds) = pipe.execute()
        now_ms = seconds * 1000 + microseconds / 1000
        taken = [_id_of(message) for messages in popped for message in messages or []]
        assert not [each for each in taken if dues[each] > now_ms], "came early"
        seen.update(taken)
        if not taken:
            time.sleep(0.01)
    return seen


def _nothing_else_comes(store: DelayStore) -> None:
    ready = store.keys.ready("q", (0, 3, 6, 9))
    stays(lambda: not store.client.exists(*ready), 0.5, "nothing comes twice")
    _only_counters_are_left(store, *store.keys.leases)


def _only_counters_are_left(store: DelayStore, *besides: str) -> None:
    names = {"{delayq}:queues", *besides}
    kept = lambda: {key for key in map(as_text, store.client.keys("*")) if ":counts" not in key}  # noqa: E731
    until_equal(lambda: kept() - names, set(), what="keys are left")


@contextmanager
def _transfer_process(server: PrivateRedis) -> Iterator["subprocess.Popen[bytes]"]:
    options = {"layout": "redisson", "poll_interval": 0.3}
    conf = {"broker_url": server.url, "broker_transport": TRANSPORT, "broker_transport_options": options}
    with subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "proj", "delayq", "transfer", "-l", "ERROR"],
        cwd=APPS,
        env={**os.environ, "PROJ_CONF": json.dumps(conf)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.nightly
def test_one_of_ours_is_killed_in_the_middle(jvm: Jvm, redis_server: PrivateRedis, store: DelayStore) -> None:
    """When the leading transfer process is killed half way, Redisson and another one deliver the rest, once."""
    dues = _offer_from_both_sides(jvm, store, *([f"{side} {n}" for n in range(1000)] for side in ("ours", "java")))
    processes = _transfer_process(redis_server), _transfer_process(redis_server)
    with processes[0] as first, processes[1] as second, transferring(jvm, "q"):
        seen = _consume(store, dues, 600)
        leader = until(store.leases.leader)  # on a busy machine, its lease may end meanwhile
        assert leader is not None
        killed = int(leader.split(":")[1])
        assert killed in (first.pid, second.pid)
        os.kill(killed, signal.SIGKILL)
        seen += _consume(store, dues, 2000 - seen.total())
        assert set(seen.values()) == {1}
        _nothing_else_comes(store)


def test_entries_that_are_swept_late_are_not_delivered(jvm: Jvm, store: DelayStore) -> None:
    """Entries that left long ago, and are in the list still, come from neither side a second time."""
    ours, javas = ([f"{side} {n}" for n in range(1500)] for side in ("ours", "java"))
    dues = _offer_from_both_sides(jvm, store, ours, javas)
    cancelled = [*ours[1::3], *javas[1::3]]
    for first in range(0, len(cancelled), 100):
        assert len(store.lookup.cancel(["q"], cancelled[first : first + 100])) == 100
    assert store.client.llen(LISTED) > store.queues.size("q") + 500, "there is garbage"
    wanted = 3000 - len(cancelled)
    deadline = time.monotonic() + PATIENCE_S
    while store.queues.size("q") > wanted / 2 and time.monotonic() < deadline:
        store.delivery.transfer("q")
        time.sleep(0.01)
    assert store.client.llen(LISTED) > store.queues.size("q"), "there is garbage"
    with transferring(jvm, "q"):
        seen = _consume(store, dues, wanted)
        assert set(seen.values()) == {1}
        assert not set(cancelled) & set(seen)
        store.delivery.transfer("q")
        _nothing_else_comes(store)
