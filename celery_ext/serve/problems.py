"""Errors as problem details, RFC 9457."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):
    """An error that the caller gets to read.

    Args:
        status: HTTP status.
        detail: What is wrong with this request, a sentence for the caller. No secrets, no traceback.
        kind: Short name of the kind of problem, stable for programs, such as ``bad-cursor``; by default the status.
        headers: Further headers of the answer, such as ``Retry-After``.
        extra: Further members of the problem, JSON.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        kind: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.kind = kind or HTTPStatus(status).phrase.lower().replace(" ", "-")
        self.headers = dict(headers or {})
        self.extra = extra

    @property
    def title(self) -> str:
        """The same for each problem of a kind."""
        return self.kind.replace("-", " ").capitalize()

    def as_dict(self) -> dict[str, Any]:
        """Returns the members of the problem."""
        kind = f"urn:delayq:problem:{self.kind}"
        return {"type": kind, "title": self.title, "status": self.status, "detail": self.detail, **self.extra}

    def about(self, **extra: Any) -> "Problem":
        """Returns the same problem with further members, such as the task that it is about."""
        return Problem(self.status, self.detail, self.kind, headers=self.headers, **{**self.extra, **extra})

    def response(self) -> "Response":
        """Returns the answer."""
        from starlette.responses import Response

        try:
            body = msgspec.json.encode(self.as_dict())
        except UnicodeEncodeError:  # a name in the path was no UTF-8, and the problem repeats it
            body = json.dumps(self.as_dict()).encode()
        return Response(body, self.status, self.headers, MEDIA_TYPE)


def bad_request(detail: str, kind: str = "bad-request") -> Problem:
    """A request that cannot be understood: 400."""
    return Problem(400, detail, kind)


def unavailable(detail: str, kind: str = "broker-unavailable", status: int = 503, **extra: Any) -> Problem:
    """Redis or another server does not answer, or refuses: 503. The caller may ask again after 2 s."""
    return Problem(status, detail, kind, headers={"Retry-After": "2"}, **extra)
