"""The login, the files that pages load, and errors in words."""

from functools import cache
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from celery_ext.serve.access.gate import gate_of, log_out
from celery_ext.serve.page.rendering import Note, View, form_of, path_of, render
from celery_ext.serve.problems import Problem

_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",
}


class _File(NamedTuple):
    content: bytes
    kind: str
    etag: str


def static(request: Request) -> Response:
    """Answers with a file. A browser asks each time whether it has changed, and gets it only then."""
    file = _files().get(request.path_params["path"])
    if file is None:
        raise Problem(404, "there is no such file")
    headers = {"ETag": file.etag, "Cache-Control": "no-cache"}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(None, 304, headers)
    return Response(file.content, 200, headers, file.kind)


@cache
def _files() -> dict[str, _File]:
    found = {}
    for name, path in _walk(files("celery_ext.serve.page").joinpath("static"), ""):
        content = path.read_bytes()
        kind = _TYPES[name.rpartition(".")[2] if "." in name else ""]
        found[name] = _File(content, kind, f'"{blake2b(content, digest_size=12).hexdigest()}"')
    return found


def _walk(folder: Traversable, under: str) -> list[tuple[str, Traversable]]:
    found = []
    for entry in folder.iterdir():
        found += _walk(entry, f"{under}{entry.name}/") if entry.is_dir() else [(f"{under}{entry.name}", entry)]
    return found


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
        return _ask(request, to, [Note("bad", "This token is not known here, or has expired.")], 401)
    return response


def leave(request: Request) -> Response:
    """Ends a session."""
    response = RedirectResponse("./login", 303)
    log_out(request, response)
    return response


def _ask(request: Request, to: str, notes: list[Note] | None = None, status: int = 200) -> Response:
    page = View(request, "login", notes or [])
    if not page.serve.settings.tokens:
        raise Problem(404, "nobody logs in here: this server has no tokens")
    return render("login.html", page, status, next=to[:2000])


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
    page = View(request)
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
