"""Errors as pages, for those who came with a browser."""

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from celery_ext.serve.page.rendering import Page, path_of, render
from celery_ext.serve.problems import Problem

_TITLES = {
    403: "You may not do this",
    404: "There is no such page",
    503: "Redis does not answer",
}
_HINTS = {
    503: "This page tries again by itself. The tasks wait in Redis, not here: nothing is lost by waiting.",
}
#: Kinds of problems with a title and a hint of their own.
_OF_KIND = {
    "journal-unavailable": (
        "The journal does not answer",
        "Redis goes on delivering what it has. The overview shows that; this page needs both, and tries again by "
        "itself. If it stays so, see “Look after the journal” in the documentation.",
    ),
}
#: After how many s the page tries again by itself.
_AGAIN_S = {503: 5}


def is_wanted(request: Request) -> bool:
    """Whether a browser asks for a page, so that the answer is one, also to an error."""
    return "text/html" in request.headers.get("accept", "")


def explain(request: Request, problem: Problem) -> Response:
    """Answers with a page that says what is wrong. A caller who is not logged in goes to the login."""
    page = Page(request)
    if problem.status == 401 and page.serve.settings.tokens and request.method == "GET":
        query = request.url.query
        to = path_of(request).removeprefix("/") + (f"?{query}" if query else "")
        return RedirectResponse(f"{page.base}login?{urlencode({'next': to})}", 303)
    title, hint = _OF_KIND.get(
        problem.kind, (_TITLES.get(problem.status, problem.title), _HINTS.get(problem.status, ""))
    )
    detail = problem.detail if problem.detail.endswith((".", "?", "!")) else f"{problem.detail}."
    response = render(
        "error.html",
        page,
        problem.status,
        title=title,
        detail=detail[:1].upper() + detail[1:],
        hint=hint,
        again_s=_AGAIN_S.get(problem.status, 0),
    )
    response.headers.update(problem.headers)
    return response
