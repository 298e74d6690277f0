"""The server inside of FastAPI, Starlette, Flask and Django, under a path."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin

import pytest
from celery import Celery
from fastapi import FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.serving import make_server

from celery_ext.connection import TRANSPORT
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve import asgi, wsgi
from celery_ext.serve.access.identity import OPERATING, Caller
from tests.support import ROOT
from tests.support.pages import blocks
from tests.support.serve.running import Answer, ask, in_thread, raw

PREFIX = "/tools/delayq"
STAFF = {"Cookie": "user=ada"}
OWN_SITE = {"Sec-Fetch-Site": "same-origin"}
#: A name that a path can only have in another writing.
ODD = "a/b c%d ü?"
ODD_IN_PATH = "a%2Fb%20c%25d%20%C3%BC%3F"


class Site(NamedTuple):
    """A site.

    Attributes:
        url: URL of the server in it.
        staff: Headers of somebody who may.
        other: Headers of somebody who may not.
        reads_chunks: Whether its bodies may come without a length.
        back: Where the menu of the page leads back to; empty for nowhere.
    """

    url: str
    staff: dict[str, str]
    other: dict[str, str]
    reads_chunks: bool = True
    back: str = ""


def identify(request: Request) -> Caller | None:
    """Names callers as the app around does."""
    user = request.cookies.get("user")
    return Caller(user, OPERATING) if user == "ada" else None


@contextmanager
def fastapi(app: Celery, directory: Path) -> Iterator[Site]:
    outer = FastAPI()
    outer.mount(PREFIX, asgi(app, identify=identify, allow_write=True, back_url="/home"))
    with in_thread(outer) as url:
        yield Site(url.rstrip("/") + PREFIX, STAFF, {"Cookie": "user=bob"}, back="/home")


@contextmanager
def starlette(app: Celery, directory: Path) -> Iterator[Site]:
    mount = Mount("/tools", routes=[Mount("/delayq", asgi(app, identify=identify, allow_write=True))])
    with in_thread(Starlette(routes=[mount])) as url:
        yield Site(url.rstrip("/") + PREFIX, STAFF, {"Cookie": "user=bob"})


@contextmanager
def flask(app: Celery, directory: Path) -> Iterator[Site]:
    outer: Any = Flask("outer")
    outer.wsgi_app = DispatcherMiddleware(outer.wsgi_app, {PREFIX: wsgi(app, identify=identify, allow_write=True)})
    server = make_server("127.0.0.1", 0, outer, threaded=True)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Site(f"http://127.0.0.1:{server.server_port}{PREFIX}", STAFF, {"Cookie": "user=bob"})
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


@contextmanager
def django(app: Celery, directory: Path, server: str = "wsgi") -> Iterator[Site]:
    command = [sys.executable, "-m", "tests.support.serve.django_site", app.conf.broker_url, str(directory), server]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True) as process:
        try:
            assert process.stdout
            found = json.loads(process.stdout.readline())
            yield Site(found["url"], {"Cookie": found["ada"]}, {"Cookie": found["bob"]}, server == "asgi", "/admin/")
        finally:
            process.kill()


def django_by_asgi(app: Celery, directory: Path) -> AbstractContextManager[Site]:
    return django(app, directory, "asgi")


SITES: dict[str, Callable[[Celery, Path], AbstractContextManager[Site]]] = {
    each.__name__: each for each in (fastapi, starlette, flask, django, django_by_asgi)
}


@pytest.fixture(scope="module", params=SITES)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The site of each framework, over a broker with a task."""
    with PrivateRedis() as server:
        app = Celery("mounted", broker=server.url, set_as_current=False)
        app.conf.broker_transport = TRANSPORT
        app.send_task("shop.remind", [1], queue=ODD, countdown=3600, task_id=ODD)
        with SITES[request.param](app, tmp_path_factory.mktemp("site")) as site:
            yield site


def test_the_page_works_under_its_path(site: Site) -> None:
    """Pages, files and the API answer under the path of the mount, and their links stay there, but one to the app."""
    page = ask(site.url, "/", headers={**site.staff, "Accept": "text/html"})
    assert page.status == 200
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert page.headers["cache-control"] == "no-store"
    links = re.findall(r'(?:href|src|action)="([^"#]+)', page.text)
    assert len(links) > 10
    outside = [link for link in links if not urljoin(f"{site.url}/", link).startswith(f"{site.url}/")]
    assert outside == ([site.back] if site.back else [])
    assert ask(site.url, "/static/page.css", headers=site.staff).headers["content-type"].startswith("text/css")
    assert ODD in [row["queue"] for row in ask(site.url, "/v1/queues", headers=site.staff).json["queues"]]
    assert ask(site.url, "/nowhere", headers=site.staff).status == 404


def test_names_in_paths_keep_their_slashes(site: Site) -> None:
    """A queue and a task with a slash, a percent sign and an umlaut in their names are found by the path."""
    page = ask(site.url, f"/queues/{ODD_IN_PATH}", headers={**site.staff, "Accept": "text/html"})
    assert page.status == 200, page.text
    assert "shop.remind" in page.text
    assert ask(site.url, f"/v1/tasks/{ODD_IN_PATH}", headers=site.staff).json["task"] == "shop.remind"


def test_the_app_around_decides_who_comes_in(site: Site) -> None:
    """Who is not of the staff gets nothing, and a page of another site changes nothing with the session of who is."""
    for headers in (site.other, {}):
        assert ask(site.url, "/v1/queues", headers=headers).status in (302, 401)
        assert ask(site.url, "/v1/tasks/x", "DELETE", headers=headers | OWN_SITE).status in (302, 401)
    assert ask(site.url, "/v1/tasks/x", "DELETE", headers=site.staff).status == 403
    assert ask(site.url, "/v1/tasks/x", "DELETE", headers=site.staff | {"Sec-Fetch-Site": "same-site"}).status == 403
    gone = ask(site.url, "/v1/tasks/x", "DELETE", headers=site.staff | OWN_SITE)
    assert gone.status == 404
    assert gone.headers["content-type"] == "application/problem+json"


def test_bodies_come_through(site: Site) -> None:
    """A change with a body works, and one that is too large is refused."""
    path, headers = f"/v1/tasks/{ODD_IN_PATH}", site.staff | OWN_SITE
    assert ask(site.url, path, "PATCH", headers, {"countdown": 60}).json["outcome"] == "rescheduled"
    assert ask(site.url, path, "PATCH", headers, {"countdown": "1" * 1_100_000}).status == 413
    form = headers | {"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html"}
    done = ask(site.url, "/do/reschedule", "POST", form, b"id=a%2Fb+c%25d+%C3%BC%3F&countdown=1h")
    assert done.status == 303, done.text
    assert urljoin(f"{site.url}/do/reschedule", done.headers["location"]).startswith(f"{site.url}/tasks?id=")


def test_a_body_in_chunks_is_read_or_refused_in_words(site: Site) -> None:
    """A body without a length comes through, and one that is too large is refused.

    Below Django by WSGI, which cannot tell where such a body ends, the answer says what to do.
    """
    headers = site.staff | OWN_SITE | {"Content-Type": "application/json"}

    def answer(spaces: int) -> Answer:
        body = iter([b'{"countdown":', b" " * spaces, b"60}"])
        return ask(site.url, f"/v1/tasks/{ODD_IN_PATH}", "PATCH", headers, body)

    if site.reads_chunks:
        assert answer(1).json["outcome"] == "rescheduled"
        assert answer(1_100_000).status == 413
    else:
        refused = answer(1)
        assert (refused.status, "send the header Content-Length" in refused.json["detail"]) == (411, True)


@pytest.mark.parametrize("path", ["/a%20b", "/%C3%BC"])
def test_the_path_of_a_mount_may_have_any_character(redis_server: PrivateRedis, path: str) -> None:
    """Below a path that is percent-encoded when it is sent, pages are found, and links lead back there."""
    app = Celery("mounted", broker=redis_server.url, set_as_current=False)
    app.conf.broker_transport = TRANSPORT
    with in_thread(Starlette(routes=[Mount(unquote(path), asgi(app, anonymous=True))])) as url:
        assert ask(url, f"{path}/v1/queues").status == 200
        assert ask(url, f"{path}/openapi.json").json["servers"] == [{"url": path}]


def test_an_odd_path_is_no_failure(site: Site) -> None:
    """Bytes that are no text, in the path or in the query, are refused, and not with a 500."""
    path = site.url.partition("//")[2].partition("/")[2]
    for target in (
        b"/queues/%ff%fe",
        b"/v1/queues?x=%ff",
        b"/v1/queues?x=\xff",
        b"/queues/\xff",
        b"/%00",
        b"//",
        b"/../x",
    ):
        cookie = site.staff["Cookie"].encode()
        head = b"GET /%s%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nCookie: %s\r\n\r\n"
        answer = raw(site.url, head % (path.encode(), target, cookie), end=False)
        assert answer.split(b" ")[1][:1] in (b"2", b"3", b"4"), (target, answer[:300])


def test_the_app_of_the_page_asks_for_a_login(monkeypatch: pytest.MonkeyPatch, redis_server: PrivateRedis) -> None:
    """The block for FastAPI runs as it stands, and lets nobody in whose session names no user."""
    [code] = [block for block in blocks(ROOT / "docs/how-to/serve.md", "python") if "FastAPI(" in block]
    app = Celery("mounted", broker=redis_server.url, set_as_current=False)
    app.conf.broker_transport = TRANSPORT
    for name in ("proj", "proj.celery"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["proj.celery"], "app", app, raising=False)
    monkeypatch.setenv("SESSION_KEY", "of the test")
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102
    with in_thread(names["app"]) as url:
        assert ask(url, "/delayq/v1/queues").status == 401
