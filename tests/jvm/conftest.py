"""One JVM with the real Redisson for all tests, which run one after the other."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.jvm import redisson
from tests.support.jvm.redisson import Jvm
from tests.support.missing import missing
from tests.support.workers.fixtures import make_proj

__all__ = ["make_proj"]


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "run_jvm" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("jvm"))


@pytest.fixture
def layout() -> str:
    """The form in which apps keep delayed messages."""
    return "redisson"


@pytest.fixture(scope="session")
def run_jvm(
    shared_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Callable[[str], Jvm]]:
    """Starts a JVM with a version of Redisson. Where Maven cannot get it, the tests are skipped."""
    if reason := redisson.why_not():
        missing(reason)
    with ExitStack() as cleanup:

        def run(version: str) -> Jvm:
            try:
                libraries = redisson.jars(version, Path(pytestconfig.cache.mkdir("redisson")))
            except redisson.NoRedisson as error:
                pytest.skip(str(error))
            directory = tmp_path_factory.mktemp("jvm")
            jvm = Jvm(redisson.compiled(libraries, directory), shared_server.url, directory / "log")
            cleanup.callback(jvm.close)
            return jvm

        yield run


@pytest.fixture(scope="session")
def jvm(run_jvm: Callable[[str], Jvm]) -> Jvm:
    """The JVM with the current Redisson."""
    return run_jvm(redisson.VERSION)


@pytest.fixture
def old_jvm(run_jvm: Callable[[str], Jvm]) -> Jvm:
    """A JVM with a Redisson that packs entries as it did up to 3.21.0."""
    return run_jvm(redisson.OLD_VERSION)
