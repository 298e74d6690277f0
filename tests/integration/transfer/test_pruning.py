"""The leading transfer worker drops dead letters that are too old, or too many."""

import json
import logging
from datetime import UTC, datetime, timedelta

import pytest
import redis

from kombu_delayq.message.dead_letters import DEAD_LETTER
from kombu_delayq.store import DelayStore
from tests.support.conditions import until
from tests.support.workers.held import KEYS
from tests.support.workers.transfers import Transfer


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
        until(lambda: client.llen("dead") == 1, 30, "the old letter is dropped")
        until(lambda: "1 dead letters are dropped" in caplog.text)
    assert json.loads(client.lrange("dead", 0, -1)[0])["headers"]["id"] == "young"
    assert caplog.text.count("dead letters of queue 'another type' stay, however old: WRONGTYPE") == 1
