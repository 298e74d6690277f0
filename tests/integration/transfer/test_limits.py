"""Transfer workers apply the limits of queues, all of them together, and those of dead letters."""

import json
import logging
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import pytest
import redis

from celery_ext.dead_letters.letters import browse
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.message.letter_record import DEAD_LETTER
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support.conditions import stays, until
from tests.support.servers.monitor import Monitor
from tests.support.store.keyspace import PAST_MS
from tests.support.store.layouts import hash_only
from tests.support.workers.held import KEYS
from tests.support.workers.standalone import Standalone, await_lease
from tests.support.workers.transfers import QUEUE, Transfer, arrived, commands_of_look

FLOOD, RATE, BURST = 20_000, 200, 50


#: A message that is due now is not too late however long the test takes.
LATE = {"overdue": {QUEUE: "dead-letter"}, "max_lateness": 3600, "dead_letter_queue": "too_late"}


@pytest.fixture
def store(client: redis.Redis, layout: str) -> Iterator[DelayStore]:
    store = DelayStore(client, KEYS, options=Options(layout=layout))
    for queue in (QUEUE, "other"):
        store.queues.know(queue)
    return store


def offer_many(store: DelayStore, count: int, due_ms: float, priority: int = 0) -> None:
    """Stores messages that are due in the same instant; their names are their numbers."""
    for first in range(0, count, 1000):
        numbers = range(first, min(first + 1000, count))
        store.delivery.offer(QUEUE, *(Offer(f"n{n}", repr(due_ms), priority, json.dumps(f"n{n}")) for n in numbers))


@pytest.mark.both_layouts
@pytest.mark.journey
def test_a_flood_leaves_no_faster_than_the_rate(
    redis_server: PrivateRedis, store: DelayStore, standalone: Standalone, layout: str
) -> None:
    """Of 20,000 messages due at once, two workers together let through the burst and the rate, also when one is killed.

    A message of another queue is there at once, and standbys ask for little meanwhile.
    """
    options: dict[str, Any] = {"layout": layout, "transfer_rate": {QUEUE: [RATE, BURST]}, "poll_interval": 0.5}
    workers = []
    for rank in (1, 2):
        workers.append(standalone(redis_server, **options))
        await_lease(redis_server, workers[-1], rank)
    low, due_ms = f"{QUEUE}\x06\x169", store.now_ms() + 2_000
    offer_many(store, FLOOD, due_ms, priority=9)
    until(lambda: store.client.llen(low))
    with Monitor(redis_server) as monitor:
        before, begun = monitor.commands(str(workers[1].pid)).total(), monotonic()
        other_ms = store.now_ms()
        store.delivery.offer("other", Offer("other", repr(other_ms), 0, json.dumps("other")))
        until(lambda: arrived(store.client, "other"))
        assert store.now_ms() - other_ms < 10_000  # the flood takes 100 s
        stays(lambda: in_time(store, low, due_ms), 2.0)
        sent, took_s = monitor.commands(str(workers[1].pid)).total() - before, monotonic() - begun
    assert sent <= 30 * commands_of_look(2) * took_s
    workers[0].send_signal(signal.SIGKILL)
    moved = store.client.llen(low)
    until(lambda: store.client.llen(low) > moved + RATE)
    assert in_time(store, low, due_ms)
    assert store.client.llen(low) < FLOOD / 2


def in_time(store: DelayStore, key: str, due_ms: float) -> bool:
    """Whether no more messages have left than the bucket allows since they were due, by Redis's clock."""
    moved = store.client.llen(key)
    return int(moved) <= BURST + RATE * (store.now_ms() - due_ms) / 1000


@pytest.mark.wide
@pytest.mark.both_layouts
def test_messages_that_are_too_late_become_dead_letters(
    redis_server: PrivateRedis, store: DelayStore, standalone: Standalone, layout: str
) -> None:
    """Workers that are killed one after the other lose none, and what is not too late runs.

    In hash slots a letter is pushed before its message leaves, so each kill may leave a batch of letters twice.
    """
    offer_many(store, 3_000, PAST_MS)
    now_ms = store.now_ms()
    store.delivery.offer(QUEUE, Offer("in time", repr(now_ms - 1_000), 0, json.dumps("in time")))
    batch, kills = 40, 3
    for killed in range(1, kills + 1):
        worker = standalone(redis_server, layout=layout, lease_ttl=0.2, poll_interval=0.1, transfer_batch=batch, **LATE)
        until(lambda: store.client.llen("too_late") >= 500 * killed)  # noqa: B023
        worker.kill()
        worker.wait(10)
    standalone(redis_server, layout=layout, lease_ttl=0.2, poll_interval=0.1, **LATE)
    until(lambda: arrived(store.client)["in time"])
    letters = list(browse(DelayStore(store.client, KEYS), "too_late"))
    assert 3_000 <= len(letters) <= 3_000 + kills * batch
    assert len({bytes(letter.message) for letter in letters}) == 3_000
    assert set(arrived(store.client)) == {"in time"}
    assert store.figures.counts([QUEUE])[QUEUE].too_late == {"dropped": 0, "dead-lettered": 3_000}


@pytest.mark.both_layouts
@hash_only
def test_what_is_dropped_is_logged_once_in_a_while(
    store: DelayStore, transfer: Transfer, caplog: pytest.LogCaptureFixture
) -> None:
    """Many messages that are too late make one line with their number; a rate that holds messages back makes one."""
    offer_many(store, 2_000, PAST_MS)
    store.delivery.offer("other", *(Offer(str(n), repr(PAST_MS), 0, '"b"') for n in range(10)))
    with caplog.at_level(logging.INFO):
        transfer(overdue={QUEUE: "drop"}, max_lateness=60, transfer_rate={"other": 2}, poll_interval=0.1)
        until(lambda: not store.queues.size(QUEUE))
        until(lambda: store.client.llen("other") >= 3)
    lines = [record.message for record in caplog.records]
    dropped = [line for line in lines if "later than max_lateness and are dropped" in line]
    assert len(dropped) == 1
    assert [line for line in lines if "held back" in line] == [
        "queue 'other' is held back by its transfer_rate: more messages are due"
    ]
    assert not arrived(store.client)
    assert store.figures.counts([QUEUE])[QUEUE].too_late["dropped"] == 2_000


def letter(name: str, age: timedelta) -> str:
    at = (datetime.now(UTC) - age).isoformat()
    return json.dumps({"headers": {"id": name}, "properties": {DEAD_LETTER: {"at": at}}})


def test_old_letters_are_dropped_and_one_queue_holds_up_no_other(
    client: redis.Redis, transfer: Transfer, caplog: pytest.LogCaptureFixture
) -> None:
    """By default letters go after 90 days; of a queue that Redis does not let be read the log says so, once."""
    store = DelayStore(client, KEYS)
    for queue in ("another type", "dead"):
        store.queues.note_dead_letters(queue)
    client.set("another type", "in the way")
    client.lpush("dead", letter("old", timedelta(days=91)), letter("young", timedelta(days=89)))
    with caplog.at_level(logging.INFO):
        transfer(poll_interval=0.1)
        until(lambda: client.llen("dead") == 1, what="the old letter is dropped")
        until(lambda: "1 dead letters are dropped" in caplog.text)
    assert json.loads(client.lrange("dead", 0, -1)[0])["headers"]["id"] == "young"
    assert caplog.text.count("dead letters of queue 'another type' stay, however old: WRONGTYPE") == 1
