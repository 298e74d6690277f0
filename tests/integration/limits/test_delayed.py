"""Delayed messages of a key are limited once they have come due, wherever they waited."""

import subprocess
from pathlib import Path

import pytest
from celery import Celery

from celery_ext import install
from celery_ext.connection import open_store
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.limits import Limit, LimitStore
from tests.support.commands.shell import BIN
from tests.support.conditions import until
from tests.support.store.consuming import fetch, lives
from tests.support.workers.harness import TRANSPORT


@pytest.mark.parametrize("place", ["hash", "redisson", "journal"])
def test_delayed_messages_of_a_key_are_limited(redis_server: PrivateRedis, tmp_path: Path, place: str) -> None:
    """From each layout, and from the journal, they reach their queue, and no more are fetched than the limit allows."""
    options = {"layout": place}
    if place == "journal":
        options = {"journal_url": f"sqlite:///{tmp_path}/journal.db", "journal": "all"}
    app = Celery("shop", broker=redis_server.url, set_as_current=False)
    app.conf.update(broker_transport=TRANSPORT, broker_transport_options=options, task_default_queue="orders")
    install(app)
    given = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    command = [BIN / "delayq", "--broker", redis_server.url, *given, "transfer", "--also", "orders"]
    with app.connection_for_write() as connection, (tmp_path / "log").open("w") as log:
        store = open_store(connection)
        store.part(LimitStore).declare({"account": Limit(running=2)}, ["orders"])
        for number in range(5):
            app.send_task("shop.export", (number,), countdown=2, limit="account:7")
        assert store.queues.size("orders") == 5
        with subprocess.Popen(command, stderr=log) as process:
            until(lambda: store.fetching.size("orders") == 5, what="all are due")
            process.terminate()
        lives(store, queues=("orders",))
        found = fetch(store, 8, "orders")
        assert len(found) == 2
        stats = store.queues.stats("orders")
        assert (stats.ready, stats.limited) == (3, 3)
        store.fetching.ack([found[0].tag], "orders")
        assert len(fetch(store, 8, "orders", first=9)) == 1
