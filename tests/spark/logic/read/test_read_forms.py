"""Queues in Redisson's layout are read as those in the default layout."""

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark.read.schema import COLUMNS
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.redisson_layout import RedissonKeys
from kombu_delayq.store.types import Offer
from tests.support.messages import changed_message, task_message
from tests.support.spark.odd_messages import MESSAGES
from tests.support.spark.reading import FUTURE_MS, Row, fill, reader_of, rows_of
from tests.support.store import redisson_layout


@pytest.fixture
def listed(redis_server: PrivateRedis, client: redis.Redis) -> Iterator[DelayStore]:
    """A store in Redisson's layout."""
    store = DelayStore(redis.Redis(port=redis_server.port), options=Options(layout="redisson"))
    yield store
    store.close()


def options_of(store: DelayStore) -> dict[str, str]:
    """Returns the option that names the layout of a store."""
    return {"broker_transport_options": json.dumps({"layout": store.layout})}


def read(server: PrivateRedis, store: DelayStore, **options: Any) -> list[Row]:
    """Returns the rows of all partitions."""
    reading = reader_of(server, **options_of(store), **options)
    return [row for part in reading.partitions() for row in rows_of(reading, part)]


def test_a_row_is_the_same_in_either_form(redis_server: PrivateRedis, store: DelayStore, listed: DelayStore) -> None:
    """Messages of all forms, with priorities, of one id, and of ids that they do not tell, have the same rows."""
    messages = list(filter(None, MESSAGES))
    offers = [Offer(f"id {n}", repr(FUTURE_MS + n), n % 10, message) for n, message in enumerate(messages)]
    offers += [Offer("t", repr(FUTURE_MS + 1000 + n), 0, json.dumps(task_message((n,), task_id="t"))) for n in range(3)]
    rows = []
    for each in (store, listed):
        each.client.flushall()
        each.delivery.offer("q", *offers)
        rows.append({row["due"]: row for row in read(redis_server, each)})
        assert {row.pop("layout") for row in rows[-1].values()} == {each.layout}
        for name in COLUMNS.keys() - {"layout"}:  # each alone is as beside the others
            alone = [row[name] for row in read(redis_server, each, columns=name)]
            assert sorted(alone, key=repr) == sorted((row[name] for row in rows[-1].values()), key=repr), name
    assert list(rows[0].values()) == list(rows[1].values())


@pytest.mark.parametrize("columns", ["task_id", ",".join(COLUMNS)])
@pytest.mark.parametrize("name", ["hash", "redisson"])
def test_ids_that_messages_share_may_be_on_any_page(
    redis_server: PrivateRedis, store: DelayStore, listed: DelayStore, name: str, columns: str
) -> None:
    """Messages of one id have it wherever they wait, with any columns, and change nothing in the rows beside them."""
    ids = [f"id-{n}" for n in range(3000)]
    ids[1300:1300] = ["id-1200", "id-1250"]
    ids[2600:2600] = ["id-1200"]
    messages = (changed_message(headers={"id": each, "shadow": f"no. {n}"}) for n, each in enumerate(ids))
    offers = [
        Offer(each, repr(FUTURE_MS + n), 0, json.dumps(message))
        for n, (each, message) in enumerate(zip(ids, messages, strict=True))
    ]
    filled = {"hash": store, "redisson": listed}[name]
    for at in range(0, len(offers), 500):
        filled.delivery.offer("q", *offers[at : at + 500])
    assert [row["task_id"] for row in read(redis_server, filled, columns=columns, partitions=1)] == ids


def test_messages_are_not_kept_that_no_column_needs(redis_server: PrivateRedis, listed: DelayStore) -> None:
    """Members of the index have whole messages in them, of which a batch of due times and sizes keeps none."""
    message = "x" * 200_000
    for n in range(60):
        listed.delivery.offer("q", Offer(f"id-{n}", repr(FUTURE_MS + n), 0, message))
    tracemalloc.start()
    try:
        assert len(read(redis_server, listed, columns="due,size", page_size=2, partitions=1)) == 60
        assert tracemalloc.get_traced_memory()[1] < 30 * len(message)
    finally:
        tracemalloc.stop()


def test_messages_of_other_clients_have_all_columns(redis_server: PrivateRedis, listed: DelayStore) -> None:
    """Id and priority of what Redisson offers come from the message, and what is no message has a row of NULLs."""
    message = task_message((1,), kwargs={"a": 2}, task_id="t", priority=4)
    raw = json.dumps(message).encode()
    redisson_layout.offer(listed, 1, raw)
    redisson_layout.offer(listed, 2, b"text", FUTURE_MS + 1, old=True)
    listed.client.zadd(RedissonKeys(listed.keys).timeout("q"), {b"\x08" + b"x" * 20: FUTURE_MS + 2})
    task, text, lost = read(redis_server, listed, queue="q")
    assert {name: task[name] for name in ("task_id", "task", "args", "kwargs", "priority", "size", "raw")} == {
        "task_id": "t",
        "task": "proj.task",
        "args": "[1]",
        "kwargs": '{"a": 2}',
        "priority": 4,
        "size": len(raw),
        "raw": raw,
    }
    assert (text["task_id"], text["priority"], text["size"], text["raw"]) == ("entry-0000000000000040", 0, 4, b"text")
    assert lost["task_id"] == "entry-0878787878787878"
    assert {name for name, value in lost.items() if value is not None} == {"queue", "task_id", "due", "layout"}


def test_only_ids_cost_a_further_call(redis_server: PrivateRedis, listed: DelayStore) -> None:
    """Entries have their messages with them: one call a page reads all columns, and one more the ids."""
    fill(listed, "q", 10)

    def calls(columns: str) -> dict[str, int]:
        listed.client.config_resetstat()
        assert len(read(redis_server, listed, columns=columns, partitions=1)) == 10
        stats = listed.client.info("commandstats")
        return {each: stats.get(f"cmdstat_{each}", {"calls": 0})["calls"] for each in ("hmget", "zmscore", "hgetall")}

    assert set(calls("queue,due,size,task,raw,priority").values()) == {0}
    assert calls("task_id") == {"hmget": 1, "zmscore": 0, "hgetall": 0}
