"""Redis without memory left, and Redis that may throw messages away."""

from collections import Counter

import pytest

from celery_ext import Call, send_many
from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import stays, until
from tests.support.workers.harness import MakeProj, Worker

pytestmark = [pytest.mark.wide, pytest.mark.both_layouts]

BODY = "x" * 10_000
SAID = "command not allowed when used memory"


def _reports(worker: Worker) -> int:
    """Counts what the transfer worker said of it."""
    return sum("delayed messages" in line and SAID in line for line in worker.log.splitlines())


def test_transfer_while_redis_is_full(own_server: PrivateRedis, make_proj: MakeProj) -> None:
    """A worker warns of a policy that evicts; messages due while Redis is full stay, and run once later."""
    client = own_server.client()
    client.config_set("maxmemory-policy", "allkeys-lru")
    proj = make_proj(own_server)
    worker = proj.worker()
    until(lambda: "maxmemory-policy allkeys-lru" in worker.log, what="the risk is named")
    assert "may drop delayed messages" in worker.log
    client.config_set("maxmemory-policy", "noeviction")
    calls = [Call((f"{number} {BODY}",), countdown=5, task_id=f"{number}") for number in range(50)]
    send_many(proj.app, "proj.record", calls)  # at once: none may be due before Redis is full
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
    assert Counter(run["id"] for run in proj.runs()) == Counter(str(call.task_id) for call in calls)
    assert not client.exists(*proj.keys()[:2])
