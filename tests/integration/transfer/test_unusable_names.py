"""Names in the registry of queues, and in announcements, that are no names of queues of ours."""

import json
import subprocess
import time

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.errors import InvalidQueueName
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support.commands.shell import BIN, run
from tests.support.conditions import until
from tests.support.workers.held import KEYS
from tests.support.workers.transfers import Transfer, arrived, offer

pytestmark = pytest.mark.both_layouts

QUEUES, WAKE = "{delayq}:queues", "delayq:wake:0"
BAD = [b"\xff\xfe", b"bad {\x80}", b"", b"\r\n*1", b"\0"]


@pytest.fixture
def store(client: redis.Redis, layout: str) -> DelayStore:
    return DelayStore(client, KEYS, options=Options(layout=layout))


def test_bad_names_do_not_stop_other_queues(
    store: DelayStore, client: redis.Redis, transfer: Transfer, caplog: pytest.LogCaptureFixture
) -> None:
    """Delivery goes on with odd names in the registry, in announcements, and with a key of another type under one."""
    client.sadd(QUEUES, *BAD)
    client.set(b"delayq:{\xff\xfe}:due", "in the way")
    transfer(poll_interval=0.2)
    until(lambda: client.pubsub_numsub(WAKE)[0][1])
    for name in BAD:
        client.publish(WAKE, b"0 " + name)
        client.publish(WAKE, name)
    offer(store, "one", 0.3)
    until(lambda: arrived(client) == {"one": 1})
    client.client_kill_filter(_type="pubsub")
    offer(store, "two", 0.3)
    until(lambda: arrived(client) == {"one": 1, "two": 1})
    named = [record for record in caplog.records if "\\udcff" in record.getMessage() and "WRONGTYPE" in record.message]
    assert len(named) == 1
    assert "starts again" not in caplog.text
    caplog.text.encode()  # as a log file takes it


def test_delayq_transfer_goes_on(store: DelayStore, redis_server: PrivateRedis, client: redis.Redis) -> None:
    """The process ``delayq transfer`` delivers beside such names, is told of one while it runs, and ends when asked."""
    client.sadd(QUEUES, *BAD)
    command = [BIN / "delayq", "--broker", redis_server.url, "transfer"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            until(lambda: client.exists("{delayq}:transfer"))
            client.publish(WAKE, b"0 \xfe")
            client.sadd(QUEUES, b"\xfe")
            offer(store, "one", 0.3)
            until(lambda: arrived(client) == {"one": 1})
            assert process.poll() is None
        finally:
            process.terminate()
            _, log = process.communicate(timeout=20)
    assert b"Traceback" not in log


def test_the_command_shows_and_cancels_beside_them(
    store: DelayStore, redis_server: PrivateRedis, client: redis.Redis, layout: str
) -> None:
    """``delayq`` shows such names escaped; what it does elsewhere, also by id, goes on beside them."""
    client.sadd(QUEUES, *BAD)
    in_layout = ("-o", f"layout={layout}")
    due_ms = time.time() * 1000 + 600_000
    for name in BAD:
        queue, task = name.decode(errors="surrogateescape"), _task(f"in-{name!r}", due_ms)
        if KEYS.has_slot(queue):
            store.delivery.offer(queue, task)
        else:
            with pytest.raises(InvalidQueueName):
                store.delivery.offer(queue, task)
    store.delivery.offer("q", _task("sound", due_ms))
    shown = run(redis_server, *in_layout, "status").stdout
    assert "\\udcff\\udcfe" in shown
    assert "\\r\\n*1" in shown
    run(redis_server, *in_layout, "status", "--json")
    assert "sound" in run(redis_server, *in_layout, "list").stdout
    assert "sound" in run(redis_server, *in_layout, "list", "--json").stdout
    assert '"sound"' in run(redis_server, *in_layout, "export").stdout
    assert run(redis_server, *in_layout, "show", "sound").exit_code == 0
    run(redis_server, *in_layout, "cancel", "sound", "in-b'\\xff\\xfe'", "--yes")
    assert [store.queues.size(each) for each in ("q", "\udcff\udcfe")] == [0, 0]
    run(redis_server, *in_layout, "repair")
    run(redis_server, *in_layout, "purge", "\udcff\udcfe", "--yes")


def _task(identity: str, due_ms: float) -> Offer:
    message = {
        "body": "W1tdLCB7fSwge31d",
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"id": identity, "task": "t"},
        "properties": {"correlation_id": identity, "body_encoding": "base64"},
    }
    return Offer(identity, repr(due_ms), 0, json.dumps(message))
