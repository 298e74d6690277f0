"""``ShardRouter``: which of its queues gets a call, and which calls are none of its business."""

from collections import Counter
from typing import Any
from zlib import crc32

import pytest
from celery import Celery

from celery_ext import ShardRouter

ORDERS = ShardRouter("orders", 4, tasks=["shop.*"], key=lambda order, *more: order)
NAMES = ["orders.0", "orders.1", "orders.2", "orders.3"]


def routed(router: ShardRouter, task: str, *args: Any, **options: Any) -> str:
    app = Celery("shards", set_as_current=False)
    app.conf.task_routes = [{"shop.other": "others"}, router]
    return str(app.amqp.router.route(options, task, args, {})["queue"].name)


def test_the_key_picks_the_queue() -> None:
    """Calls of one key go to one queue, which any language can name; the keys share all queues."""
    found = {order: routed(ORDERS, "shop.pay", order, "more") for order in range(40)}
    assert found == {order: ORDERS.queue_of(order) for order in range(40)}
    assert found[7] == f"orders.{crc32(b'7') % 4}"
    assert sorted(set(found.values())) == NAMES
    assert [queue.name for queue in ORDERS.queues] == ORDERS.names == NAMES


def test_without_a_key_all_queues_get_about_as_much() -> None:
    """Any queue gets a call."""
    found = Counter(routed(ShardRouter("orders", 4), "shop.pay") for _ in range(400))
    assert sorted(found) == NAMES
    assert min(found.values()) > 40


def test_what_is_routed_elsewhere_stays() -> None:
    """A queue that a call names, as a retry does, a route before this one, and tasks of others go their own way."""
    assert routed(ORDERS, "shop.pay", 7, queue="mail") == "mail"
    assert routed(ORDERS, "shop.other", 7) == "others"
    assert routed(ORDERS, "mail.send", 7) == "celery"


@pytest.mark.parametrize(("name", "shards"), [("", 2), ("orders", 0), ("orders", 1001)])
def test_a_router_without_queues_is_refused(name: str, shards: int) -> None:
    """A router has a name, and 1 to 1000 queues."""
    with pytest.raises(ValueError, match="needs a name, and 1 to 1000 shards"):
        ShardRouter(name, shards)
