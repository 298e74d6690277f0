"""Redis without memory left, and Redis that may throw messages away."""

from collections import Counter

import pytest
import redis
from kombu.exceptions import OperationalError

from celery_ext import browse, cancel
from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import stays, until
from tests.support.workers.harness import MakeProj, Worker

pytestmark = pytest.mark.both_layouts

BODY = "x" * 10_000
FULL = (redis.ResponseError, OperationalError)
SAID = "command not allowed when used memory"


def _reports(worker: Worker) -> int:
    """Counts what the transfer worker said of it."""
    return sum("delayed messages" in line and SAID in line for line in worker.log.splitlines())


def test_publish_until_redis_is_full(own_server: PrivateRedis, make_proj: MakeProj) -> None:
    """When Redis is full the caller gets the error, each message is stored whole or not at all, and memory helps."""
    proj = make_proj(own_server, task_publish_retry_policy={"max_retries": 1, "interval_start": 0})
    client = own_server.client()
    proj.send("record", countdown=600)
    client.config_set("maxmemory", client.info("memory")["used_memory"] + 500_000)
    sent: list[str] = []
    # Buffers come and go, and with them the room for one more: so no second try here, and then no room at all.
    with pytest.raises(FULL, match=SAID):
        sent.extend(proj.send("record", BODY, countdown=600, retry=False).id for _ in range(1000))
    client.config_set("maxmemory", 1)
    for _ in range(3):
        with pytest.raises(FULL, match=SAID):
            proj.send("record", BODY, countdown=600)
    assert 1 < len(sent) < 1000
    ids = {task.id for task in browse(proj.app, "celery")}
    assert proj.lengths() == (len(ids), len(ids))
    assert set(sent) < ids
    assert len(ids) == len(sent) + 1
    client.config_set("maxmemory", 0)
    proj.send("record", BODY, countdown=600)
    assert proj.lengths() == (len(ids) + 1, len(ids) + 1)


def test_transfer_while_redis_is_full(own_server: PrivateRedis, make_proj: MakeProj) -> None:
    """A worker warns of a policy that evicts; messages due while Redis is full stay, and run once later."""
    client = own_server.client()
    client.config_set("maxmemory-policy", "allkeys-lru")
    proj = make_proj(own_server)
    worker = proj.worker()
    until(lambda: "maxmemory-policy allkeys-lru" in worker.log, what="the risk is named")
    assert "may drop delayed messages" in worker.log
    client.config_set("maxmemory-policy", "noeviction")
    sent = {proj.send("record", f"{number} {BODY}", countdown=3).id for number in range(50)}
    client.config_set("maxmemory", 1)  # without a doubt too little
    until(lambda: _reports(worker), what="said")
    stays(lambda: proj.lengths() == (50, 50), 2.5, "all stay")
    assert _reports(worker) <= 2  # for the lease and for the queue, however often they are tried
    assert proj.runs() == []
    client.config_set("maxmemory", 0)

    def all_ran() -> bool:
        if not proj.workers[-1].alive():  # kombu 5.7 itself ends a worker when it cannot refresh its bindings
            proj.worker()
        return len(proj.runs()) >= 50

    until(all_ran, 60)
    assert proj.workers[-1].stop() == 0
    assert Counter(run["id"] for run in proj.runs()) == Counter(sent)
    assert not client.exists(*proj.keys()[:2])


def test_what_waits_can_be_cancelled_while_redis_is_full(own_server: PrivateRedis, make_proj: MakeProj) -> None:
    """A Redis without memory left lets go of the messages of cancelled tasks."""
    proj = make_proj(own_server)
    waiting = proj.send("record", BODY, countdown=600)
    own_server.client().config_set("maxmemory", 1)
    assert cancel(proj.app, [waiting.id, "unknown"]) == {waiting.id: "cancelled", "unknown": "not_delayed"}
    assert waiting.state == "REVOKED"
    assert not own_server.client().exists(*proj.keys()[:2])
