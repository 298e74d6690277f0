"""A task: what it waits for, its chain, and the way to change it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from celery_ext.delays import DelayChain, in_words
from celery_ext.serve import changes
from celery_ext.serve.access.identity import Action, caller_of
from celery_ext.serve.page.filter import new_due_ms
from celery_ext.serve.page.rendering import PageNote, View, form_of, notes_of, render
from celery_ext.serve.problems import Problem, bad_request
from celery_ext.serve.service import serve_of
from celery_ext.waiting import ActionName, BulkAction, DelayedTask

#: What became of a task, as the page that follows says it.
DONE = {
    "transferred": PageNote("ok", "Sent to its queue: the next free worker runs it."),
    "rescheduled": PageNote("ok", "Rescheduled."),
    "cancelled": PageNote("ok", "Cancelled: it will never run."),
    "chain_ended": PageNote(
        "ok", "It did not wait just now. Its delay chain has ended: a step that runs now is the last."
    ),
    "asked_to_stop": PageNote("ok", "It runs, and was asked to stop: it does so at its next look."),
    "dead_letter": PageNote("warn", "Nothing changed: it has failed for good, and is a dead letter."),
    "not_delayed": PageNote("warn", "Nothing changed: it does not wait any more."),
    "unreadable": PageNote("bad", "Nothing changed: its message cannot be rewritten."),
}
#: Larger and deeper arguments are shown as text, and only their beginning: characters of JSON, and levels.
_LARGE, _DEEP, _MOST = 30_000, 12, 100_000
#: Steps of a chain that are shown around the present one.
_STEPS = 24


class Fold(NamedTuple):
    """A part of a message to fold and unfold.

    Attributes:
        title: What it is.
        value: It as JSON has it; None where only text is shown.
        text: That text.
    """

    title: str
    value: Any
    text: str = ""


class ChainStep(NamedTuple):
    """A step of a delay chain: ``behind``, ``here`` or ``ahead``; one that is ahead waits until then."""

    where: str
    text: str
    until_ms: float | None = None


def task(request: Request) -> Response:
    """Answers with the page of a task."""
    task_id = request.path_params.get("id") or request.query_params.get("id", "")
    return task_page(request, task_id.strip(), notes_of(request.query_params, DONE))


def task_page(request: Request, task_id: str, notes: list[PageNote], status: int = 200) -> Response:
    """Answers with the page of a task, or with one that says that it does not wait.

    Args:
        request: The request.
        task_id: Its id.
        notes: Sentences at the head of the page.
        status: HTTP status of the page; 404 for a task that does not wait, if there is nothing else to say.
    """
    serve, page = serve_of(request), View(request, "overview", notes)
    page.now_ms = serve.store.now_ms()
    found = changes.waiting_tasks(serve, caller_of(request), task_id, Action.READ) if task_id else []
    if not found:
        place, sighting = changes.find_elsewhere(serve, caller_of(request), task_id)
        template, queue = (place.template, sighting.queue) if place and sighting else ("gone.html", "")
        return render(template, page, status if notes else 404, id=task_id, queue=queue)
    first, hidden = found[0], serve.settings.hide_arguments
    return render(
        "task.html",
        page,
        status,
        task=first,
        duplicates=len(found),
        hidden=hidden,
        facts=list(_facts(first)),
        folds=[] if hidden else list(_folds(first)),
        steps=_chain(first),
    )


def _facts(task: DelayedTask) -> Iterator[tuple[str, str]]:
    if task.elsewhere:
        yield "Waits in", task.elsewhere
    names = {"origin": "Sent by", "expires": "Expires", "group": "Group", "parent_id": "Parent", "root_id": "Root"}
    for key, name in names.items():
        value = task.headers.get(key)
        if isinstance(value, str) and value and value != task.id:
            yield name, value


def _folds(task: DelayedTask) -> Iterator[Fold]:
    yield _fold("Positional arguments", task.args, task.argsrepr)
    yield _fold("Keyword arguments", task.kwargs, task.kwargsrepr)
    linked = {name: value for name, value in task.embed.items() if value}
    if linked:
        yield _fold("Callbacks and chain", linked, "")
    yield _fold("Headers", task.headers, "")
    yield _fold("Properties", task.properties, "")


def _fold(title: str, value: Any, text: str) -> Fold:
    if value is None:
        return Fold(title, None, text[:_MOST])
    if not isinstance(value, (Mapping, list, tuple)):
        return Fold(title, None, str(value)[:_MOST])
    try:
        written = json.dumps(value, ensure_ascii=False, default=str, indent=2)
    except (ValueError, TypeError, RecursionError):  # no JSON, or nested too deeply
        return Fold(title, None, text[:_MOST])
    if len(written) > _LARGE or _depth(value) > _DEEP:
        cut = f"\n… and {len(written) - _MOST:,} characters more" if len(written) > _MOST else ""
        return Fold(title, None, written[:_MOST] + cut)
    return Fold(title, value)


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return 1 + max((_depth(item) for item in inner), default=0)


def _chain(task: DelayedTask) -> list[ChainStep]:
    """Returns the steps of the task's delay chain; none if it cannot be read."""
    chain = DelayChain.read(task.delay_chain)
    return [] if chain is None else _around(list(_steps(chain, task)), task.retries)


def _steps(chain: DelayChain, task: DelayedTask) -> Iterator[ChainStep]:
    if not task.retries:
        yield ChainStep("here", "Waits for its first run")
    at_ms = task.message.due_ms
    for number, (delay, jitter) in enumerate(zip(chain.delays, chain.jitters, strict=True), 1):
        wait = in_words(delay.total_seconds(), plain=True).removesuffix(" 0s") + (f" ± {jitter:g} %" if jitter else "")
        if number < task.retries:
            yield ChainStep("behind", f"Retry {number} waited {wait}")
        elif number == task.retries:
            yield ChainStep("here", f"Retry {number} waits {wait}")
        else:
            at_ms += delay.total_seconds() * 1000
            yield ChainStep("ahead", f"Retry {number} will wait {wait}", at_ms)


def _around(steps: list[ChainStep], here: int) -> list[ChainStep]:
    """Returns the steps around the present one; a chain may have a thousand."""
    start = max(min(here - _STEPS // 2, len(steps) - _STEPS), 0)
    shown = steps[start : start + _STEPS]
    before, after = start, len(steps) - start - len(shown)
    return [
        *([ChainStep("behind", f"{before:,} earlier steps")] if before else []),
        *shown,
        *([ChainStep("ahead", f"{after:,} more steps")] if after else []),
    ]


def change(name: ActionName, request: Request) -> Response:
    """Sends a task to its queue now, cancels it, or changes when it is due."""
    serve, caller, form = serve_of(request), caller_of(request), dict(form_of(request))
    action = changes.BULK_ACTIONS[name]
    task_id = form.get("id", "").strip()
    if not task_id:
        raise bad_request("the form names no task")
    changes.waiting_tasks(serve, caller, task_id, action)
    try:
        due_ms = new_due_ms(serve.store, form) if action is Action.RESCHEDULE else None
        outcome = changes.change_task(serve, caller, BulkAction(name, due_ms=due_ms), task_id)
    except ValueError as error:
        text = str(error)
        return task_page(request, task_id, [PageNote("bad", f"Not rescheduled: {text}.".replace("..", "."))], 422)
    if outcome == "not_delayed" and not caller.unlimited:
        # For this caller it does not wait. A step of its delay chain may run, of a queue and a task that nobody knows
        # here.
        raise Problem(404, "this task does not wait")
    return RedirectResponse(View(request).task(task_id, done=outcome), 303)
