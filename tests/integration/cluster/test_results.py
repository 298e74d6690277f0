"""Results of tasks over a cluster: Celery's Redis backend knows no cluster, but replies go through the transport."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery, signals
from celery.contrib.testing.worker import start_worker

from tests.support.servers.cluster import PrivateCluster


@pytest.fixture
def unchanged_log() -> Iterator[None]:
    """A worker inside this process leaves the log as it is, for the tests that read it."""

    def leave(**_: Any) -> None:
        pass

    signals.setup_logging.connect(leave)
    yield
    signals.setup_logging.disconnect(leave)


@pytest.mark.usefixtures("unchanged_log")
def test_rpc_brings_results(cluster: PrivateCluster) -> None:
    """With ``rpc://`` the caller gets the results of immediate and of delayed tasks."""
    with Celery(uuid.uuid4().hex, broker=cluster.url, backend="rpc://", set_as_current=False) as app:
        app.conf.broker_connection_retry_on_startup = True

        @app.task(name="double")
        def double(number: int) -> int:
            return 2 * number

        with start_worker(app, pool="solo", perform_ping_check=False):
            results = [double.apply_async((number,), countdown=number % 2 or None) for number in range(6)]
            assert [result.get(timeout=30) for result in results] == [0, 2, 4, 6, 8, 10]
