"""Redis refuses, the database refuses, or the publisher dies in between."""

import json
import subprocess
import sys
from itertools import count
from pathlib import Path
from threading import Event
from time import time

import pytest
from celery import Celery
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from celery_ext import Call, send_many
from celery_ext.connection import TRANSPORT
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store.types import PageId
from tests.integration.journal.publishing.test_tiers import far, near, rows
from tests.support.conditions import until
from tests.support.journal.stores import MakeJournaled, in_redis
from tests.support.servers.proxies import Proxy

SQLITE = pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)


@SQLITE
@pytest.mark.parametrize("way", ["offer", "put"])
def test_what_redis_refuses_has_no_row(make_journaled: MakeJournaled, own_server: PrivateRedis, way: str) -> None:
    """Redis is full: the publisher gets the error, no row stays behind, and the next attempt works."""
    store = make_journaled(own_server, journal="all")
    store.delivery.offer("q", near("before"), far("far before"))
    own_server.client().config_set("maxmemory", 1)
    page = [near(), far(), far("far before")]

    def publish() -> None:
        if way == "offer":
            store.delivery.offer("q", *page)
        else:
            store.delivery.put("q", PageId("sender", 1), page)

    for _ in range(2):
        with pytest.raises(ResponseError, match="memory"):
            publish()
        assert rows(store, "near", "far", "before", "far before") == [("before", False), ("far before", True)]
    own_server.client().config_set("maxmemory", 0)
    publish()
    assert rows(store, "near", "far") == [("near", False), ("far", True)]
    assert sorted(in_redis(store)) == ["before", "near"]


def test_pages_that_redis_refuses_have_no_rows(own_server: PrivateRedis, tmp_path: Path) -> None:
    """Redis gets full between two pages of send_many: only what it has got has rows."""
    options = {"journal_url": f"sqlite:///{tmp_path}/journal.db", "journal": "all"}
    app = Celery(broker=own_server.url, broker_transport=TRANSPORT, broker_transport_options=options)
    client = own_server.client()

    def calls() -> object:
        for number in range(1000):
            if number == 599:
                until(lambda: client.zcard("delayq:{celery}:due") >= 500)
                client.config_set("maxmemory", 1)
            yield Call((number,), task_id=f"id {number}")

    with pytest.raises(ResponseError, match="memory"):
        send_many(app, "t", calls(), countdown=60)  # type: ignore[arg-type]
    client.config_set("maxmemory", 0)
    with app.connection_for_write() as connection:
        store = connection.default_channel.store
        waiting = set(client.hkeys("delayq:{celery}:bodies"))
        assert {row.id for row in store.journal.get([f"id {number}" for number in range(1000)], None)} == waiting
    assert len(waiting) == 500


@SQLITE
def test_a_lost_connection_keeps_the_row(make_journaled: MakeJournaled, redis_server: PrivateRedis) -> None:
    """Redis may have the message, so the row stays; the next attempt is recognized by both."""
    store = make_journaled(journal="all")
    cut, answers = Event(), count()
    # An offer first asks for the marker, and that answer comes.
    with Proxy(redis_server.port, on_reply=lambda reply: None if cut.is_set() and next(answers) else reply) as proxy:
        losing = make_journaled(proxy, journal="all")
        one = near()
        for name in ("first", "second"):  # from then on an offer is a single command more
            losing.delivery.offer("q", near(name))
        cut.set()
        with pytest.raises((RedisConnectionError, OSError)) as raised:
            losing.delivery.offer("q", one)
    assert raised.value.__cause__ is not raised.value  # callers look through the causes
    assert rows(store, "near") == [("near", False)]
    until(lambda: "near" in in_redis(store))
    assert store.delivery.offer("q", one).repeated == 1
    assert rows(store, "near") == [("near", False)]


_PUBLISH = """
import json, sys
from tests.support.journal.stores import journaled, offer
store = journaled(int(sys.argv[1]), json.loads(sys.argv[2]))
store.journal.engine
print("ready", flush=True)
store.delivery.offer("q", offer("i", float(sys.argv[3])))
print("done", flush=True)
"""


@SQLITE
def test_a_publisher_killed_between_row_and_redis(
    make_journaled: MakeJournaled, redis_server: PrivateRedis, journal_url: str
) -> None:
    """The row is there and Redis has nothing; a second publisher of the same bytes makes no second row."""
    store = make_journaled(journal="all")
    held = Event()
    due_ms = time() * 1000 + 3_600_000

    def hold(request: bytes) -> bytes:
        if b"EVAL" in request:
            held.set()
            return b""
        return request

    with Proxy(redis_server.port, on_request=hold) as proxy:
        options = json.dumps({"journal_url": journal_url, "journal": "all"})
        args = [sys.executable, "-c", _PUBLISH, str(proxy.port), options, repr(due_ms)]
        process = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert held.wait(60)
        process.kill()
        process.wait(10)
        process.stdout.close()
    assert (in_redis(store), rows(store, "i")) == ([], [("i", False)])
    args = [sys.executable, "-c", _PUBLISH, str(redis_server.port), options, repr(due_ms)]
    assert subprocess.check_output(args, text=True, timeout=60).endswith("done\n")
    assert (in_redis(store), rows(store, "i")) == (["i"], [("i", False)])
