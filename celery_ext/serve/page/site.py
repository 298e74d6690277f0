"""The login, the files that pages load, and errors in words."""

from pathlib import Path
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from celery_ext.features import folders_of
from celery_ext.serve.access.gate import gate_of, log_out
from celery_ext.serve.page.rendering import PageNote, View, form_of, path_of, render
from celery_ext.serve.problems import Problem

_STATIC = StaticFiles(
    directory=Path(__file__).parent / "static",
    packages=[(f"celery_ext.{folder.parent.name}", folder.name) for folder in folders_of("static")],
)


async def static(request: Request) -> Response:
    """Answers with a file. A browser asks each time whether it has changed, and gets it only then."""
    response = await _STATIC.get_response(request.path_params["path"], request.scope)
    response.headers["Cache-Control"] = "no-cache"
    return response


def login(request: Request) -> Response:
    """Asks for a token."""
    return _ask(request, request.query_params.get("next", ""))


def log_in(request: Request) -> Response:
    """Begins a session for a token."""
    form = dict(form_of(request))
    to = form.get("next", "")
    # `./` makes any text a path below this server.
    response = RedirectResponse(f"./{to}", 303)
    if gate_of(request).sessions.log_in(request, response, form.get("token", "")) is None:
        return _ask(request, to, [PageNote("bad", "This token is not known here, or has expired.")], 401)
    return response


def leave(request: Request) -> Response:
    """Ends a session."""
    response = RedirectResponse("./login", 303)
    log_out(request, response)
    return response


def _ask(request: Request, to: str, notes: list[PageNote] | None = None, status: int = 200) -> Response:
    page = View(request, "login", notes or [])
    if not page.serve.settings.tokens:
        raise Problem(404, "nobody logs in here: this server has no tokens")
    return render("login.html", page, status, next=to[:2000])


#: Titles and hints of errors, by their kind or their status.
_IN_WORDS: dict[str | int, tuple[str, str]] = {
    "journal-unavailable": (
        "The journal does not answer",
        "Redis goes on delivering what it has. The overview shows that; this page needs both, and tries again by "
        "itself. If it stays so, see “Look after the journal” in the documentation.",
    ),
    403: ("You may not do this", ""),
    404: ("There is no such page", ""),
    503: (
        "Redis does not answer",
        "This page tries again by itself. The tasks wait in Redis, not here: nothing is lost by waiting.",
    ),
}


def is_wanted(request: Request) -> bool:
    """Whether a browser asks for a page, so that the answer is one, also to an error."""
    return "text/html" in request.headers.get("accept", "")


def explain(request: Request, problem: Problem) -> Response:
    """Answers with a page that says what is wrong. A caller who is not logged in goes to the login."""
    page = View(request)
    if problem.status == 401 and page.serve.settings.tokens and request.method == "GET":
        query = request.url.query
        to = path_of(request).removeprefix("/") + (f"?{query}" if query else "")
        return RedirectResponse(f"{page.base}login?{urlencode({'next': to})}", 303)
    title, hint = _IN_WORDS.get(problem.kind) or _IN_WORDS.get(problem.status) or (problem.title, "")
    detail = problem.detail if problem.detail.endswith((".", "?", "!")) else f"{problem.detail}."
    response = render(
        "error.html",
        page,
        problem.status,
        title=title,
        detail=detail[:1].upper() + detail[1:],
        hint=hint,
        again_s=5 if problem.status == 503 else 0,
    )
    response.headers.update(problem.headers)
    return response
