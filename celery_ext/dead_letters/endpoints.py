"""``/v1/dead-letters``: tasks that failed for good are listed, replayed and dropped."""

from collections.abc import Callable
from dataclasses import Field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType, field
from starlette.requests import Request

from celery_ext.dead_letters import letters as letters_of
from celery_ext.dead_letters import served
from celery_ext.dead_letters.choice import Choice
from celery_ext.dead_letters.letters import LEAST_RATE
from celery_ext.dead_letters.letters import DeadLetter as Letter
from celery_ext.serve.access.identity import Action, Caller, caller_of
from celery_ext.serve.api.exchange import (
    MAX_BATCH,
    Answer,
    Count,
    Countdown,
    CursorText,
    Endpoints,
    Iso,
    Limit,
    Sought,
    Strict,
    TaskId,
    invalid_field,
    iso_of,
)
from celery_ext.serve.api.visible import shown_of
from celery_ext.serve.problems import Problem
from celery_ext.serve.service import Serve, serve_of
from kombu_delayq.message import FIELDS


class Conditions(Strict):
    """What dead letters have to meet, all of it.

    Attributes:
        task: Only letters of this task; ``*`` stands for any text.
        error: Only letters with this text in their error, in any case.
        older_than_s: Only letters that were buried longer ago than this, in s.
        newer_than_s: Only letters that were buried at most so long ago, in s.
    """

    task: Sought | None = None
    error: Sought | None = None
    older_than_s: Countdown | None = None
    newer_than_s: Countdown | None = None

    def choice(self, ids: list[str] | None = None, *, hidden: bool) -> Choice:
        """Returns the choice of letters, of some ids or of all.

        Raises:
            Problem: 403: there is an ``error``, while the server hides arguments, which it may name.
        """
        if self.error is not None and hidden:
            raise Problem(403, "this server hides arguments, so errors cannot be searched", "arguments-hidden")
        tasks = () if self.task is None else (self.task,)
        return Choice(ids, tasks, self.error, self.older_than_s, self.newer_than_s)


class PageQuery(Conditions):
    """A page of a list.

    Attributes:
        cursor: Goes on behind the answer before.
        limit: Most rows to return.
    """

    cursor: CursorText | None = None
    limit: Limit = 100


class LettersRequest(Conditions):
    """Which dead letters: either those of some ids or all, as far as they meet the conditions.

    Attributes:
        ids: Task ids.
        all: Whether all of the queue.
    """

    schema_extra: ClassVar[dict[str, Any]] = {
        "oneOf": [
            {"required": ["ids"], "properties": {"ids": {"type": "array"}, "all": {"const": False}}},
            {"required": ["all"], "properties": {"ids": {"type": "null"}, "all": {"const": True}}},
        ]
    }

    ids: Annotated[list[TaskId], Meta(min_length=1, max_length=MAX_BATCH)] | None = None
    all: bool = False


class ReplayRequest(LettersRequest):
    """Which dead letters go back, and how fast.

    Attributes:
        rate: Most letters a second. Then a call ends after 5 s, and ``more`` asks for another; null for no limit.
    """

    rate: Annotated[float, Meta(ge=LEAST_RATE)] | None = None


class LetterQueue(Answer):
    """A queue of dead letters.

    Attributes:
        queue: Its name.
        dead_letters: How many it holds.
    """

    queue: str
    dead_letters: Count


class LetterQueues(Answer):
    """The queues of dead letters.

    Attributes:
        queues: The queues that Redis and the server know.
    """

    queues: list[LetterQueue]


#: Types of the record's fields as JSON has them; a field that may quote arguments may be absent.
_AS_JSON: dict[Any, Any] = {datetime | None: Iso | None}


def _declared(one: Field[Any]) -> tuple[str, Any] | tuple[str, Any, Any]:
    kind, about = _AS_JSON.get(one.type, one.type), one.metadata["about"].replace("None", "null")
    if not one.metadata["is_secret"]:
        return one.name, Annotated[kind, Meta(description=about)]
    about = f"{about} Absent where the server hides arguments, which it may name."
    return one.name, Annotated[kind | UnsetType, Meta(description=about)], UNSET


if TYPE_CHECKING:
    _Told = Answer
else:  # a field for each of what a letter says of itself
    _Told = msgspec.defstruct("_Told", map(_declared, FIELDS), bases=(Answer,), module=__name__, kw_only=True)


class DeadLetter(_Told):
    """A task that failed for good.

    Attributes:
        id: Task id; of a message that is no task, its delivery tag.
        task: Name of the task.
        priority: 0 to 9.
        args: Positional arguments; absent where the server hides arguments. So are the keyword arguments.
        kwargs: Keyword arguments.
        headers: Headers of the message.
    """

    id: str
    task: str | None
    priority: int
    args: Any = UNSET
    kwargs: Any = UNSET
    headers: dict[str, Any] | UnsetType = UNSET


class LetterList(Answer):
    """A page of dead letters, priority by priority, the oldest first.

    Attributes:
        dead_letters: The letters.
        cursor: Where the next page begins; null on the last. With conditions a page may have fewer rows, or none.
    """

    dead_letters: list[DeadLetter]
    cursor: str | None


class LettersDone(Answer):
    """What became of dead letters.

    Attributes:
        replayed: How many went back to the queues from which they came.
        dropped: How many were removed.
        unroutable: How many stay because nobody knows from which queue they came.
        missing: Ids that are not among the dead letters that the caller may change.
        more: Whether a replay at a pace has ended before the last letter: call it again.
    """

    replayed: Count = 0
    dropped: Count = 0
    unroutable: Count = 0
    missing: list[str] = field(default_factory=list)
    more: bool = False


endpoint = Endpoints("Dead letters")
_ONE = "/v1/dead-letters/{queue:name}"


@endpoint("GET", "/v1/dead-letters", Action.READ)
def list_letter_queues(request: Request) -> LetterQueues:
    """List the queues of dead letters."""
    serve = serve_of(request)
    found = served.letter_queues(serve.store, serve.settings.dead_letters)
    names = caller_of(request).queues_of(found)
    return LetterQueues(queues=[LetterQueue(queue=name, dead_letters=found[name]) for name in names])


@endpoint("POST", _ONE + ":replay", Action.REPLAY)
def replay_letters(request: Request, body: ReplayRequest) -> LettersDone:
    """Send dead letters back to the queues from which they came."""
    return _changed(request, body, Action.REPLAY, partial(served.replay, rate=body.rate))


@endpoint("POST", _ONE + ":drop", Action.DROP)
def drop_letters(request: Request, body: LettersRequest) -> LettersDone:
    """Remove dead letters."""
    return _changed(request, body, Action.DROP, served.drop)


@endpoint("GET", _ONE, Action.READ)
def list_letters(request: Request, query: PageQuery) -> LetterList:
    """List the dead letters of a queue."""
    serve, caller, queue = serve_of(request), caller_of(request), request.path_params["queue"]
    caller.check(Action.READ, queue=queue)
    served.check_letter_queue(serve.store, queue, serve.settings.dead_letters)
    cursor, hidden = served.letter_cursor(query.cursor), serve.settings.hide_arguments
    choice = query.choice(hidden=hidden)
    found, after = letters_of.page_from(serve.store, queue, cursor, query.limit, choice)
    shown = [_shown(one, hidden=hidden) for one in found if caller.may(Action.READ, task=one.name or "")]
    return LetterList(dead_letters=shown, cursor=None if after is None else str(after))


def _changed(
    request: Request,
    wanted: LettersRequest,
    action: Action,
    act: Callable[[Serve, Caller, str, Choice], served.LettersChanged],
) -> LettersDone:
    serve, caller, queue = serve_of(request), caller_of(request), request.path_params["queue"]
    caller.check(action, queue=queue)
    if (wanted.ids is None) is not wanted.all:
        raise invalid_field("$", 'give either ids, or "all": true')
    served.check_letter_queue(serve.store, queue, serve.settings.dead_letters)
    done, met, more = act(serve, caller, queue, wanted.choice(wanted.ids, hidden=serve.settings.hide_arguments))
    return LettersDone(**done, missing=[one for one in wanted.ids or () if one not in met], more=more)


def _shown(letter: Letter, *, hidden: bool) -> DeadLetter:
    task = letter.task
    told: dict[str, Any] = {
        one.name: getattr(letter.record, one.name) for one in FIELDS if not (hidden and one.metadata["is_secret"])
    }
    told |= {name: iso_of(value) for name, value in told.items() if isinstance(value, datetime)}
    own = {} if hidden else {"args": task.args, "kwargs": task.kwargs}
    headers = shown_of(task.headers, hidden=hidden)
    return DeadLetter(id=letter.id, task=letter.name, priority=letter.priority, headers=headers, **told, **own)
