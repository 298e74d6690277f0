"""The fixture ``delayed_tasks`` over each broker, and an app whose tasks note that they run."""

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery

from celery_ext.testing.plugin import _delayed_tasks_url, delayed_tasks

__all__ = ["_delayed_tasks_url", "delayed_tasks"]


@pytest.fixture(scope="session", params=["memory", "redis"])
def delayed_tasks_broker(request: pytest.FixtureRequest) -> str:
    """Each broker that a test may choose."""
    return str(request.param)


class Shop:
    """A plain app without a broker, and what its tasks have done."""

    def __init__(self, name: str = "shop") -> None:
        self.app = Celery(name, set_as_current=False)
        self.done: list[Any] = []

        @self.app.task(shared=False, name="shop.remind")
        def remind(*args: Any, **kwargs: Any) -> Any:
            self.done.append(args[0] if args else kwargs)
            return args

        @self.app.task(shared=False, name="shop.flaky", bind=True, max_retries=3)
        def flaky(task: Any, works_at: int = 9, countdown: float = 60) -> str:
            self.done.append(task.request.retries)
            if task.request.retries < works_at:
                raise task.retry(countdown=countdown, exc=ValueError("still broken"))
            return "works"

        @self.app.task(shared=False, name="shop.follow", bind=True)
        def follow(task: Any, left: int, countdown: float | None = 60) -> None:
            self.done.append(left)
            if left:
                task.apply_async((left - 1, countdown), countdown=countdown)

        self.remind, self.flaky, self.follow = remind, flaky, follow


@pytest.fixture
def shop() -> Iterator[Shop]:
    """The app."""
    shop = Shop()
    yield shop
    shop.app.close()
