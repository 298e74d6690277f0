"""A queue: its figures, what comes due when, and its waiting tasks; and those of all queues: filtered, by pages."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from celery_ext.features import modules_of
from celery_ext.health import count_queues
from celery_ext.serve.access.identity import Action, Caller, caller_of
from celery_ext.serve.page.chart import bounds, chart, span_of
from celery_ext.serve.page.figures import number
from celery_ext.serve.page.filter import TaskFilter, filter_of
from celery_ext.serve.page.past import past
from celery_ext.serve.page.rendering import PageNote, View, form_of, notes_of, render
from celery_ext.serve.problems import Problem
from celery_ext.serve.service import Serve, serve_of, visible_queues
from celery_ext.waiting import DelayedTask, search_page
from kombu_delayq.store import DelayStore

#: Rows of a page, and for how long the server looks for them, in s. A script searches as a stream instead.
ROWS, LOOK_S = 50, 0.8


#: What the page says after a change.
_DONE = {
    "paused": PageNote(
        "ok", "Paused: consumers take nothing more. What they have goes on, and what comes due waits here."
    ),
    "resumed": PageNote("ok", "Resumed: consumers take from it again, within a second."),
    "unchanged": PageNote("warn", "Nothing changed: it was so before."),
}


#: The same of tasks that were ticked, by their outcomes.
_TICKED = {
    "transferred": PageNote("ok", "{} sent to their queues."),
    "cancelled": PageNote("ok", "{} cancelled: they will never run."),
    "rescheduled": PageNote("ok", "{} rescheduled."),
    "chain_ended": PageNote("ok", "{} did not wait just now. Their delay chains have ended."),
    "asked_to_stop": PageNote("ok", "{} run, and were asked to stop."),
    "dead_letter": PageNote("warn", "{} failed for good, and stay as dead letters."),
    "not_delayed": PageNote("warn", "{} did not wait any more, or are none of yours."),
    "unreadable": PageNote("bad", "{} cannot be rewritten, and stay as they are."),
    "none": PageNote("warn", "Nothing changed: no task is ticked."),
}


class TablePart(NamedTuple):
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
    page, span = View(request, "overview", _notes(request)), span_of(request)
    store = serve_of(request).store
    cluster, page.now_ms = store.nodes(), store.now_ms()
    due = store.figures.due_counts([name], bounds(page.now_ms, span))
    [row] = count_queues(store, [name], cluster)
    is_live, stats = "x-live" in request.headers, row.stats
    if not (is_live or stats.delayed or stats.ready or row.unacked or stats.error or name in visible_queues(request)):
        raise Problem(404, "nobody has delayed a task for this queue, and it holds none", "unknown-queue")
    wanted, tasks, search = (TaskFilter(name), [], TablePart()) if is_live else _found(page, name, span)
    return render(
        "queue.html",
        page,
        queue=name,
        row=row,
        past=past(store, [name], [name], span, page.now_ms),
        chart=chart(span, page.now_ms, due, partial(page.queue, name, **wanted.query), in_parts=False),
        filter=wanted,
        tasks=tasks,
        search=search,
        links=[(page.named(folder, name), text) for folder, text in _links(store, name)],
    )


def _links(store: DelayStore, queue: str) -> Iterator[tuple[str, str]]:
    """Yields the folders in which features have a page of a queue, and the texts of the links."""
    for module in modules_of("pages"):
        if text := module.of_queue(store, queue):
            yield module.FOLDER, text


def change(act: Callable[[Serve, Caller, str], str], request: Request) -> Response:
    """Pauses or resumes a queue."""
    name = dict(form_of(request)).get("queue", "")
    outcome = act(serve_of(request), caller_of(request), name)
    return RedirectResponse(View(request).queue(name, done=outcome), 303)


def waiting(request: Request) -> Response:
    """Answers with the page of the waiting tasks of all queues."""
    page = View(request, "waiting", _notes(request), serve_of(request).store.now_ms())
    wanted, tasks, search = _found(page, "", "")
    return render("waiting.html", page, filter=wanted, tasks=tasks, search=search)


def _notes(request: Request) -> list[PageNote]:
    """Returns what the page says after a change: of a queue, or of the tasks that were ticked."""
    return notes_of(request.query_params, _DONE, _TICKED)


def _found(page: View, name: str, span: str) -> tuple[TaskFilter, list[DelayedTask], TablePart]:
    """Returns the filter in the address, and the tasks that meet it. What is wrong with the filter is a note."""
    wanted, tasks, search = TaskFilter(name), list[DelayedTask](), TablePart()
    try:
        wanted = filter_of(page.request.query_params, name)
        tasks, search = _tasks(page, wanted, span)
    except ValueError as error:
        page.notes.append(PageNote("bad", f"The filter does not work: {error}."))
    return wanted, tasks, search


def _tasks(page: View, wanted: TaskFilter, span: str) -> tuple[list[DelayedTask], TablePart]:
    serve, caller, given = page.serve, caller_of(page.request), page.request.query_params
    cursor = given.get("cursor") or None
    if wanted.q and serve.settings.hide_arguments:
        raise ValueError("arguments are hidden on this server, so they cannot be searched")
    selection = wanted.selection(serve.store, caller)

    def here(**more: str) -> str:
        query = {**wanted.query, **more}
        return page.queue(wanted.queue, span=span, **query) if wanted.queue else page.to("waiting", **query)

    first = here() if cursor else ""
    if given.get("stream") and selection.reads_bodies:
        link = {**wanted.query, "limit": str(ROWS)} | ({"cursor": cursor} if cursor else {})
        link |= {"queue": wanted.queue} if wanted.queue else {}
        return [], TablePart(True, f"v1/tasks?{urlencode(link)}", first, here(), "Search on")
    found = search_page(serve.store, selection, cursor, ROWS, LOOK_S)
    tasks = [task for task in found.tasks if caller.may(Action.READ, queue=task.queue, task=task.name or "")]
    more = here(cursor=found.cursor) if found.cursor else ""
    looked, of, _ = found.progress
    if selection.reads_bodies:
        text, more_text = f"{len(found.tasks)} found, {number(looked)} of {number(of)} searched.", "Search on"
    else:
        text, more_text = f"{number(len(found.tasks))} of {number(of)}", "Next page"
    return tasks, TablePart(False, "", first, more, more_text, text)
