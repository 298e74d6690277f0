"""A worker drains both layouts, finds queues that only another client fills, and removes what that leaves."""

import struct
import time
from collections import Counter
from datetime import UTC, datetime

import pytest

from kombu_delayq.options import LAYOUTS
from kombu_delayq.store.redisson_layout import RedissonKeys
from tests.support.workers.harness import MakeProj

pytestmark = pytest.mark.wide


@pytest.mark.parametrize("own", LAYOUTS)
def test_a_worker_warns_once_of_the_other_layout_and_delivers_both(make_proj: MakeProj, own: str) -> None:
    """It logs one warning, with the command that mends it; tasks published in either layout run once."""
    [other_layout] = {*LAYOUTS} - {own}
    proj, other = (make_proj(broker_transport_options={"layout": each}) for each in (own, other_layout))
    other.send("record", countdown=1, task_id="before")
    worker = proj.worker(pool="solo")
    proj.await_runs(1)
    for n in range(3):
        (other if n % 2 else proj).send("record", countdown=0.5 + n / 10, task_id=f"t{n}")
    proj.await_runs(4)
    assert Counter(each["id"] for each in proj.runs()) == Counter(["before", "t0", "t1", "t2"])
    assert worker.log.count("has delayed messages in the layout") == 1
    assert f"queue 'celery' has delayed messages in the layout '{other_layout}'" in worker.log
    assert f"`delayq convert celery --to {own}`" in worker.log


def test_a_queue_that_only_another_client_fills_is_known_and_delivered(make_proj: MakeProj) -> None:
    """A worker finds what Redisson has offered to the queue that it consumes, though nobody registered it."""
    proj = make_proj(broker_transport_options={"layout": "redisson"})
    due = time.time() + 3
    proj.send("record", eta=datetime.fromtimestamp(due, UTC), task_id="jvm")
    with proj.connection() as connection:
        store = connection.default_channel.store
        [[message]] = store.lookup.cancel(["celery"], ["jvm"]).values()
        entry = b"\x08" + bytes(8) + struct.pack("<Q", len(message.body)) + message.body
        store.client.zadd(RedissonKeys(store.keys).timeout("celery"), {entry: int(due * 1000) + 1})
        store.client.rpush(RedissonKeys(store.keys).listed("celery"), entry)
        store.client.delete(store.keys.queues)
        proj.worker(pool="solo")
        [ran] = proj.await_runs(1)
        assert (ran["id"], ran["at"] >= due) == ("jvm", True)
        assert store.queues.names() == ["celery"]
