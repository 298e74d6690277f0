"""The HTTP API over a real Redis, for an app with tasks and for a broker of which only the URL is known."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from celery import Celery, _state
from starlette.testclient import TestClient

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve import asgi
from celery_ext.serve.access.identity import Action, Caller
from tests.support.workers.harness import TRANSPORT

#: Makes a client of a server: settings of the app by name, and the caller.
MakeApi = Callable[..., TestClient]
ORIGIN = "http://127.0.0.1:8000"
ALL = Caller("tester", frozenset(Action))


def shop(url: str, *, tasks: bool = True, **conf: Any) -> Celery:
    """Returns an app; without tasks it is what a server has that knows only the URL of the broker."""
    app = Celery("shop", broker=url, set_as_current=False)
    app.conf.update(broker_transport=TRANSPORT, **conf)
    if tasks:

        @app.task(name="shop.remind", shared=False)
        def remind(order: int, again: bool = False) -> None:
            """Reminds of an order."""

    return app


@pytest.fixture
def make_api(redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeApi]:
    """Makes clients of servers on an empty broker."""
    monkeypatch.setattr(_state, "_on_app_finalizers", set())  # each task of other tests would be a task of this app
    with ExitStack() as stack:

        def make(
            app: Celery | None = None, caller: Caller = ALL, server: PrivateRedis = redis_server, **settings: Any
        ) -> TestClient:
            app = app or shop(server.url)
            asked: dict[str, Any] = {"allow_write": True, "identify": lambda request: caller, **settings}
            made = asgi(app, **asked)
            client = stack.enter_context(TestClient(made, ORIGIN, headers={"Origin": ORIGIN}))
            stack.callback(made.state.serve.broker.close)  # type: ignore[attr-defined]
            stack.callback(app.close)
            return client

        yield make


@pytest.fixture(params=["app", "url"])
def api(request: pytest.FixtureRequest, make_api: MakeApi, redis_server: PrivateRedis) -> TestClient:
    """A client that may do everything, of a server with an app and of one that knows only the URL of its broker."""
    return make_api(shop(redis_server.url, tasks=request.param == "app"))
