"""Connections that end without a word: nothing comes over them any more, and nobody closes them."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep
from unittest.mock import Mock

import pytest
from celery import Celery
from celery.worker.consumer import Consumer as WorkerConsumer
from kombu import Connection

from tests.support.looped import Looped
from tests.support.servers.proxies import Proxy
from tests.support.workers.harness import TRANSPORT, MakeProj, Proj

#: What Celery allows itself for the same, in s.
ENDS_S = 20.0


@pytest.fixture
def proxy(proj: Proj) -> Iterator[Proxy]:
    """Stands between consumers and the server."""
    with Proxy(proj.server.port) as made:
        yield made


@pytest.fixture
def idle(proxy: Proxy) -> Iterator[Looped]:
    """A consumer with default options that waits for messages, with one in hand that it has not acknowledged."""
    with Looped(Connection(proxy.url, transport=TRANSPORT), "a", "b", acks=False) as looped:
        looped.until(looped.waits_for("a", "b"))
        yield looped


def took_s(work: Callable[[], object]) -> float:
    """Does some work in a thread, waits at most ``ENDS_S`` for it, and returns how long it took, in s."""
    begun, pool = monotonic(), ThreadPoolExecutor(1)
    try:
        pool.submit(work).result(ENDS_S)
    finally:
        pool.shutdown(wait=False)
    return monotonic() - begun


def test_a_worker_leaves_a_connection_that_went_silent(proxy: Proxy, idle: Looped) -> None:
    """Celery's recovery after an error ends, though Redis answers nothing, and the connection is gone."""
    app, pool = Celery(), Mock(num_processes=2)
    app.conf.worker_cancel_long_running_tasks_on_connection_loss = True
    worker = WorkerConsumer(Mock(), pool=pool, app=app, timer=Mock(), controller=Mock())
    worker.connection = idle.connection
    proxy.freeze()
    took_s(lambda: worker.on_connection_error_after_connected(OSError("gone")))
    assert not idle.connection.connected


def test_a_silent_connection_closes(proxy: Proxy, idle: Looped) -> None:
    """A process that ends waits a few seconds for a Redis that does not answer."""
    proxy.freeze()
    took_s(idle.connection.close)


def test_a_publisher_that_was_idle_takes_a_new_connection(proj: Proj, proxy: Proxy) -> None:
    """What a NAT has forgotten is found out before anything is sent: the message is there once, and no call failed."""
    options = {"health_check_interval": 0.1, "socket_timeout": 1.0, "transfer": False}
    with Connection(proxy.url, transport=TRANSPORT, transport_options=options) as connection:
        queue = connection.SimpleQueue("a")
        queue.put(1)
        proxy.forget()
        sleep(0.2)  # longer than it takes until a connection counts as idle
        queue.queue.channel.basic_publish(queue.queue.channel.prepare_message("2"), "", "a")
        assert proj.server.client().llen("a") == 2


def test_a_server_that_answers_nothing_is_an_error(proxy: Proxy) -> None:
    """A process that connects to what takes connections and is silent does not try again and again by itself."""
    proxy.freeze()
    connection = Connection(proxy.url, transport=TRANSPORT, transport_options={"socket_timeout": 0.5})
    with connection, pytest.raises(connection.connection_errors, match="Timeout"):
        took_s(connection._establish_connection)


@pytest.mark.wide
@pytest.mark.nightly
@pytest.mark.parametrize("pool", ["prefork", "solo", "gevent"])
def test_a_worker_goes_on_within_a_minute_when_a_nat_forgets_it(make_proj: MakeProj, proxy: Proxy, pool: str) -> None:
    """With default options and flags, all connections of a worker go silent at once, and it connects again."""
    proj, sender = make_proj(broker_url=proxy.url), make_proj()
    worker = proj.worker(pool=pool, gossip=True)
    sender.send("record", "before")
    sender.await_runs(1)
    proxy.forget()
    sender.send("record", "after")
    sender.await_runs(2)
    assert worker.alive()
