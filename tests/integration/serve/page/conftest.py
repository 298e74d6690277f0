"""An app, its server, and readers with one real browser, whose tests run one after the other."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from celery import Celery
from playwright.sync_api import Browser

from celery_ext.connection import open_store
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve import asgi
from celery_ext.serve.access.identity import OPERATING, Caller
from kombu_delayq.store import DelayStore
from tests.support.serve.browser import Visitor, chromium
from tests.support.serve.running import in_thread

#: Opens a window on the server.
Visit = Callable[..., Visitor]


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="package")  # an event loop runs while there is one, so no other tests may come before its end
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def app(redis_server: PrivateRedis, client: redis.Redis) -> Iterator[Celery]:
    """An app with tasks, whose workers nobody has started."""
    app = Celery("shop", broker=redis_server.url, set_as_current=False)
    app.conf.update(broker_transport="kombu_delayq.transport:Transport", task_default_queue="mail")

    def anything(*args: Any, **kwargs: Any) -> None: ...

    app.task(name="shop.remind", shared=False)(anything)
    app.task(name="shop.charge", shared=False)(anything)
    yield app
    app.close()


@pytest.fixture
def store(app: Celery) -> Iterator[DelayStore]:
    with app.connection_for_write() as connection:
        yield open_store(connection)


@pytest.fixture
def serve(app: Celery) -> Iterator[Callable[..., str]]:
    """Starts servers of the app, and returns the address of their page. By default everything is allowed."""
    running = []

    def start(**settings: Any) -> str:
        given = {"allow_write": True, "identify": lambda request: Caller("ops", OPERATING)} | settings
        served = in_thread(asgi(app, **given))
        url = served.__enter__()
        running.append(served)
        return url.rstrip("/") + "/"

    yield start
    for served in running:
        served.__exit__(None, None, None)


@pytest.fixture
def visit(browser: Browser, serve: Callable[..., str]) -> Iterator[Visit]:
    """Opens windows on a server with given settings; each must end without a fault."""
    open_windows = []

    def open_window(url: str | None = None, *, settings: dict[str, Any] | None = None, **how: Any) -> Visitor:
        visitor = Visitor(browser, url or serve(**(settings or {})), **how)
        open_windows.append(visitor)
        return visitor

    yield open_window
    for visitor in open_windows:
        visitor.close()
