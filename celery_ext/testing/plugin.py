"""The pytest plugin: fixtures for the delayed tasks of an app.

pytest imports this module at its start in every project that has this package, so it imports nothing of Celery.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from celery_ext.testing.delayed_tasks import DelayedTasks

#: The fixtures of ``celery.contrib.pytest`` that start a worker.
_WORKERS = ("celery_worker", "celery_session_worker")
_MEMORY, _REDIS = "memory", "redis"


@pytest.fixture(scope="session")
def delayed_tasks_broker() -> str:
    """Where delayed tasks wait in tests: ``memory``, ``redis`` for a server of the test's own, or the URL of a Redis.

    Override it in your ``conftest.py``.
    """
    return _MEMORY


@pytest.fixture(scope="session")
def _delayed_tasks_url(delayed_tasks_broker: str) -> Iterator[str]:
    if delayed_tasks_broker != _REDIS:
        if delayed_tasks_broker != _MEMORY and "://" not in delayed_tasks_broker:
            raise pytest.UsageError(
                f"delayed_tasks_broker is {delayed_tasks_broker!r}; it has to be 'memory', 'redis' or a URL"
            )
        yield delayed_tasks_broker
        return
    from celery_ext.demo.private_redis import NoRedisServer, PrivateRedis

    try:
        with PrivateRedis(slots=False) as server:
            yield server.url
    except NoRedisServer as error:
        raise pytest.UsageError(f"delayed_tasks_broker is 'redis': {error}") from error


@pytest.fixture
def delayed_tasks(request: pytest.FixtureRequest, _delayed_tasks_url: str) -> "Iterator[DelayedTasks]":
    """The delayed tasks of all Celery apps of this process: what waits, and a clock to move on.

    ``has`` and ``waiting`` look, ``advance`` and ``run_due`` run what comes due.
    """
    from celery_ext.testing.delayed_tasks import delayed_tasks as make

    names = [name for name in _WORKERS if name in request.fixturenames]
    worker: Any = request.getfixturevalue(names[0]) if names else None
    with make(_delayed_tasks_url, worker) as made:
        yield made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Adds what waits and what has run to the report of a test that has failed."""
    report = yield
    made = getattr(item, "funcargs", {}).get("delayed_tasks")
    if made is not None and report.when == "call" and report.failed and hasattr(made, "describe"):
        try:
            text = made.describe()
        except Exception as error:  # the test may have ended its Redis, and its own failure has to be reported
            text = f"cannot be read: {error!r}"
        report.sections.append(("Delayed tasks", text))
    return report
