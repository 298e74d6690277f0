"""The same page below a prefix: mounted into FastAPI, into Flask, and behind a proxy that strips the prefix."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from celery import Celery
from fastapi import FastAPI
from flask import Flask
from starlette.types import Receive, Scope, Send
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from celery_ext.serve import asgi, wsgi
from celery_ext.serve.access.identity import OPERATING, Caller
from kombu_delayq.store import DelayStore
from tests.integration.serve.page.conftest import Visit
from tests.integration.serve.page.test_queue import fill
from tests.support.serve.running import in_thread

SETTINGS = {"allow_write": True, "identify": lambda request: Caller("ops", OPERATING)}


@contextmanager
def in_fastapi(app: Celery) -> Iterator[str]:
    outer = FastAPI()
    outer.mount("/ops/delayq", asgi(app, **SETTINGS))
    with in_thread(outer) as url:
        yield f"{url.rstrip('/')}/ops/delayq/"


class _Quiet(WSGIRequestHandler):
    def log_message(self, *args: Any) -> None: ...


@contextmanager
def in_flask(app: Celery) -> Iterator[str]:
    outer = Flask("outer")
    outer.wsgi_app = DispatcherMiddleware(outer.wsgi_app, {"/ops/delayq": wsgi(app, **SETTINGS)})  # type: ignore[method-assign]
    with make_server("127.0.0.1", 0, outer, handler_class=_Quiet) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/ops/delayq/"
        finally:
            server.shutdown()
            thread.join(10)


@contextmanager
def behind_a_proxy(app: Celery) -> Iterator[str]:
    """A proxy strips a prefix of which the server knows nothing."""
    inner = asgi(app, **SETTINGS)

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["path"].removeprefix("/ops/delayq")
            scope = {**scope, "path": path, "raw_path": scope["raw_path"].removeprefix(b"/ops/delayq")}
        await inner(scope, receive, send)

    with in_thread(proxy) as url:
        yield f"{url.rstrip('/')}/ops/delayq/"


@pytest.mark.parametrize("mount", [in_fastapi, in_flask, behind_a_proxy])
def test_below_a_prefix(app: Celery, store: DelayStore, visit: Visit, mount: Callable[[Celery], Any]) -> None:
    """All links, forms, files and questions of the script stay below the prefix."""
    fill(app, 3)
    with ExitStack() as stack:
        url = stack.enter_context(mount(app))
        reader = visit(url)
        page = reader.page
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        reader.see()
        page.locator(".u-over").wait_for()
        page.get_by_role("link", name="Day", exact=True).click()
        page.get_by_role("rowheader", name="mail").get_by_role("link").click()
        page.get_by_label("Task name").fill("shop.remind")
        page.get_by_role("button", name="Show").click()
        page.get_by_text("3 found").last.wait_for()
        page.locator("[data-tasks] a").first.click()
        page.get_by_role("button", name="Run now").click()
        page.get_by_text("Sent to its queue").wait_for()
        assert store.queues.stats("mail").ready == 1
        page.goto("about:blank")  # no question is left
        assert all(one.startswith((url, "about:")) for one in asked), asked
