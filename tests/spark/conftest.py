"""One Spark for all tests, and what they need beside it.

A test that needs Spark asks for the fixture ``spark``, one that starts its own in another process for ``java``. All of
these run one after the other, so that there is one JVM at a time.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from pyspark.sql import SparkSession

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from tests.support.missing import missing
from tests.support.spark import session
from tests.support.spark.reading import store_of
from tests.support.spark.session import BROKER_ENV, GONE_ENV, PASSWORD, WRONG_ENV, WRONG_PASSWORD, SparkLog

#: How long a test may take that starts Spark or has several jobs, in s: on a busy machine, Spark takes two minutes to
#: start, and half a minute for a job.
BUSY_S = 900


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "java" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(BUSY_S))


@pytest.fixture
def store(redis_server: PrivateRedis, client: redis.Redis) -> Iterator[DelayStore]:
    """A store on an empty database."""
    store = store_of(redis_server)
    yield store
    store.close()


@pytest.fixture(scope="session")
def java() -> None:
    """Without Java the tests fail in CI, and are skipped elsewhere."""
    if reason := session.why_no_java():
        missing(reason)


@pytest.fixture(scope="session")
def guarded_server() -> Iterator[PrivateRedis]:
    """A server with a password; the variable ``BROKER_ENV`` has its URL, with the password, for Spark and the tests."""
    with PrivateRedis("--requirepass", PASSWORD) as server:
        os.environ[BROKER_ENV] = server.url.replace("//", f"//:{PASSWORD}@")
        yield server


@pytest.fixture(scope="session")
def _spark_and_log(
    java: None, guarded_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SparkSession, Path]]:
    directory = tmp_path_factory.mktemp("spark")
    log = directory / "log"
    os.environ[WRONG_ENV] = guarded_server.url.replace("//", f"//:{WRONG_PASSWORD}@")
    os.environ[GONE_ENV] = f"redis://:{PASSWORD}@127.0.0.1:1/0"
    with session.stderr_into(log):
        spark = session.start(directory)
    yield spark, log
    session.stop(spark)


@pytest.fixture
def spark(_spark_and_log: tuple[SparkSession, Path]) -> SparkSession:
    """The session, in which the format ``celery`` is registered. Settings that a test changes, it sets back."""
    return _spark_and_log[0]


@pytest.fixture
def spark_files(_spark_and_log: tuple[SparkSession, Path]) -> list[Path]:
    """All files to which Spark has logged: those of its events, and the standard error of its processes."""
    log = _spark_and_log[1]
    return [log, *(log.parent / "events").iterdir()]


@pytest.fixture
def spark_log(_spark_and_log: tuple[SparkSession, Path]) -> SparkLog:
    """Returns what Spark and its Python workers have logged since the test began."""
    log = _spark_and_log[1]
    begin = log.stat().st_size

    def read() -> str:
        with log.open("rb") as file:
            file.seek(begin)
            return file.read().decode(errors="replace")

    return read
