"""How hypothesis runs here, and an app that needs no Redis."""

from collections.abc import Iterator

import pytest
from celery import Celery, _state
from hypothesis import HealthCheck, settings

from tests.support.messages import empty_broker

# Other tests run at the same time: how long an example takes says nothing about the code.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")


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
