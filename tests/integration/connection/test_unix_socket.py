"""A broker that is reached by a Unix socket."""

import pytest

from tests.support.workers.harness import MakeProj


def test_a_worker_whose_url_bypasses_the_transport_does_not_start(make_proj: MakeProj) -> None:
    """`redis+socket://` makes kombu drop broker_transport; the worker ends and says what to write."""
    server = make_proj().server
    proj = make_proj(broker_url=f"redis+socket://{server.socket_path}")
    worker = proj.worker(wait=False)
    assert worker.process.wait(30) != 0
    assert "write delayq+socket://" in worker.log


@pytest.mark.journey
def test_a_unix_socket_url_of_ours_works(make_proj: MakeProj) -> None:
    """The `delayq+socket` form of the same URL delays and delivers."""
    server = make_proj().server
    proj = make_proj(broker_url=f"delayq+socket://{server.socket_path}")
    proj.worker()
    proj.send("record", countdown=2)
    assert server.client().zcard("delayq:{celery}:due") == 1
    proj.await_runs(1)
