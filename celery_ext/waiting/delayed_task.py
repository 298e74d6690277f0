"""A waiting message as a user sees it: a task and its arguments."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from math import isfinite
from typing import Any, Literal

from kombu import serialization
from kombu.log import get_logger
from kombu.utils.json import loads as kombu_json

from kombu_delayq.message import LAST_ERROR, bodies, fields, iso_of, moment_of
from kombu_delayq.store import BESIDE, Waiting

logger = get_logger(__name__)

#: Content types that are decoded for display. Others are not: to decode a pickle, or a type that somebody registered,
#: may run code.
READABLE = (bodies.JSON, bodies.YAML, bodies.MSGPACK)


@dataclass(frozen=True, repr=False)
class DelayedTask:
    """A task that waits. Its repr has no arguments, so that it may be logged.

    Attributes:
        message: The message as it was read from the store.
        accept: Content types that are decoded. With another type, only the ``repr`` of the arguments is known.
    """

    message: Waiting
    accept: Collection[str] = READABLE

    def __repr__(self) -> str:
        return f"<DelayedTask: {self.name} id={self.id!r} queue={self.queue!r} due={self.due.isoformat()}>"

    @property
    def id(self) -> str:
        """The task id; for a message that is no task, the id under which it is stored."""
        return fields.task_id_of(self._head) or self.message.id

    @property
    def name(self) -> str | None:
        """Name of the task; None for a message of plain kombu, or if the body is lost or damaged."""
        return _text(self._head.get("task"))

    @property
    def queue(self) -> str:
        """Name of the queue to which the task goes."""
        return self.message.queue

    @property
    def due(self) -> datetime:
        """When the task is due, in UTC."""
        return moment_of(self.message.due_ms)

    @property
    def tier(self) -> Literal["redis", "journal"]:
        """Who has it: Redis, or the journal alone, which hands it over before it is due."""
        return "journal" if self.message.layout == BESIDE else "redis"

    @property
    def elsewhere(self) -> str | None:
        """Who has it, in words, where that is not Redis."""
        return "the journal" if self.tier == "journal" else None

    @property
    def eta(self) -> str | None:
        """The eta in the message itself; None if it has none."""
        return _text(self._head.get("eta"))

    @property
    def priority(self) -> int:
        """0 to 9."""
        return self.message.priority

    @property
    def retries(self) -> int:
        """How often the task was retried before, which is its position in its delay chain."""
        found = self._head.get("retries")
        return found if isinstance(found, int) else 0

    @property
    def args(self) -> Any:
        """Positional arguments; None where they cannot be read."""
        return self._payload[0]

    @property
    def kwargs(self) -> Any:
        """Keyword arguments; None where they cannot be read."""
        return self._payload[1]

    @property
    def embed(self) -> dict[str, Any]:
        """Callbacks, errbacks, chain and chord; protocol 2 keeps them beside the arguments."""
        return self._payload[2]

    @property
    def argsrepr(self) -> str:
        """Positional arguments as text."""
        return str(self.headers.get("argsrepr") or ("" if self.args is None else repr(self.args)))

    @property
    def kwargsrepr(self) -> str:
        """Keyword arguments as text."""
        return str(self.headers.get("kwargsrepr") or ("" if self.kwargs is None else repr(self.kwargs)))

    @property
    def arguments(self) -> str:
        """All arguments as text for a line of a listing; empty without any."""
        return " ".join(text for text in (self.argsrepr, self.kwargsrepr) if text not in ("", "()", "[]", "{}"))

    def as_json(self, now_ms: float) -> dict[str, Any]:
        """Returns the task as JSON shows it in a listing.

        Args:
            now_ms: Redis's clock, ms since the epoch.

        Returns:
            JSON values. ``due`` is in ISO 8601 and UTC, None beyond the year 9999; ``due_in_s`` is negative if the task
            is overdue, and None if the due time of a damaged entry is infinite.
        """
        due_in_s = (self.message.due_ms - now_ms) / 1000
        return {
            "id": self.id,
            "task": self.name,
            "queue": self.queue,
            "tier": self.tier,
            "due": iso_of(self.message.due_ms),
            "due_in_s": round(due_in_s, 3) if isfinite(due_in_s) else None,
            "priority": self.priority,
            "retries": self.retries,
            "last_error": self.last_error,
            "delay_chain": self.delay_chain,
            "argsrepr": self.argsrepr,
            "kwargsrepr": self.kwargsrepr,
        }

    @property
    def delay_chain(self) -> str | None:
        """The retry schedule in the message; None if it has none."""
        return _text(self.properties.get("delay_chain"))

    @property
    def last_error(self) -> str | None:
        """Why the run before failed, for a task that waits for a retry; else None."""
        return _text(self.properties.get(LAST_ERROR))

    @cached_property
    def body(self) -> dict[str, Any]:
        """The message as kombu's virtual transports keep it; empty if it is lost or is no JSON object."""
        return fields.read(self.message.body)

    @cached_property
    def headers(self) -> dict[str, Any]:
        """Message headers. In protocol 2 they hold all of a task but its arguments."""
        return fields.headers_of(self.body)

    @property
    def properties(self) -> dict[str, Any]:
        """Message properties."""
        return fields.properties_of(self.body)

    @cached_property
    def _content(self) -> Any:
        kind = self.body.get("content-type")
        if self.body.get("body") is None or kind not in self.accept:
            return None
        try:
            raw = bodies.unpacked(self.body)
            if kind in READABLE:
                return bodies.loads(raw, kind, kombu_json)
            return serialization.loads(raw, kind, self.body.get("content-encoding"), accept=self.accept)
        except Exception as error:  # each serializer and compression fails in its own way
            # The error may quote the body, which is not for logs. The consumer of the message reports it.
            logger.debug("the arguments of task %s cannot be read: %s", self.message.id, type(error).__name__)
            return None

    @property
    def _head(self) -> dict[str, Any]:
        """The fields that name the task; empty for a message that is no task."""
        return self.headers if "task" in self.headers else self._task

    @property
    def _task(self) -> dict[str, Any]:
        """The body of a task of protocol 1."""
        content = self._content if "task" not in self.headers else None
        return content if isinstance(content, dict) and "task" in content else {}

    @cached_property
    def _payload(self) -> tuple[Any, Any, dict[str, Any]]:
        if self._task:
            return self._task.get("args"), self._task.get("kwargs"), {}
        content = self._content if "task" in self.headers else None
        if isinstance(content, (list, tuple)) and len(content) == 3:
            args, kwargs, embed = content
            return args, kwargs, embed if isinstance(embed, dict) else {}
        return None, None, {}


def _text(found: Any) -> str | None:
    return found if isinstance(found, str) else None
