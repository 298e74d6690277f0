"""A broker that is reached by a Unix socket, and a list of brokers of which some are dead."""

import signal
import time

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.servers.proxies import Proxy
from tests.support.workers.harness import MakeProj


@pytest.mark.journey
def test_a_unix_socket_url_of_ours_works(make_proj: MakeProj) -> None:
    """The `delayq+socket` form of the same URL delays and delivers."""
    server = make_proj().server
    proj = make_proj(broker_url=f"delayq+socket://{server.socket_path}")
    proj.worker()
    proj.send("record", "far", countdown=3600)
    assert server.client().zcard("delayq:{celery}:due") == 1
    proj.send("record", "near", countdown=1)
    proj.await_runs(1, value="near")


@pytest.mark.both_layouts
def test_delay_goes_on_through_a_list(own_server: PrivateRedis, make_proj: MakeProj) -> None:
    """With the first broker dead at the start, and the second one later, the next still keeps delayed messages."""
    with Proxy(0) as free:
        dead = free.port
    with PrivateRedis() as last:
        ports = (dead, own_server.port, last.port)
        proj = make_proj(own_server, broker_url=";".join(f"redis://127.0.0.1:{port}/0" for port in ports))
        alias = ";".join(f"delayq://127.0.0.1:{port}/0" for port in ports)
        worker = proj.worker(broker_url=alias, broker_transport=None)
        for server, value in ((own_server, "second"), (last, "third")):
            proj.send("record", "far", countdown=3600)
            assert server.client().zcard(proj.keys()[0]) == 1
            due = time.time() + 1
            sent = proj.send("record", value, countdown=1)
            [run] = proj.await_runs(1, timeout_s=60, value=value)
            assert run["id"] == sent.id
            assert run["at"] >= due
            if server is own_server:
                own_server.stop(signal.SIGKILL)
        assert worker.alive()
        assert len(proj.runs()) == 2
