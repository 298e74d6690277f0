"""``/v1/audit``: who changed what waits, through this server or otherwise."""

from redis.exceptions import ResponseError
from starlette.requests import Request
from starlette.responses import Response

from celery_ext.serve.access.identity import Action, caller_of
from celery_ext.serve.api.exchange import answer, iso, query_of
from celery_ext.serve.api.models.letters import AuditLine, AuditList
from celery_ext.serve.api.models.requests import PageQuery
from celery_ext.serve.problems import Problem, bad_request
from celery_ext.serve.routes import ActionRoute, Doc
from celery_ext.serve.service import serve_of


def routes() -> list[ActionRoute]:
    """Returns the route of the audit."""
    doc = Doc("List who did what, the newest first.", PageQuery, None, {200: AuditList}, "Audit")
    return [ActionRoute("/v1/audit", list_audit, Action.READ, doc=doc)]


def list_audit(request: Request) -> Response:
    """Answers with the latest lines. Lines name any task and queue, so only those see them who may see all."""
    caller, wanted = caller_of(request), query_of(request, PageQuery)
    if not caller.unlimited:
        raise Problem(403, f"{caller.name} sees some queues or tasks only, and the audit names all", "not-allowed")
    try:
        found = serve_of(request).store.audit.recent(wanted.limit, wanted.cursor)
    except ResponseError as error:
        if wanted.cursor is None or "Invalid stream ID" not in str(error):
            raise
        raise bad_request("this is no cursor of the audit", "bad-cursor") from None
    lines = [
        AuditLine(id=line.id, at=iso(line.at_ms), who=line.who, action=line.action, what=line.what, count=line.count)
        for line in found
    ]
    return answer(AuditList(lines=lines, cursor=lines[-1].id if len(lines) == wanted.limit else None))
