"""Limits, and the keys of queues: what waits and runs of each, and the way to set, pause and reset them."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from celery_ext.limits import control, served
from celery_ext.limits.limit import Limit
from celery_ext.limits.store import LimitStore
from celery_ext.serve.access.identity import Action, caller_of
from celery_ext.serve.page.figures import Summary
from celery_ext.serve.page.rendering import PageNote, View, form_of, render
from celery_ext.serve.problems import Problem
from celery_ext.serve.routes import ActionRoute, change_route
from celery_ext.serve.service import serve_of
from kombu_delayq.store import DelayStore

#: Where the pages are, and their entry of the menu.
FOLDER, MENU = "limits", ("limits", "Limits")
#: Keys of a page, and how many of a queue are looked at for it.
ROWS, LOOKED = 50, 5_000
#: What the page says after a change.
_DONE = {
    "set": "{} is set. It holds until a reset.",
    "paused": "{} is paused: no more task of it begins.",
    "reset": "{} is as workers declare it.",
    "unchanged": "Nothing changed: {} was so before.",
}


def limits(request: Request) -> Response:
    """Answers with the limits, or with the keys of the queue that the query names."""
    if request.query_params.get("name"):
        return keys(request)
    return _limits(request, _notes(request))


def _limits(request: Request, notes: list[PageNote], status: int = 200) -> Response:
    serve, caller, page = serve_of(request), caller_of(request), View(request, FOLDER, notes)
    page.now_ms = serve.store.now_ms()
    return render(
        "limits.html",
        page,
        status,
        limits=served.list_limits(serve, caller),
        queues=caller.queues_of(sorted(serve.store.part(LimitStore).queues())),
        may_all=caller.unlimited,
        given=request.query_params,
    )


def keys(request: Request) -> Response:
    """Answers with the keys of a queue."""
    return _keys(request, request.path_params.get("queue") or request.query_params["name"], _notes(request))


def _keys(request: Request, queue: str, notes: list[PageNote], status: int = 200) -> Response:
    serve, caller, page = serve_of(request), caller_of(request), View(request, FOLDER, notes)
    served.check_keys(serve, caller, queue)
    page.now_ms, wanted = serve.store.now_ms(), request.query_params.get("key", "").strip()
    found = control.longest_keys(serve.store, [queue], limit=wanted, most=ROWS, looked=LOOKED)
    if not found.rows and queue not in serve.store.part(LimitStore).queues():
        raise Problem(404, "no worker has declared limits for this queue, and it holds no keys", "unknown-queue")
    return render(
        "limit_keys.html",
        page,
        status,
        queue=queue,
        found=found,
        key=wanted,
        may_all=caller.unlimited,
        given=request.query_params,
    )


def change(word: str, request: Request) -> Response:
    """Sets, pauses or resets a limit or a key."""
    serve, caller, form = serve_of(request), caller_of(request), dict(form_of(request))
    name, queue, args = form.get("limit", "").strip(), form.get("queue", ""), []
    try:
        if word == "set":
            args = [_limit_of(form)]
        name, outcome = served.change(serve, caller, _ACTS[word], name, *args)
    except ValueError as error:
        return _again(request, queue, f"Nothing changed: {error}.", 422)
    except Problem as problem:
        if problem.status != 404:
            raise
        return _again(request, queue, f"Nothing changed: {problem.detail}.", 404)
    page = View(request)
    to = page.named(FOLDER, queue, done=outcome, limit=name) if queue else page.to(FOLDER, done=outcome, limit=name)
    return RedirectResponse(to, 303)


_ACTS: dict[str, Any] = {"set": control.set_limit, "pause": control.pause, "reset": control.reset}


def _again(request: Request, queue: str, text: str, status: int) -> Response:
    notes = [PageNote("bad", text)]
    return _keys(request, queue, notes, status) if queue else _limits(request, notes, status)


def _limit_of(given: Mapping[str, str]) -> Limit:
    """Returns the limit in a form. Raises a ValueError if there is none, or it is no limit."""
    texts = {name: text for name in ("running", "rate", "burst", "weight") if (text := given.get(name, "").strip())}
    try:
        numbers: dict[str, Any] = {name: float(text) for name, text in texts.items()}
        if "running" in numbers:
            numbers["running"] = int(texts["running"])
    except ValueError:
        raise ValueError(f"{', '.join(texts.values())}: numbers are wanted") from None
    if "burst" in numbers:
        numbers["rate"] = [numbers.get("rate"), numbers.pop("burst")]
    if not numbers:
        raise ValueError("give running, a rate or a weight")
    return Limit.checked(numbers)


def _notes(request: Request) -> list[PageNote]:
    text = _DONE.get(request.query_params.get("done", ""))
    return [] if text is None else [PageNote("ok", text.format(request.query_params.get("limit", "")[:200]))]


def summary(store: DelayStore, queues: Iterable[str], now_ms: float) -> Summary:
    """Returns what the overview says of limits."""
    return Summary("Limits", FOLDER, len(store.unless_away(lambda: control.list_limits(store)) or ()))


def of_queue(store: DelayStore, queue: str) -> str:
    """Returns the text of the link from the page of a queue; empty if it has no limits."""
    return "Keys of limits" if queue in (store.if_allowed(store.part(LimitStore).queues) or ()) else ""


ROUTES = [
    ActionRoute(f"/{FOLDER}", limits, Action.READ),
    ActionRoute(f"/{FOLDER}/{{queue:name}}", keys, Action.READ),
    *(change_route(f"/do/limits/{word}", partial(change, word), Action.PAUSE) for word in _ACTS),
]
