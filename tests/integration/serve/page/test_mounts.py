"""The page behind a proxy that strips a prefix. Other tests mount it into frameworks."""

from celery import Celery
from starlette.types import Receive, Scope, Send

from celery_ext.serve import asgi
from celery_ext.serve.access.identity import OPERATING, Caller
from kombu_delayq.store import DelayStore
from tests.integration.serve.page.conftest import Visit
from tests.integration.serve.page.test_queue import fill
from tests.support.serve.running import in_thread

PREFIX = "/ops/delayq"


def test_below_a_prefix(app: Celery, store: DelayStore, visit: Visit) -> None:
    """All links, forms, files and questions of the script stay below a prefix of which the server knows nothing."""
    fill(app, 3)
    inner = asgi(app, allow_write=True, identify=lambda request: Caller("ops", OPERATING))

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path, raw_path = scope["path"].removeprefix(PREFIX), scope["raw_path"].removeprefix(PREFIX.encode())
            scope = {**scope, "path": path, "raw_path": raw_path}
        await inner(scope, receive, send)

    with in_thread(proxy) as served:
        url = f"{served.rstrip('/')}{PREFIX}/"
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
