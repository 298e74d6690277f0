"""Who calls: tokens, sessions of browsers, users whom a proxy names, and requests that other sites cause."""

import base64
import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from celery_ext.connection import TRANSPORT
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve import ServeSettings, asgi
from celery_ext.serve.access.gate import COOKIE
from celery_ext.serve.access.identity import OPERATING, READING, Action, Caller
from celery_ext.serve.access.tokens import Token, hash_of
from celery_ext.serve.application import make_app
from celery_ext.serve.service import ServeBroker
from tests.support.serve.running import tokens_file

SECRET = "dq_of-the-operator"
OWN_SITE = {"Sec-Fetch-Site": "same-origin"}
#: Changes nothing, and shows by its status who came through: 401, 403, or 404 for those who may.
CANCEL = "/v1/tasks/nobody"


@pytest.fixture
def app(redis_server: PrivateRedis, client: Any) -> Celery:
    """An app with a broker that has nothing."""
    app = Celery("callers", broker=redis_server.url, set_as_current=False)
    app.conf.broker_transport = TRANSPORT
    return app


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with the token of an operator."""
    return tokens_file(tmp_path / "tokens.json", operator())


def operator(**more: Any) -> Token:
    return Token("operator", hash_of(SECRET), OPERATING, ("*",), ("*",), **more)


def client_of(app: Celery, peer: str = "127.0.0.1", url: str = "http://localhost", **settings: Any) -> TestClient:
    """Returns a browser, or another program, in front of a server as `delayq serve` makes it."""
    broker = ServeBroker(app, lambda: app.connection_for_read(transport=TRANSPORT))
    application = make_app(broker, ServeSettings(allow_write=True, **settings))
    return TestClient(application, url, client=(peer, 5000), follow_redirects=False)


def logged_in(app: Celery, file: Path, url: str = "http://localhost", **settings: Any) -> TestClient:
    """Returns a browser that has logged in."""
    browser = client_of(app, url=url, tokens=file, **settings)
    answer = browser.post("/login", data={"token": SECRET}, headers=OWN_SITE)
    assert answer.status_code == 303, answer.text
    return browser


def test_whoever_logs_in_works_in_a_session(app: Celery, file: Path) -> None:
    """The session does what the token may, as long as the browser says that our page sent the request."""
    browser = logged_in(app, file)
    assert browser.get("/v1/queues").status_code == 200
    assert browser.delete(CANCEL, headers=OWN_SITE).status_code == 404
    assert browser.delete(CANCEL, headers={"Origin": "http://localhost"}).status_code == 404
    browser.post("/logout", headers=OWN_SITE)
    assert browser.get("/v1/queues").status_code == 401


def test_other_sites_cannot_use_a_session(app: Celery, file: Path) -> None:
    """A request with a session, but from another site or from nowhere, changes nothing and logs nobody in."""
    for headers in ({}, {"Sec-Fetch-Site": "cross-site"}):
        answer = logged_in(app, file).delete(CANCEL, headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:delayq:problem:cross-site")
    answer = client_of(app, tokens=file).post("/login", data={"token": SECRET}, headers=headers)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("root_path", ["", "/tools/delayq"])
def test_the_cookie_goes_nowhere_else(app: Celery, file: Path, scheme: str, root_path: str) -> None:
    """No script reads it, no other site makes the browser send it, and it stays below our path, on https in https."""
    browser = client_of(app, url=f"{scheme}://localhost", tokens=file, root_path=root_path)
    answer = browser.post("/login", data={"token": SECRET}, headers=OWN_SITE)
    cookie = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=strict", f"Path={root_path or '/'}"} <= set(cookie.split("; "))
    assert ("Secure" in cookie) is (scheme == "https")
    assert SECRET not in cookie
    assert hash_of(SECRET) not in cookie


def _changes(cookie: str) -> Iterator[str]:
    name, end, signature = cookie.split(".")
    admin = base64.urlsafe_b64encode(b"admin").decode()
    yield from (f"{admin}.{end}.{signature}", f"{name}.{int(end) + 1}.{signature}", f"{name}.{end}.{signature[:-1]}0x")
    yield from (
        f"{name}.{end}.",
        f"{name}.{end}",
        f"{name}.{int(time.time()) - 5}.{signature}",
        "",
        "...",
        f"..{signature}",
    )
    yield from (
        f"{name}.{end}.{hash_of(SECRET)}",
        f"{name}.1e99.{signature}",
        f"!.{end}.{signature}",
        f"{cookie}.{end}",
    )
    yield f"{name}.{end}.\u00e9"


def test_a_cookie_that_was_changed_is_none(app: Celery, file: Path) -> None:
    """Whoever changes the name, the end or the signature of a cookie is nobody, and that is no failure."""
    browser = logged_in(app, file)
    cookie = browser.cookies[COOKIE]
    other = client_of(app, tokens=file)
    for changed in (cookie, *_changes(cookie)):
        answer = other.get("/v1/queues", headers={"Cookie": f"{COOKIE}={changed}".encode("latin-1")})
        assert answer.status_code == (200 if changed == cookie else 401), changed


def test_a_session_ends_with_its_token(app: Celery, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that is removed, replaced or over has no sessions, and a session has an end of its own."""
    browser = logged_in(app, file)
    tokens_file(file, Token("operator", hash_of("dq_another"), OPERATING, ("*",), ("*",)))
    assert browser.get("/v1/queues").status_code == 401
    tokens_file(file, operator())
    assert browser.get("/v1/queues").status_code == 200
    with monkeypatch.context() as later:
        later.setattr("celery_ext.serve.access.gate.time", lambda: time.time() + 12 * 3600 + 1)
        assert browser.get("/v1/queues").status_code == 401
    tokens_file(file)
    assert browser.get("/v1/queues").status_code == 401
    tokens_file(file, operator(expires=datetime.now(UTC) - timedelta(seconds=1)))
    assert browser.post("/login", data={"token": SECRET}, headers=OWN_SITE).status_code == 401
    bearer = {"Authorization": f"Bearer {SECRET}"}
    assert "expired" in browser.get("/v1/queues", headers=bearer).json()["detail"]


@pytest.mark.parametrize(
    "to", ["//evil.example.com", "https://evil.example.com", "/\\evil.example.com", "\t//evil", "javascript:1"]
)
def test_the_login_leads_to_no_other_site(app: Celery, file: Path, to: str) -> None:
    """Wherever a link to the login says to go on, the way stays on this server."""
    browser = client_of(app, tokens=file)
    answer = browser.post("/login", data={"token": SECRET, "next": to}, headers=OWN_SITE)
    assert answer.headers["Location"].startswith("./")


def test_a_rate_holds_for_a_token_and_its_sessions(app: Celery, file: Path) -> None:
    """Who sends more than the rate is told when to come again; another token is not held up."""
    other = Token("other", hash_of("dq_other"), READING, ("*",), ("*",))
    tokens_file(file, operator(rate="2/m"), other)
    browser = logged_in(app, file)
    bearer = {"Authorization": f"Bearer {SECRET}"}
    assert [browser.get("/v1/queues", headers=bearer).status_code for _ in "12"] == [200, 200]
    for headers in (bearer, {}):
        answer = browser.get("/v1/queues", headers=headers)
        assert answer.status_code == 429
        assert 1 <= int(answer.headers["Retry-After"]) <= 30
    assert browser.get("/v1/queues", headers={"Authorization": "Bearer dq_other"}).status_code == 200


PROXIED: dict[str, Any] = {"trust_header": "X-Forwarded-User", "trusted_proxies": ("10.0.0.0/8", "::1")}


@pytest.mark.parametrize("peer", ["10.1.2.3", "::1", "::ffff:10.1.2.3"])
def test_a_proxy_names_its_user(app: Celery, peer: str) -> None:
    """Behind a trusted proxy the user works under the name that it gives, but runs no code and consumes nothing."""
    proxy = client_of(app, peer, **PROXIED)
    ada = {"X-Forwarded-User": "ada@example.org"}
    assert proxy.get("/v1/queues", headers=ada).status_code == 200
    assert proxy.delete(CANCEL, headers=ada | OWN_SITE).status_code == 404
    assert proxy.delete(CANCEL, headers=ada).status_code == 403
    answer = proxy.post("/v1/tasks", json={"task": "t"}, headers=ada | OWN_SITE)
    assert answer.json()["detail"] == "ada@example.org may not enqueue"
    assert proxy.post("/v1/queues/q:take", headers=ada | OWN_SITE).status_code == 403
    assert proxy.get("/v1/queues").status_code == 401


@pytest.mark.parametrize("peer", ["127.0.0.1", "11.0.0.1", "::2", "testclient"])
def test_nobody_else_names_a_user(app: Celery, peer: str, caplog: pytest.LogCaptureFixture) -> None:
    """The header of another peer is ignored, and that is logged once."""
    spoofer = client_of(app, peer, **PROXIED)
    for _ in "12":
        assert spoofer.get("/v1/queues", headers={"X-Forwarded-User": "ada"}).status_code == 401
    warnings = [record for record in caplog.records if "is ignored" in record.getMessage()]
    assert [record.levelno for record in warnings] == [logging.WARNING]
    assert peer in warnings[0].getMessage()


def test_a_user_who_comes_twice_is_refused(app: Celery) -> None:
    """A proxy that passes on the header of its client, beside its own, lets nobody choose a name."""
    proxy = client_of(app, "10.1.2.3", **PROXIED)
    two = [("X-Forwarded-User", "admin"), ("X-Forwarded-User", "ada")]
    assert proxy.get("/v1/queues", headers=two).status_code == 400
    for odd in ("", " ", "a" * 200, "a\x00b"):
        assert proxy.get("/v1/queues", headers={"X-Forwarded-User": odd}).status_code == 400, odd


def test_tokens_work_behind_a_proxy_that_has_tokens_of_its_own(app: Celery, file: Path) -> None:
    """A token of ours counts before the header, and one of the proxy's does not count at all."""
    proxy = client_of(app, "10.1.2.3", tokens=file, **PROXIED)
    user = {"X-Forwarded-User": "ada"}
    assert proxy.delete(CANCEL, headers={"Authorization": f"Bearer {SECRET}"}).status_code == 404
    assert proxy.get("/v1/queues", headers=user | {"Authorization": "Bearer eyJhbGciOi"}).status_code == 200
    assert proxy.get("/v1/queues", headers={"Authorization": "Bearer eyJhbGciOi"}).status_code == 401
    assert proxy.get("/v1/queues", headers=user | {"Authorization": "Bearer dq_wrong"}).status_code == 401


@pytest.mark.parametrize("peer", ["10.1.2.3", "127.0.0.1"])
def test_only_a_trusted_proxy_says_where_we_are(app: Celery, file: Path, peer: str) -> None:
    """Prefix and scheme come from the headers of a trusted proxy, and show in links and cookies."""
    browser = client_of(app, peer, tokens=file, **PROXIED)
    said = OWN_SITE | {"X-Forwarded-Prefix": "/tools", "X-Forwarded-Proto": "https"}
    cookie = browser.post("/login", data={"token": SECRET}, headers=said).headers["Set-Cookie"]
    trusted = peer == "10.1.2.3"
    assert ("Path=/tools" in cookie) is trusted
    assert ("Secure" in cookie) is trusted
    if trusted:
        for odd in ("tools", "/a//b", "/<script>", "/..%2f", "//evil.example.com"):
            assert browser.get("/login", headers={"X-Forwarded-Prefix": odd}).status_code == 400, odd


def test_without_tokens_this_machine_may_look_and_nothing_else(app: Celery) -> None:
    """A server without tokens shows itself to who reaches it, which only this machine does, and changes nothing."""
    local = client_of(app)
    assert local.get("/v1/queues").status_code == 200
    for headers in ({}, OWN_SITE):
        assert local.delete(CANCEL, headers=headers).status_code == 403
    cross = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    assert local.get("/v1/queues", headers=cross).status_code == 403


def test_a_mount_says_who_may_call(app: Celery, file: Path) -> None:
    """Mounted without a word about callers it is refused at once; the app around it names them, or lets all look."""
    with pytest.raises(ValueError, match="who may call"):
        asgi(app)
    for settings, status in (({"anonymous": True}, 200), ({"tokens": file}, 401), ({"identify": lambda _: None}, 401)):
        outer = Starlette(routes=[Mount("/delayq", asgi(app, **settings))])  # type: ignore[arg-type]
        assert TestClient(outer, "http://any.example.org").get("/delayq/v1/queues").status_code == status
    boss = Caller("boss", frozenset({Action.READ, Action.CANCEL}))
    mounted = asgi(app, allow_write=True, identify=lambda request: boss if request.state.role == "boss" else None)

    class Role:
        def __init__(self, role: str) -> None:
            self.role = role

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await mounted({**scope, "state": {"role": self.role}}, receive, send)

    for role, statuses in (("boss", (200, 404, 403)), ("guest", (401, 401, 401))):
        browser = TestClient(Role(role))
        got = (
            browser.get("/v1/queues").status_code,
            browser.delete(CANCEL, headers=OWN_SITE).status_code,
            browser.post("/v1/tasks/x:run", headers=OWN_SITE).status_code,
        )
        assert got == statuses
