"""``delayq export`` and ``import`` between the two layouts: a backlog comes back as it was, but for the ms."""

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import LAYOUTS, Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support.commands.exports import FUTURE_MS, message, offer
from tests.support.commands.shell import lines, run
from tests.support.messages import plain_message, task_message
from tests.support.store import redisson_layout
from tests.support.workers.held import KEYS

ETA = datetime(2100, 1, 1, tzinfo=UTC)


def store_of(raw_client: redis.Redis, layout: str) -> DelayStore:
    return DelayStore(raw_client, KEYS, options=Options(layout=layout))


def fill(store: DelayStore) -> None:
    """Lets messages of all kinds wait: with priorities, of one due time, of one id, of ids that they do not tell."""
    store.delivery.offer("q", *(offer(f"t{n}", FUTURE_MS + n // 40 * 0.3, n % 10) for n in range(150)))
    store.delivery.offer(
        "twins", *(Offer("t", repr(FUTURE_MS + n % 2), n % 3, message(f"n{n}", "t")) for n in range(7))
    )
    odd = ["", "~", "i~0123456789abcdef", "\x7f", "ü\U0001f600", b"\xff\xc3", "\0\r\n", "n" * 5000]
    store.delivery.offer("odd", *(Offer(each, repr(FUTURE_MS), n, message(f"odd {n}")) for n, each in enumerate(odd)))
    for n, made in enumerate(
        (task_message(task_id="old", eta=ETA, conf={"task_protocol": 1}), plain_message({"id": "in the body"}))
    ):
        store.delivery.offer("kinds", Offer(f"kind {n}", repr(FUTURE_MS - n / 7), 5, json.dumps(made)))


def told(found: list[str]) -> list[dict[str, Any]]:
    """Returns the messages of an export."""
    return [{name: each[name] for name in each if name != "due"} for each in map(json.loads, found[1:-1])]


@pytest.mark.parametrize("first", LAYOUTS)
def test_a_backlog_goes_from_one_layout_to_the_other_and_back(
    broker: PrivateRedis, raw_client: redis.Redis, first: str
) -> None:
    """Id, priority, body and order of all messages stay, and due times are rounded up to whole ms."""
    fill(store_of(raw_client, first))
    found = exported_from(broker, first)
    other = next(each for each in LAYOUTS if each != first)
    expected = told(found)
    for layout in (other, first):
        raw_client.flushall()
        imported = lines(broker, "-o", f"layout={layout}", "import", stdin="\n".join(found) + "\n")
        assert sum(each["offered"] + each["renamed"] for each in imported) == len(expected)
        kept = {"hash": "delayq:{q}:due", "redisson": "redisson_delay_queue_timeout:{q}"}[layout]
        assert raw_client.zcard(kept) == 150
        expected = [{**each, "due_ms": float(math.ceil(each["due_ms"]))} for each in expected]
        found = exported_from(broker, layout)
        assert _sorted(told(found)) == _sorted(expected)
        # Of messages that have become due in one ms, the order is that of delivery before.
        assert [each["body"] for each in told(found)] == [each["body"] for each in expected]


def exported_from(broker: PrivateRedis, layout: str) -> list[str]:
    """Returns the lines that an app of a layout exports."""
    return run(broker, "-o", f"layout={layout}", "export").stdout.splitlines()


def _sorted(messages: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True) for each in messages)


def test_messages_of_other_clients_are_exported(broker: PrivateRedis, raw_client: redis.Redis) -> None:
    """An app of Redisson's layout exports also what Redisson has offered; an app of either layout imports it."""
    stores = {layout: store_of(raw_client, layout) for layout in LAYOUTS}
    stores["redisson"].delivery.offer("q", offer("ours", priority=3))
    theirs = message("theirs", priority=7)
    redisson_layout.offer(stores["redisson"], 5, theirs.encode())
    redisson_layout.offer(stores["redisson"], 6, message("old", "old").encode(), old=True)
    found = exported_from(broker, "redisson")
    assert {(each["id"], each["priority"]) for each in told(found)} == {("ours", 3), ("theirs", 7), ("old", 0)}
    for layout in LAYOUTS:
        raw_client.flushall()
        run(broker, "-o", f"layout={layout}", "import", stdin="\n".join(found))
        assert _sorted(told(exported_from(broker, layout))) == _sorted(told(found))
        assert stores[layout].lookup.get(["q"], ["theirs"])["theirs"][0].layout == layout
