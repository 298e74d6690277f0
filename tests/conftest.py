"""Fixtures that all tiers share. Every server here is started by the test that uses it."""

import gc
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import celery
import pytest
import redis
from celery import signals

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.cut import is_contract, is_missing, is_wide

if TYPE_CHECKING:
    from tests.support.servers.cluster import PrivateCluster
    from tests.support.servers.postgres import PrivatePostgres


# A shell that runs the tests in the background lets them ignore Ctrl-C, and the processes of the tests would as well.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: Length of values that may be part of the name of a test.
LONGEST_NAME = 120


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names long values by their length: with pytest-xdist, each process sends the names of all tests to another."""
    return f"{argname} of {len(val)}" if isinstance(val, str | bytes) and len(val) > LONGEST_NAME else None


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves out the folders whose package is not installed."""
    return True if is_missing(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what `make test` leaves to `make test-all`, and what runs with other versions and servers."""
    for item in items:
        if is_contract(item):
            item.add_marker("contract")
        if is_wide(item.path):
            item.add_marker("wide")


def pytest_collection_finish() -> None:
    """Leaves what is there before the first test out of all garbage collections: each app that ends asks for one."""
    gc.collect()
    gc.freeze()
    if celery.VERSION < (5, 7):
        # Before, a wait for a result never ended once another result of the same id was collected (celery#4925), and
        # those of a canvas lie in circles. Each app that ends still collects them.
        gc.disable()


@signals.setup_logging.connect
def leave_log(**_: object) -> None:
    """Leaves the log as it is: a worker in the process of a test would set it for all tests that follow."""


@pytest.fixture(scope="session")
def shared_server() -> Iterator[PrivateRedis]:
    """One server for all tests that do not harm it, with what the tests before left in it."""
    with PrivateRedis() as server:
        yield server


@pytest.fixture
def redis_server(shared_server: PrivateRedis) -> PrivateRedis:
    """An empty server that the test does not harm."""
    shared_server.client().flushall()
    return shared_server


@pytest.fixture
def client(redis_server: PrivateRedis) -> Iterator[redis.Redis]:
    """A client of an empty database; decodes replies."""
    with redis_server.client() as client:
        yield client


@pytest.fixture
def own_server() -> Iterator[PrivateRedis]:
    """A server that the test may harm."""
    with PrivateRedis() as server:
        yield server


@pytest.fixture
def durable_server() -> Iterator[PrivateRedis]:
    """A server that has written down all that it has answered."""
    with PrivateRedis("--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@pytest.fixture(scope="session")
def shared_cluster() -> "Iterator[PrivateCluster]":
    """One Redis Cluster of three primaries with a replica each, for all tests that do not harm it.

    No node gives up another that waits for the processor for some seconds.
    """
    from tests.support.servers.cluster import PrivateCluster

    with PrivateCluster(node_timeout_ms=15_000) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: "PrivateCluster") -> "PrivateCluster":
    """The shared cluster without keys. A test may move slots if it moves them back."""
    shared_cluster.flush()
    return shared_cluster


@pytest.fixture
def own_cluster() -> "Iterator[PrivateCluster]":
    """A cluster that the test may harm."""
    from tests.support.servers.cluster import PrivateCluster

    with PrivateCluster() as cluster:
        yield cluster


@pytest.fixture
def patient_cluster(own_cluster: "PrivateCluster") -> "PrivateCluster":
    """A cluster that the test may harm, of which no node gives up another that waits for the processor."""
    for node in own_cluster.nodes:
        node.client.config_set("cluster-node-timeout", 15_000)  # only now: it takes longer to form with that
    return own_cluster


@pytest.fixture(scope="session")
def postgres_server() -> "Iterator[PrivatePostgres]":
    """One PostgreSQL for all tests that do not harm it; a test of SQLite alone does not ask for it."""
    from tests.support.servers.postgres import PrivatePostgres, need_postgres

    need_postgres()
    with PrivatePostgres() as server:
        yield server


@pytest.fixture
def own_postgres() -> "Iterator[PrivatePostgres]":
    """A PostgreSQL that the test may harm."""
    from tests.support.servers.postgres import PrivatePostgres, need_postgres

    need_postgres()
    with PrivatePostgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def journal_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of an empty journal, in each database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/journal.db"
        return
    from celery_ext.journal.database import engine_of, parse_url

    url = request.getfixturevalue("postgres_server").make_schema()
    yield url
    engine_of(parse_url(url)).dispose()
