"""A queue: its figures, what comes due when, and its waiting tasks; and those of all queues: filtered, by pages."""

from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from celery_ext.serve import changes
from celery_ext.serve.access.identity import Action, Caller, caller_of
from celery_ext.serve.counting import visible_queues
from celery_ext.serve.page.chart import SPANS, chart, span_of
from celery_ext.serve.page.figures import Moment, moment, number
from celery_ext.serve.page.filter import Filter, filter_of
from celery_ext.serve.page.gathered import gather
from celery_ext.serve.page.past import past
from celery_ext.serve.page.rendering import Links, Note, View, form_of, path_of, render
from celery_ext.serve.problems import Problem
from celery_ext.serve.service import Serve, serve_of
from celery_ext.waiting import DelayedTask, TaskPage, search_page

#: Rows of a page, and for how long the server looks for them, in s. A script searches as a stream instead.
ROWS, LOOK_S = 50, 0.8


#: What the page says after a change.
_DONE = {
    "paused": Note("ok", "Paused: consumers take nothing more. What they have goes on, and what comes due waits here."),
    "resumed": Note("ok", "Resumed: consumers take from it again, within a second."),
    "unchanged": Note("warn", "Nothing changed: it was so before."),
}


#: The same of tasks that were ticked, by their outcomes.
_TICKED = {
    "transferred": ("ok", "{} sent to their queues."),
    "cancelled": ("ok", "{} cancelled: they will never run."),
    "rescheduled": ("ok", "{} rescheduled."),
    "chain_ended": ("ok", "{} did not wait just now. Their delay chains have ended."),
    "dead_letter": ("warn", "{} failed for good, and stay as dead letters."),
    "not_delayed": ("warn", "{} did not wait any more, or are none of yours."),
    "unreadable": ("bad", "{} cannot be rewritten, and stay as they are."),
}


class TaskRow(NamedTuple):
    """A row of the table of tasks."""

    task: DelayedTask
    due: Moment | None
    arguments: str
    error: str = ""


class Search(NamedTuple):
    """Where the table begins and goes on.

    Attributes:
        streams: Whether a script fills the table.
        link: From where it does.
        first: Link to the first page; empty on it.
        more: Link to the next page; empty on the last.
        more_text: What this link says.
        text: How far the search is.
    """

    streams: bool = False
    link: str = ""
    first: str = ""
    more: str = ""
    more_text: str = ""
    text: str = ""


def queue(request: Request) -> Response:
    """Answers with the page of a queue."""
    name = request.path_params.get("queue") or request.query_params.get("name", "")
    caller_of(request).check(Action.READ, queue=name)
    page, span = View(request, "overview", _notes(request.query_params)), span_of(request)
    store = serve_of(request).store
    found = gather(store, [name], span)
    [row] = found.rows
    is_live = "x-live" in request.headers
    if not (is_live or row.delayed or row.ready or row.unacked or row.error or name in visible_queues(request)):
        raise Problem(404, "nobody has delayed a task for this queue, and it holds none", "unknown-queue")
    page.now_ms = found.now_ms
    wanted = Filter(name)
    tasks, search = list[TaskRow](), Search()
    if not is_live:
        try:
            wanted = filter_of(request.query_params, name)
            wanted.selection(store, caller_of(request))
            tasks, search = _tasks(request, page.links, wanted, span, found.now_ms)
        except ValueError as error:
            page.notes.append(Note("bad", f"The filter does not work: {error}."))
    links = {option: page.queue(name, span=option, **wanted.query) for option in SPANS}
    return render(
        "queue.html",
        page,
        row=row,
        past=past(store, [name], [name], span, found.now_ms),
        chart=chart(name, span, found.now_ms, found.due, links),
        filter=wanted,
        tasks=tasks,
        search=search,
    )


def pause(request: Request) -> Response:
    """Pauses a queue."""
    return _change(request, changes.pause_queue)


def resume(request: Request) -> Response:
    """Resumes a queue."""
    return _change(request, changes.resume_queue)


def _change(request: Request, act: Callable[[Serve, Caller, str], str]) -> Response:
    name = dict(form_of(request)).get("queue", "")
    outcome = act(serve_of(request), caller_of(request), name)
    return RedirectResponse(Links(path_of(request)).queue(name, done=outcome), 303)


def waiting(request: Request) -> Response:
    """Answers with the page of the waiting tasks of all queues."""
    page, store = View(request, "waiting", _notes(request.query_params)), serve_of(request).store
    page.now_ms = store.now_ms()
    wanted, tasks, search = Filter(""), list[TaskRow](), Search()
    try:
        wanted = filter_of(request.query_params, "")
        tasks, search = _tasks(request, page.links, wanted, "", page.now_ms)
    except ValueError as error:
        page.notes.append(Note("bad", f"The filter does not work: {error}."))
    return render("waiting.html", page, filter=wanted, tasks=tasks, search=search)


def _notes(query: Mapping[str, str]) -> list[Note]:
    """Returns what the page says after a change: of a queue, or of the tasks that were ticked."""
    notes = [note] if (note := _DONE.get(query.get("done", ""))) else []
    for word, (kind, text) in _TICKED.items():
        if (given := query.get(word, "")).isdecimal() and len(given) < 6:
            notes.append(Note(kind, text.format(number(int(given)))))
    return notes


def row_of(task: DelayedTask, now_ms: float, *, hidden: bool) -> TaskRow:
    """Returns what a table shows of a task."""
    error = "" if hidden else (task.last_error or "").partition("\n")[0][:200]  # it may name an argument
    return TaskRow(task, moment(task.message.due_ms, now_ms), "hidden" if hidden else task.arguments[:300], error)


def _tasks(request: Request, links: Links, wanted: Filter, span: str, now_ms: float) -> tuple[list[TaskRow], Search]:
    serve, caller = serve_of(request), caller_of(request)
    cursor = request.query_params.get("cursor") or None
    hidden = serve.settings.hide_arguments
    if wanted.q and hidden:
        raise ValueError("arguments are hidden on this server, so they cannot be searched")
    selection = wanted.selection(serve.store, caller)

    def here(**more: str) -> str:
        query = {**wanted.query, **more}
        return links.queue(wanted.queue, span=span, **query) if wanted.queue else links.to("waiting", **query)

    first = here() if cursor else ""
    if request.query_params.get("stream") and selection.reads_bodies:
        link = {**wanted.query, "limit": str(ROWS)} | ({"cursor": cursor} if cursor else {})
        link |= {"queue": wanted.queue} if wanted.queue else {}
        more = here()
        return [], Search(True, f"v1/tasks?{urlencode(link)}", first, more, "Search on")
    found = search_page(serve.store, selection, cursor, ROWS, LOOK_S)
    may = [task for task in found.tasks if caller.may(Action.READ, queue=task.queue, task=task.name or "")]
    more = here(cursor=found.cursor) if found.cursor else ""
    text = "Search on" if selection.reads_bodies else "Next page"
    rows = [row_of(task, now_ms, hidden=hidden) for task in may]
    return rows, Search(False, "", first, more, text, _looked(found, selection.reads_bodies))


def _looked(found: TaskPage, searches: bool) -> str:
    looked, of, _ = found.progress
    if searches:
        return f"{len(found.tasks)} found, {number(looked)} of {number(of)} searched."
    return f"{number(len(found.tasks))} of {number(of)}"
