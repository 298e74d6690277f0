"""The least that the transport option ``max_connections`` can be."""

import pytest

import celery_ext
from tests.support.conditions import until
from tests.support.workers.harness import MakeProj


@pytest.mark.nightly
@pytest.mark.both_layouts
def test_one_connection_a_pool_is_enough(make_proj: MakeProj) -> None:
    """With ``max_connections`` 1, which bounds kombu's pools, delayed tasks are delivered, retried, found and sent."""
    proj = make_proj(broker_transport_options={"max_connections": 1})
    worker = proj.worker()
    proj.send("record", "waits", countdown=1)
    proj.send("flaky", 1, 1)
    proj.await_runs(3)

    calls = (celery_ext.Call(args=(n,)) for n in range(1000))
    assert celery_ext.send_many(proj.app, "proj.record", calls, countdown=3600) == 1000
    far = proj.send("record", "far", countdown=3600)
    assert celery_ext.cancel(proj.app, [far.id]) == {far.id: "cancelled"}
    assert sum(1 for _ in celery_ext.browse(proj.app, "celery")) == 1000
    until(lambda: proj.server.client().hlen("unacked") == 0)
    assert "Redis cannot be used" not in worker.log
    assert worker.stop() == 0
