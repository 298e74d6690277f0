"""Apps without the tasks that other tests of this process share with all apps."""

import pytest
from celery import _state


@pytest.fixture(autouse=True)
def unshared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets an app of a test have its own tasks alone."""
    monkeypatch.setattr(_state, "_on_app_finalizers", set())
