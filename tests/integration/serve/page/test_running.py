"""What runs now, as the workers say."""

from time import time

import pytest
from starlette.testclient import TestClient

from celery_ext.serve import asgi
from celery_ext.serve.access.identity import READING, Caller
from celery_ext.serve.page import running
from tests.support.conditions import DEADLINE_S, until
from tests.support.workers.harness import Proj

HTML = {"Accept": "text/html"}


@pytest.mark.journey
def test_the_page_shows_what_runs(proj: Proj, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is acknowledged early, too: its name with a link, since when, its queue and its worker."""
    may = {"all": Caller("all", READING), "others": Caller("others", READING, tasks=("shop.*",))}
    app = asgi(proj.app, identify=lambda request: may[request.headers["x-as"]])
    with TestClient(app, base_url="http://localhost") as client:
        monkeypatch.setattr(running, "ANSWERS_S", 0.1)
        assert "No worker answers" in client.get("/running", headers={**HTML, "X-As": "all"}).text
        worker = proj.worker(pool="threads")
        monkeypatch.setattr(running, "ANSWERS_S", 2.0)
        begun_s = time()
        proj.send("busy", DEADLINE_S, task_id="the-run")
        page = ""

        def shows() -> bool:
            nonlocal page
            page = client.get("/running", headers={**HTML, "X-As": "all"}).text
            return "the-run" in page

        until(shows, what="the run is shown")
        assert '<a href="./waiting?task=proj.busy"><bdi>proj.busy</bdi></a>' in page
        assert '<a href="./queues/celery"><bdi>celery</bdi></a>' in page
        assert worker.node in page
        assert "1 run in 1 worker" in page
        assert time() - begun_s < DEADLINE_S
        assert "the-run" not in client.get("/running", headers={**HTML, "X-As": "others"}).text
        worker.kill()
