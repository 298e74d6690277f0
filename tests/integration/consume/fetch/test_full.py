"""A Redis whose memory is full."""

import pytest
from kombu import Connection

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import until
from tests.support.looped import Looped, publish
from tests.support.workers.harness import TRANSPORT, MakeProj
from tests.support.workers.held import in_hand


def test_a_consumer_empties_its_queue_and_waits_on(own_server: PrivateRedis) -> None:
    """Messages are taken and acknowledged, an empty queue is looked at, and later waited for again."""
    client = own_server.client()
    with (
        Connection(own_server.url, transport=TRANSPORT) as sender,
        Looped(Connection(own_server.url, transport=TRANSPORT), "a", prefetch=4) as looped,
    ):
        looped.until(looped.waits_for("a"))
        for round_ in range(2):
            publish(sender, "a", *range(20))
            client.config_set("maxmemory", 1)
            looped.until(lambda round_=round_: len(looped.received) == 20 * (round_ + 1))  # type: ignore[misc]
            looped.until(lambda: not in_hand(client))
            for _ in range(5):
                looped.turn()
            client.config_set("maxmemory", 0)
        looped.until(looped.waits_for("a"), "a wait again")


@pytest.mark.parametrize("pool", ["solo", "prefork"])
def test_a_worker_lives_while_redis_is_full(make_proj: MakeProj, own_server: PrivateRedis, pool: str) -> None:
    """Neither a busy worker nor an idle one ends; it runs what waits, and what comes when there is room again."""
    proj = make_proj(own_server, task_ignore_result=True, worker_enable_remote_control=False)
    client = own_server.client()
    worker = proj.worker("--without-heartbeat", pool=pool, worker_send_task_events=False)
    for n in range(20):
        proj.send("busy", 0.05, n)
    client.config_set("maxmemory", 1)
    until(lambda: not (client.exists("celery") or in_hand(client)), 30)
    until(lambda: "maxmemory" in worker.log or worker.alive())
    client.config_set("maxmemory", 0)
    proj.send("record", "after")
    proj.await_runs(1, value="after")
    assert worker.alive()
