"""Clients that send too much, too slowly, or nonsense, to a real server."""

from asyncio import sleep
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from threading import Event
from time import monotonic

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from celery_ext.serve.access import connections, limits
from celery_ext.serve.access.stack import middleware
from celery_ext.serve.application import problem_of
from celery_ext.serve.settings import ServeSettings
from tests.support.conditions import DEADLINE_S, until
from tests.support.serve.running import ask, connected, in_thread, raw, read_to_end

#: In place of 10 to 30 s.
SHORT_S = 0.4
#: Set when nobody reads an endless answer any more.
GIVEN_UP = Event()
HEAD = b"POST /size HTTP/1.1\r\nHost: localhost\r\n"


async def size(request: Request) -> Response:
    return PlainTextResponse(f"{len(await request.body())}")


async def much(request: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(100_000)
                await sleep(0)
        finally:
            GIVEN_UP.set()

    return StreamingResponse(pieces())


def in_words(request: Request, error: Exception) -> Response:
    return problem_of(error).response()


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server with short deadlines and our middleware."""
    for name in ("HEAD_S", "BODY_S", "UNREAD_S"):
        monkeypatch.setattr(connections, name, SHORT_S)
    routes = [Route("/size", size, methods=["GET", "POST"]), Route("/x:batch", size, methods=["POST"])]
    stack = middleware(ServeSettings(), in_words)
    handlers = {HTTPException: in_words}
    application = Starlette(routes=[*routes, Route("/much", much)], middleware=stack, exception_handlers=handlers)
    with in_thread(application) as url:
        yield url
        assert ask(url, "/size").text == "0", "the server still answers"


@pytest.mark.parametrize(
    "sent",
    [b"", b"\r\n", b"GET", b"GET /size HTTP/1.1\r\nHost: local", HEAD + b"Content-Length: 5\r\n\r\nab"],
    ids=["nothing", "an empty line", "half a line", "half a head", "half a body"],
)
def test_half_a_request_times_out(url: str, sent: bytes) -> None:
    """Whoever sends a part and then nothing is told so, and disconnected, within the deadline."""
    begun = monotonic()
    answer = raw(url, sent, end=False)
    assert SHORT_S / 2 < monotonic() - begun < DEADLINE_S
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"Content-Security-Policy" in answer


@pytest.mark.parametrize(
    "sent", [HEAD[:30], HEAD + b"Content-Length: 9\r\n\r\nab", HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"]
)
def test_a_client_that_hangs_up_is_forgotten(url: str, sent: bytes) -> None:
    """A request that ends in the middle is no failure of the server."""
    assert b"HTTP/1.1 5" not in raw(url, sent)


@pytest.mark.parametrize("start", [b"GET /size HTTP/1.1\r\nX: ", HEAD + b"Content-Length: 1000\r\n\r\n", b""])
def test_a_slow_client_has_no_more_time_than_others(url: str, start: bytes) -> None:
    """A byte now and then does not keep a connection open: the deadline is that of the whole head, or body."""
    begun = monotonic()
    with connected(url) as client:
        client.sendall(start)
        client.settimeout(SHORT_S / 10)
        answer = b""
        while not answer:
            assert monotonic() - begun < DEADLINE_S
            client.sendall(b"a" if start else b"\r\n")
            with suppress(TimeoutError):
                answer = client.recv(1000)
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_client_that_reads_nothing_is_disconnected(url: str) -> None:
    """An answer that nobody reads does not stay in memory."""
    GIVEN_UP.clear()
    with connected(url) as client:
        client.sendall(b"GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert GIVEN_UP.wait(10)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 40_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: %s\r\n" % (i, bytes(90)) for i in range(500)) + b"\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: %s\r\n" % (i, b"a" * 90) for i in range(500)) + b"\r\n", 431),
        (b"hello\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"CONNECT example.org:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (HEAD + b"Content-Length: x\r\n\r\n", 400),
        (HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
        (HEAD + b"Content-Length: -1\r\n\r\n", 400),
        (HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET /nowhere HTTP/1.0\r\nHost: localhost\r\n\r\n", 404),
        (b"GET /size HTTP/1.1\r\nConnection: close\r\n\r\n", 421),
    ],
    ids=range(16),
)
def test_what_is_no_good_request_is_refused(url: str, sent: bytes, status: int) -> None:
    """Nonsense, and heads that are too large, get a clear answer that is no failure of the server."""
    answer = raw(url, sent, end=False)
    assert answer.partition(b"\r\n")[0].startswith(b"HTTP/1.1 %d " % status), answer[:200]
    assert b'"urn:delayq:problem:' in answer


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("path", "limit"), [("/size", limits.BODY_BYTES), ("/x:batch", limits.BATCH_BYTES)])
def test_a_body_may_be_as_large_as_it_says(url: str, path: str, limit: int, chunked: bool) -> None:
    """The largest body passes, and one byte more does not, however it is sent."""
    for length, status in ((limit, 200), (limit + 1, 413)):
        body = iter([bytes(length - 5), bytes(5)]) if chunked else bytes(length)
        answer = ask(url, path, "POST", body=body)
        assert answer.status == status, answer.text
    assert f"{limit:,}" in answer.json["detail"]


def test_a_body_of_100_mb_is_refused_before_it_has_come(url: str) -> None:
    """The answer comes while most of the body is still with the client; what it sends on is not kept."""
    with connected(url) as client:
        client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"%x\r\n%s\r\n" % (100_000, bytes(100_000))
        sent, answer = 0, b""
        while not answer and sent < 1000:
            client.settimeout(5)
            client.sendall(chunk)
            sent += 1
            client.settimeout(0.005)
            with suppress(TimeoutError):
                answer = client.recv(10_000)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert sent < 100
        client.settimeout(10)
        read_to_end(client)


def test_connections_above_the_limit_are_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that only hold connections do not use up the open files of the process, and others come in again."""
    monkeypatch.setattr(connections, "CONNECTIONS", 20)
    monkeypatch.setattr(connections, "HEAD_S", 1.5)
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(connected(url))
        assert until(lambda: raw(url, b"")).startswith(b"HTTP/1.1 503 ")
        until(lambda: ask(url, "/size").status == 200, 10, "those who send nothing are gone")


def test_a_connection_serves_many_requests(url: str) -> None:
    """Limits count for each request, not for a connection: pauses between requests and many requests are fine."""
    request = b"GET /size HTTP/1.1\r\nHost: localhost\r\nX-Fill: %s\r\n\r\n" % (b"a" * 20_000)
    with connected(url) as client:
        for _ in range(5):
            client.sendall(request)
            answer = b""
            while not answer.endswith(b"\r\n\r\n0"):
                answer += client.recv(10_000)
            assert answer.startswith(b"HTTP/1.1 200 ")
    three = b"GET /size HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2
    three += b"GET /size HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert raw(url, three, end=False).count(b"HTTP/1.1 200 ") == 3
