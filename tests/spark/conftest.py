"""One Spark for all tests, and what they need beside it.

A test that needs Spark asks for the fixture ``spark``, one that starts its own in another process for ``java``. All of
these run one after the other, so that there is one JVM at a time.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from celery_ext.private_redis import PrivateRedis
from tests.spark import session

#: Returns what Spark and its Python workers have logged since the test began.
SparkLog = Callable[[], str]


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "java" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def java() -> None:
    """Without Java the tests fail in CI, and are skipped elsewhere."""
    reason = session.why_no_java()
    if reason is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def _spark_and_log(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SparkSession, Path]]:
    directory = tmp_path_factory.mktemp("spark")
    log = directory / "log"
    with session.stderr_into(log):
        spark = session.start(directory)
    yield spark, log
    session.stop(spark)


@pytest.fixture
def spark(_spark_and_log: tuple[SparkSession, Path]) -> SparkSession:
    """The session, in which the format ``celery`` is registered. Settings that a test changes, it sets back."""
    return _spark_and_log[0]


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


@pytest.fixture
def own_server() -> Iterator[PrivateRedis]:
    """A server that the test may harm."""
    with PrivateRedis() as server:
        yield server
