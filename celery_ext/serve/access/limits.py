"""Limits of what a request may bring, whatever server runs the application."""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Most bytes of a body, and of one with many tasks.
BODY_BYTES = 1_000_000
BATCH_BYTES = 10_000_000
#: How the path of a request with many tasks ends.
BATCH_PATHS = (":batch",)


class BodyLimit:
    """Refuses bodies that are too large: as soon as their length is known, or while they come.

    Nothing reads on then. What the client still sends is thrown away by the server, so that the client reads the
    answer and not only that the connection broke.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request.

        Raises:
            HTTPException: 413.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = BATCH_BYTES if scope["path"].endswith(BATCH_PATHS) else BODY_BYTES
        if _announced(scope) > limit:
            raise _too_large(limit)
        read = 0

        async def receive_up_to_limit() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > limit:
                raise _too_large(limit)
            return message

        await self._app(scope, receive_up_to_limit, send)


def _announced(scope: Scope) -> int:
    """Returns the announced length of the body in bytes; 0 if it comes in chunks. Servers refuse what is no number."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


def _too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"the body is larger than {limit:,} bytes")
