"""Connections of uvicorn with limits that it has not: none stays open for a client that is slow on purpose."""

import asyncio
import logging
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from celery_ext.serve.access.headers import HEADERS
from celery_ext.serve.problems import Problem

logger = logging.getLogger(__name__)

#: How long a client may take to send the head of a request, in s. A connection that sends nothing counts, too.
HEAD_S = 10.0
#: How long a client may take to send a body after its head, in s: 10 MB at 330 kB/s.
BODY_S = 30.0
#: How long a client may leave an answer unread, in s, while more of it waits than the buffers of the system hold.
UNREAD_S = 30.0
#: Most bytes of the head of a request, and of its first line's address.
HEAD_BYTES = 32_768
URL_BYTES = 8192
#: Most connections at once; below the usual limit of 1,024 open files.
CONNECTIONS = 900


class GuardedConnection(HttpToolsProtocol):
    """A connection with a deadline whenever the client has to do something."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        #: Bytes of a head: as they came, and those in headers that are complete.
        self._sent_bytes = self._head_bytes = 0
        self._in_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins a connection, or ends it at once if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            self._refuse(503, "the server has too many connections", {"Retry-After": "2"})
        self._expect(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends a connection."""
        self._expect(None)
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Takes what a client sends."""
        if self.transport.is_closing():
            return
        if self._in_head:
            if self._deadline is None and not self._answering:
                self._expect(HEAD_S)
            # The parser keeps a head in memory, however long it is. Behind the head these data may have a body.
            if self._sent_bytes > HEAD_BYTES:
                self._refuse(431, f"the head of the request is larger than {HEAD_BYTES:,} bytes")
                return
            self._sent_bytes += len(data)
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Notes that a request begins."""
        super().on_message_begin()
        self._in_head = True
        self._expect(HEAD_S)

    def on_url(self, url: bytes) -> None:
        """Takes a part of the address."""
        super().on_url(url)
        if len(self.url) > URL_BYTES:
            self._refuse(414, f"the address is longer than {URL_BYTES:,} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header, or one that follows a body in chunks, which nobody reads."""
        if not self._in_head:
            return
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > HEAD_BYTES:
            self._refuse(431, f"the head of the request is larger than {HEAD_BYTES:,} bytes")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Starts the application."""
        self._in_head = False
        self._sent_bytes = self._head_bytes = 0
        if self.transport.is_closing():
            return
        self._expect(BODY_S)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Takes a part of a body."""
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Notes that a request has come whole: from now on the client waits for the server."""
        self._in_head = True
        self._expect(None)
        if self.transport.is_closing():
            return
        super().on_message_complete()
        if self.cycle is not None and self.cycle.response_complete:  # it was answered before it had come whole
            self._expect(HEAD_S)

    def send_400_response(self, msg: str) -> None:
        """Refuses what is no HTTP."""
        if not self.transport.is_closing():
            self._refuse(400, "this is no HTTP request")

    def pause_writing(self) -> None:
        """Notes that the client leaves an answer unread."""
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Notes that the client reads on."""
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        if self.flow is not None:
            super().resume_writing()

    def _expect(self, within_s: float | None) -> None:
        """Sets the deadline of what the client has to do next; None while it has to do nothing."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if within_s is None else self.loop.call_later(within_s, self._time_out)

    @property
    def _answering(self) -> bool:
        """Whether the application has a request that it has not answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def _time_out(self) -> None:
        answered = self.cycle is not None and self.cycle.response_complete and not self._in_head
        if self.transport.is_closing() or answered:  # the client goes on sending what was refused already
            self.transport.abort()
        else:
            self._refuse(408, "the request did not come whole in time")

    def _refuse(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        """Answers in place of the application, unless that has begun to, and ends the connection."""
        if self.transport.is_closing():
            return
        begun = self._answering and self.cycle.response_started
        if self._answering:
            self.cycle.disconnected = True  # the application notices, and its answer goes nowhere
            self.cycle.message_event.set()
        if not begun:
            response = Problem(status, detail, headers=headers).response()
            lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "Connection: close"]
            lines += [f"{name}: {value}" for name, value in {**HEADERS, **response.headers}.items()]
            self.transport.write("\r\n".join([*lines, "", ""]).encode() + bytes(response.body))
        logger.debug("a connection was refused with %s: %s", status, detail)
        self.transport.close()
        # A client that does not read would keep the rest of the answer, and the connection with it.
        self.loop.call_later(HEAD_S, self.transport.abort)
