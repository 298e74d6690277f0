"""Callers, and what they may do."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from celery_ext.serve.problems import Problem

if TYPE_CHECKING:
    from starlette.requests import Request

    from kombu_delayq.store import DelayStore


class Action(StrEnum):
    """What a route does. A token names the actions that its holder may use."""

    READ = "read"
    METRICS = "metrics"
    ENQUEUE = "enqueue"
    CANCEL = "cancel"
    RESCHEDULE = "reschedule"
    RUN = "run"
    PAUSE = "pause"
    REPLAY = "replay"
    DROP = "drop"
    CONSUME = "consume"


#: Actions that change nothing.
READING = frozenset({Action.READ, Action.METRICS})
#: Actions of an operator, who is no program. To enqueue a task is to run code, and to consume takes it from workers.
OPERATING = frozenset(Action) - {Action.ENQUEUE, Action.CONSUME}


@dataclass(frozen=True)
class Caller:
    """The caller that sent a request.

    Attributes:
        name: Name of the token, or of the user whom a proxy or the mounting app names; shown in the audit.
        actions: What the caller may do.
        queues: Patterns of the names of the queues on which it may act, such as ``orders.*``.
        tasks: Patterns of the names of the tasks that it may see, enqueue and change.
    """

    name: str
    actions: frozenset[Action]
    queues: tuple[str, ...] = ("*",)
    tasks: tuple[str, ...] = ("*",)

    @property
    def unlimited(self) -> bool:
        """Whether all queues and all tasks are the caller's, also those whose names are not known."""
        return "*" in self.queues and "*" in self.tasks

    def may(self, action: Action, *, queue: str | None = None, task: str | None = None) -> bool:
        """Whether the caller may do something, with a queue and a task where they are given.

        Args:
            action: What is to be done.
            queue: Name of the queue; None if that is not known yet, or if no queue is concerned.
            task: Name of the task; an empty text for a message that is no task.
        """
        return (
            action in self.actions
            and (queue is None or _is_like(queue, self.queues))
            and (task is None or _is_like(task, self.tasks))
        )

    def check(self, action: Action, *, queue: str | None = None, task: str | None = None) -> None:
        """Raises a problem, 403, where ``may`` is false; 401 if nobody is known to call."""
        if not self.name:
            raise unauthorized("this needs a token: send it as `Authorization: Bearer dq_…`, or log in on the page")
        if not self.may(action, queue=queue, task=task):
            raise Problem(403, f"{self.name} may not {action}{_on(queue, task)}", "not-allowed", action=str(action))

    def check_all(self, action: Action, *, queue: str | None = None, task: str | None = None) -> None:
        """Raises a problem as ``check`` does, unless the caller may do something to all tasks of a filter.

        Args:
            action: What is to be done.
            queue: Queue of the filter; None for all that are the caller's.
            task: Name or pattern of the filter. A caller of some tasks has to give the name of one.
        """
        self.check(action, queue=queue)
        if "*" in self.tasks:
            return
        if not task or any(sign in task for sign in "*?["):
            raise Problem(403, f"{self.name} may not change tasks of every name: filter by one name", "not-allowed")
        self.check(action, queue=queue, task=task)

    def may_read(self, queue: str, task: str) -> bool:
        """Whether the caller may see a task of a queue."""
        return self.may(Action.READ, queue=queue, task=task)

    def queues_in(self, store: "DelayStore", queue: str | None) -> tuple[str, ...] | None:
        """Returns the queues of a search in one queue, or in all that are the caller's; None for all that there are."""
        if queue:
            return (queue,)
        return None if "*" in self.queues else tuple(self.queues_of(store.queues.names()))

    def queues_of(self, names: Iterable[str]) -> list[str]:
        """Returns those queues on which the caller may act, in the same order."""
        return [name for name in names if _is_like(name, self.queues)]


#: The caller of a server that asks for no token: someone on this machine, who may look.
LOCAL = Caller("local", READING)
#: A caller that did not prove its identity, where that is needed.
NOBODY = Caller("", frozenset())


def unauthorized(detail: str, *, invalid: bool = False) -> Problem:
    """A request that does not prove who sent it: 401.

    Args:
        detail: For the caller.
        invalid: Whether there was a token.
    """
    challenge = 'Bearer realm="delayq"' + (', error="invalid_token"' if invalid else "")
    return Problem(401, detail, "unauthorized", headers={"WWW-Authenticate": challenge})


def caller_of(request: "Request") -> Caller:
    """Returns who sent a request."""
    caller: Caller = request.state.caller
    return caller


def _is_like(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _on(queue: str | None, task: str | None) -> str:
    named = [f"{what} {name!r}" for what, name in (("queue", queue), ("task", task)) if name is not None]
    return f" with {' and '.join(named)}" if named else ""
