"""Bulk actions: on all tasks of a filter, counted first, with a word for it, a progress and a stop."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from celery_ext.serve import changes
from celery_ext.serve.access.identity import caller_of
from celery_ext.serve.bulk_runs import BUSY, RunView, run_of, runs_of
from celery_ext.serve.page.filter import TaskFilter, filter_of, new_due_ms
from celery_ext.serve.page.rendering import BOUND, PageNote, View, form_of, render
from celery_ext.serve.problems import Problem
from celery_ext.serve.service import serve_of
from celery_ext.waiting import ActionName, BulkAction
from kombu_delayq.message import iso_of

_HEADINGS = {
    "counting": "Counting …",
    "counted": "Nothing has changed yet",
    "running": "Under way",
    "stopped": "Stopped",
    "done": "Done",
    "failed": "It failed",
}
_OUTCOMES = {
    "cancelled": "cancelled",
    "rescheduled": "rescheduled",
    "transferred": "sent to their queue",
    "unreadable": "cannot be rewritten",
    "too_long": "too far away",
    "gone": "changed or gone meanwhile",
}


def bulk(request: Request) -> Response:
    """Answers with the page of a bulk action."""
    return _page(request, run_of(request), [])


def start(request: Request) -> Response:
    """Lets a bulk action begin, if the number of its tasks was typed."""
    run, form = run_of(request), dict(form_of(request))
    typed = form.get("confirm", "").strip().replace(",", "")
    if not (typed.isdecimal() and len(typed) < 12):
        return _page(request, run, [PageNote("bad", "Nothing changed: type the number of the tasks.")], 422)
    try:
        runs_of(request).start(run, int(typed))
    except Problem as problem:
        if problem.kind != "not-confirmed":
            raise
        return _page(request, run, [PageNote("bad", f"Nothing changed: {problem.detail}.")], 422)
    return RedirectResponse(f"../{run.id}", 303)


def stop(request: Request) -> Response:
    """Stops a bulk action."""
    run = run_of(request)
    runs_of(request).stop(run)
    return RedirectResponse(f"../{run.id}", 303)


def count(action: ActionName, request: Request) -> Response:
    """Changes the tasks that are ticked; or counts all that match, which are changed later."""
    serve, caller, given = serve_of(request), caller_of(request), form_of(request)
    form, ids = dict(given), [*dict.fromkeys(value for name, value in given if name == "id")]
    queue, page = form.get("queue", ""), View(request)
    try:
        wanted = filter_of(form, queue)
        selection = wanted.selection(serve.store, caller)
        due_ms = new_due_ms(serve.store, form) if action == "reschedule" else None
        doing = BulkAction(action, due_ms=due_ms)
        if "all" not in form:
            done = changes.change_ticked(serve, caller, doing, ids) if ids else {"none": 1}
            query = {**wanted.query, **{word: str(count) for word, count in done.items()}}
            return RedirectResponse(page.queue(queue, **query) if queue else page.to("waiting", **query), 303)
    except ValueError as error:
        raise Problem(422, f"nothing changed: {error}", "not-possible") from None
    if wanted.q and serve.settings.hide_arguments:
        raise Problem(422, "arguments are hidden on this server, so they cannot be searched", "not-possible")
    caller.check_all(changes.BULK_ACTIONS[action], queue=wanted.queue or None, task=wanted.task)
    run = runs_of(request).count(caller.name, selection, doing)
    return RedirectResponse(f"./{run.id}", 303)


def _page(request: Request, run: RunView, notes: list[PageNote], status: int = 200) -> Response:
    page = View(request, "overview", notes, serve_of(request).store.now_ms())
    verb = changes.BULK_ACTIONS[run.action.name].capitalize()
    queue = run.queues[0] if run.queues and len(run.queues) == 1 else ""
    to = f" to {(iso_of(run.action.due_ms) or '')[:19].replace('T', ' ')} UTC" if run.action.due_ms else ""
    return render(
        "bulk.html",
        page,
        status,
        run=run,
        queue=queue,
        title=f"{verb} tasks of {f'“{queue}”' if queue else 'all queues'}{' now' if verb == 'Run' else to}",
        heading=_HEADINGS[run.state] if run.count or run.state != "counted" else "No task matches",
        verb=verb,
        moves=run.state in BUSY,
        filter=TaskFilter(queue, run.from_ms, run.to_ms, run.task or "", run.q or "", run.retried).in_words,
        of=(run.count or 0) if run.has_begun else run.to_look if run.state == "counting" else 0,
        done=run.done if run.has_begun else run.looked,
        outcomes=[(_OUTCOMES.get(word, word), count) for word, count in run.outcomes.items()],
        bound=BOUND,
    )
