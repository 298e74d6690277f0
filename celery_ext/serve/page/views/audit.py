"""The audit: who changed what waits, here or elsewhere."""

import json
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError
from starlette.requests import Request
from starlette.responses import Response

from celery_ext.serve.access.identity import caller_of
from celery_ext.serve.page.figures import Moment, moment
from celery_ext.serve.page.rendering import Page, render
from celery_ext.serve.problems import Problem, bad_request
from celery_ext.serve.service import serve_of
from kombu_delayq.store.viewing.audit import AuditLine

#: Lines of a page.
ROWS = 100


@dataclass(frozen=True)
class _Line:
    at: Moment | None
    who: str
    action: str
    count: int
    what: list[tuple[str, str]]


def audit(request: Request) -> Response:
    """Answers with the latest lines of the audit, for those who may see all queues and tasks: its lines name any."""
    caller = caller_of(request)
    if not caller.unlimited:
        raise Problem(403, f"{caller.name} sees some queues or tasks only, and the audit names all", "not-allowed")
    store, page = serve_of(request).store, Page(request, "audit")
    page.now_ms = store.now_ms()
    try:
        lines = store.audit.recent(ROWS + 1, request.query_params.get("before") or None)
    except ResponseError as error:
        if "Invalid stream ID" in str(error):
            raise bad_request("before is no id of a line") from None
        raise
    more = page.links.to("audit", before=lines[ROWS - 1].id) if len(lines) > ROWS else ""
    return render("audit.html", page, lines=[_shown(line, page.now_ms) for line in lines[:ROWS]], more=more)


def _shown(line: AuditLine, now_ms: float) -> _Line:
    what = [(name, _text(value)) for name, value in line.what.items()]
    return _Line(moment(line.at_ms, now_ms), line.who, line.action, line.count, what)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
