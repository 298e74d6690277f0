"""How hypothesis runs here, Celery as it is, and an app that needs no Redis."""

import sys
from collections.abc import Iterator

import pytest
from celery import Celery, _state
from hypothesis import HealthCheck, settings

from tests.support.messages import empty_broker

# Other tests run at the same time: how long an example takes says nothing about the code.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")


@pytest.fixture(autouse=True)
def unpatched() -> Iterator[None]:
    """Each test begins and ends with Celery as it is: a worker in this process may have replaced some of it."""
    _take_off()
    yield
    _take_off()


def _take_off() -> None:
    if (patches := sys.modules.get("celery_ext.worker.celery_patches")) is not None:  # it brings in Celery's worker
        patches.take_off()


@pytest.fixture
def unshared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets apps of a test have its own tasks alone: Celery gives each task to every app that is finalized later."""
    monkeypatch.setattr(_state, "_on_app_finalizers", set())


@pytest.fixture
def app(unshared: None) -> Iterator[Celery]:
    """An app on kombu's in-memory broker, without tasks of other tests' apps; its queue is ``published``."""
    empty_broker()
    with Celery("unit", broker="memory://", set_as_current=False) as app:
        app.conf.task_default_queue = "published"
        yield app
