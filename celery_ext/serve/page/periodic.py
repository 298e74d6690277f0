"""Periodic entries: when each runs next, and buttons to pause, resume and run it now."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from celery_ext.periodic import PeriodicStore
from celery_ext.serve.access.identity import caller_of
from celery_ext.serve.api.periodic import ChangeEntry, change_entry, entries_of
from celery_ext.serve.page.rendering import PageNote, View, form_of, render
from celery_ext.serve.service import serve_of

#: What the page says after a change.
_DONE = {
    "paused": "{} is paused, and what waited of it is cancelled.",
    "resumed": "{} runs again.",
    "requested": "{} runs now.",
    "unchanged": "Nothing changed: {} was so before.",
}


def entries(request: Request) -> Response:
    """Answers with all entries that the caller may see."""
    serve, page = serve_of(request), View(request, "periodic", _notes(request))
    page.now_ms = serve.store.now_ms()
    found = entries_of(serve, caller_of(request))
    return render("periodic.html", page, entries=found, armed_by=serve.store.part(PeriodicStore).leader())


def change(act: ChangeEntry, request: Request) -> Response:
    """Pauses or resumes an entry, or lets it run once more."""
    name = dict(form_of(request)).get("entry", "")
    outcome = change_entry(serve_of(request), caller_of(request), name, act)
    return RedirectResponse(View(request).to("periodic", done=outcome, entry=name), 303)


def _notes(request: Request) -> list[PageNote]:
    text = _DONE.get(request.query_params.get("done", ""))
    return [] if text is None else [PageNote("ok", text.format(request.query_params.get("entry", "")[:200]))]
