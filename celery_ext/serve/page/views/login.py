"""The login: a token becomes a session of the browser."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from celery_ext.serve.access.gate import gate_of, log_out
from celery_ext.serve.page.rendering import Note, Page, render
from celery_ext.serve.page.views.forms import form_of
from celery_ext.serve.problems import Problem


def login(request: Request) -> Response:
    """Asks for a token."""
    return _ask(request, request.query_params.get("next", ""))


def log_in(request: Request) -> Response:
    """Begins a session for a token."""
    form = dict(form_of(request))
    to = form.get("next", "")
    # In front of it stands `./`, so that it is a way below this server, whatever it says.
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
    page = Page(request, "login", notes or [])
    if not page.serve.settings.tokens:
        raise Problem(404, "nobody logs in here: this server has no tokens")
    return render("login.html", page, status, next=to[:2000])
