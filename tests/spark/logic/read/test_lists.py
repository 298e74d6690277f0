"""Messages in the lists of queues as rows: ready ones, and dead letters."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark.read import lists
from celery_ext.spark.read.schema import COLUMNS_OF
from kombu_delayq.message import DEAD_LETTER, LetterRecord
from kombu_delayq.store import DelayStore
from tests.support.messages import task_message
from tests.support.spark.odd_messages import MESSAGES
from tests.support.spark.reading import Row, reader_of, rows_of

AT = datetime(2026, 12, 1, 9, 14, 2, 123456, tzinfo=UTC)
TOLD = LetterRecord(
    reason="failed",
    error="NotifyFailed: no \ud83d answer",
    traceback="Traceback …",
    retries=7,
    exchange="",
    routing_key="orders",
    worker="w@host",
    at=AT,
)


def push(client: redis.Redis, key: str, message: Any) -> bytes:
    """Puts a message into a list, as kombu does. Returns it as it is there."""
    raw = message if isinstance(message, bytes) else json.dumps(message).encode()
    client.lpush(key, raw)
    return raw


def letter(number: int) -> Any:
    """Returns the message of a dead letter."""
    message = task_message((number,), task_id=f"t{number}", priority=3)
    message["properties"][DEAD_LETTER] = TOLD.written()
    return message


def read(server: PrivateRedis, **options: Any) -> list[Row]:
    """Returns the rows of all partitions."""
    reader = reader_of(server, **options)
    return [row for part in reader.partitions() for row in rows_of(reader, part)]


def test_a_dead_letter_is_a_row(redis_server: PrivateRedis, client: redis.Redis, store: DelayStore) -> None:
    """It has what it tells beside its task, and by default all queues of dead letters are read."""
    raw = push(client, "failed", letter(1))
    store.queues.note_dead_letters("failed")
    push(client, "orders", task_message())
    [row] = read(redis_server, messages="dead_letters")
    assert list(row) == list(COLUMNS_OF["dead_letters"])
    assert row == {
        "queue": "failed",
        "task": "proj.task",
        "task_id": "t1",
        "eta": None,
        "priority": 3,
        "retries": 7,
        "args": "[1]",
        "kwargs": "{}",
        "size": len(raw),
        "raw": raw,
        "reason": "failed",
        "error": "NotifyFailed: no ? answer",
        "traceback": "Traceback …",
        "exchange": "",
        "routing_key": "orders",
        "worker": "w@host",
        "at": AT,
    }


def test_what_is_ready_is_read_of_each_priority(redis_server: PrivateRedis, client: redis.Redis) -> None:
    """The most urgent first, then the oldest; each queue that is named, once, and no delayed message."""
    for number, key in enumerate(["orders", "orders\x06\x163", "orders", "bills"]):
        push(client, key, task_message((number,), task_id=f"t{number}", retries=2))
    rows = read(redis_server, messages="ready", queue="orders,bills,orders", columns="Queue,task_id,retries")
    assert [tuple(row.values()) for row in rows] == [
        ("orders", "t0", 2),
        ("orders", "t2", 2),
        ("orders", "t1", 2),
        ("bills", "t3", 2),
    ]


@pytest.mark.parametrize("messages", ["ready", "dead_letters"])
def test_no_message_makes_a_read_fail(redis_server: PrivateRedis, client: redis.Redis, messages: str) -> None:
    """A damaged one, and one that is no task, have NULL for what they lack."""
    odd = [push(client, "q", message) for message in filter(None, MESSAGES)]
    rows = read(redis_server, messages=messages, queue="q")
    assert [row["raw"] for row in rows] == odd
    assert {row["queue"] for row in rows} == {"q"}


def test_none_is_passed_over_when_others_leave(
    redis_server: PrivateRedis, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stays is read once, in batches of a bounded size, while workers take the oldest and new ones come."""
    monkeypatch.setattr(lists, "BATCH_ROWS", 70)
    for number in range(500):
        push(client, "q", task_message((number,), task_id=f"t{number}"))
    reader = reader_of(redis_server, messages="ready", queue="q", columns="task_id")
    [partition] = reader.partitions()
    found: list[str] = []
    for batch in reader.read(partition):
        assert batch.num_rows <= 70
        found += batch["task_id"].to_pylist()
        client.rpop("q", 30)
        push(client, "q", task_message(task_id=f"new {len(found)}"))
    stays = [f"t{number}" for number in range(240, 500)]
    assert [each for each in found if each in stays] == stays
    assert len({*found}) == len(found)


def test_a_queue_without_messages_is_told(
    redis_server: PrivateRedis, client: redis.Redis, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    """Its name may be wrong."""
    push(client, "orders", task_message())
    assert len(read(redis_server, messages="ready", queue="orders,odrers")) == 1
    told = caplog.text + capfd.readouterr().err
    assert "no message is in the queue odrers itself" in told
    assert "queue orders" not in told
