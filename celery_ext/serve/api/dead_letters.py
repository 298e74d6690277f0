"""``/v1/dead-letters``: tasks that failed for good are listed, replayed and dropped."""

from collections import Counter
from collections.abc import Callable, Collection

from starlette.requests import Request
from starlette.responses import Response

from celery_ext.dead_letters.letter import DeadLetter as Letter
from celery_ext.serve import letters
from celery_ext.serve.access.identity import Action, Caller, caller_of
from celery_ext.serve.api.exchange import answer, invalid_field, iso_of, query_of, with_body
from celery_ext.serve.api.models import LettersRequest, PageQuery
from celery_ext.serve.api.shapes import DeadLetter, LetterList, LetterQueue, LetterQueues, LettersDone
from celery_ext.serve.api.tasks import headers_of
from celery_ext.serve.broker import ServeBroker
from celery_ext.serve.problems import bad_request
from celery_ext.serve.routes import ActionRoute, Doc
from celery_ext.serve.service import serve_of

_TAG = "Dead letters"
_ONE = "/v1/dead-letters/{queue:name}"


def routes() -> list[ActionRoute]:
    """Returns the routes of dead letters."""
    done = {200: LettersDone}
    listing = Doc("List the queues of dead letters.", None, None, {200: LetterQueues}, _TAG)
    page = Doc("List the dead letters of a queue.", PageQuery, None, {200: LetterList}, _TAG)
    back = Doc("Send dead letters back to the queues from which they came.", None, LettersRequest, done, _TAG)
    away = Doc("Remove dead letters.", None, LettersRequest, done, _TAG)
    return [
        ActionRoute("/v1/dead-letters", list_letter_queues, Action.READ, doc=listing),
        ActionRoute(_ONE + ":replay", replay_letters, Action.REPLAY, method="POST", doc=back),
        ActionRoute(_ONE + ":drop", drop_letters, Action.DROP, method="POST", doc=away),
        ActionRoute(_ONE, list_letters, Action.READ, doc=page),
    ]


def list_letter_queues(request: Request) -> Response:
    """Answers with the queues of dead letters that the caller may see."""
    serve = serve_of(request)
    found = letters.queues(serve.store, serve.settings.dead_letters)
    names = caller_of(request).queues_of(found)
    return answer(LetterQueues(queues=[LetterQueue(queue=name, dead_letters=found[name]) for name in names]))


def list_letters(request: Request) -> Response:
    """Answers with a page of the dead letters of a queue."""
    serve, caller, queue = serve_of(request), caller_of(request), request.path_params["queue"]
    caller.check(Action.READ, queue=queue)
    letters.check(serve.store, queue, serve.settings.dead_letters)
    wanted = query_of(request, PageQuery)
    skip = _skip(wanted.cursor)
    found = letters.page(serve.store, queue, skip, wanted.limit)
    hidden = serve.settings.hide_arguments
    shown = [_shown(one, hidden=hidden) for one in found if caller.may(Action.READ, task=one.name or "")]
    cursor = str(skip + len(found)) if len(found) == wanted.limit else None
    return answer(LetterList(dead_letters=shown, cursor=cursor))


@with_body(LettersRequest)
def replay_letters(request: Request, wanted: LettersRequest) -> Response:
    """Sends dead letters back to the queues from which they came."""
    return _changed(request, wanted, Action.REPLAY, letters.replay, Caller.may_return)


@with_body(LettersRequest)
def drop_letters(request: Request, wanted: LettersRequest) -> Response:
    """Removes dead letters."""
    return _changed(request, wanted, Action.DROP, letters.drop, lambda caller, letter: True)


def _changed(
    request: Request,
    wanted: LettersRequest,
    action: Action,
    act: Callable[[ServeBroker, str, letters.Choose, str, Collection[str] | None], Counter[str]],
    may_go: Callable[[Caller, Letter], bool],
) -> Response:
    serve, caller, queue = serve_of(request), caller_of(request), request.path_params["queue"]
    caller.check(action, queue=queue)
    if (wanted.ids is None) is not wanted.all:
        raise invalid_field("$", 'give either ids, or "all": true')
    letters.check(serve.store, queue, serve.settings.dead_letters)
    ids = frozenset(wanted.ids or ())
    met = set[str]()

    def choose(letter: Letter) -> bool:
        chosen = (wanted.all or letter.id in ids) and caller.may(action, task=letter.name or "")
        chosen = chosen and may_go(caller, letter)
        if chosen:
            met.add(letter.id)
        return chosen

    done = act(serve.broker, queue, choose, caller.name, wanted.ids)
    return answer(
        LettersDone(
            replayed=done["replayed"],
            dropped=done["dropped"],
            unroutable=done["unroutable"],
            missing=[one for one in wanted.ids or () if one not in met],
        )
    )


def _skip(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 12):
        raise bad_request("this is no cursor of such a list", "bad-cursor")
    return int(cursor)


def _shown(letter: Letter, *, hidden: bool) -> DeadLetter:
    shown = DeadLetter(
        id=letter.id,
        task=letter.name,
        reason=letter.reason,
        at=None if letter.at is None else iso_of(letter.at),
        worker=letter.worker,
        retries=letter.retries,
        priority=letter.priority,
        exchange=letter.exchange,
        routing_key=letter.routing_key,
        headers=headers_of(letter.task.headers, hidden=hidden),
    )
    if not hidden:
        shown.error, shown.args, shown.kwargs = letter.error, letter.task.args, letter.task.kwargs
    return shown
