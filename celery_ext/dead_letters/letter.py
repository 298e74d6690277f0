"""A dead letter as a user sees it: a task, and why it was buried."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from celery_ext.waiting.delayed_task import DelayedTask
from kombu_delayq.message.dead_letters import DEAD_LETTER
from kombu_delayq.message.due import in_utc
from kombu_delayq.message.fields import priority_of
from kombu_delayq.message.rewrite import with_properties
from kombu_delayq.store.types import Waiting


@dataclass(frozen=True, repr=False)
class DeadLetter:
    """A message in a queue of dead letters. Not all were buried by a failed task: anybody may put messages there.

    The repr has no arguments of the task, so that it may be logged.

    Attributes:
        buried_in: Name of the queue of dead letters.
        message: The message as it is in the list.
    """

    buried_in: str
    message: bytes

    def __repr__(self) -> str:
        at = self.at.isoformat() if self.at else None
        return f"<DeadLetter: {self.name} id={self.id!r} buried_in={self.buried_in!r} reason={self.reason!r} at={at}>"

    @cached_property
    def task(self) -> DelayedTask:
        """The task and its arguments."""
        task = DelayedTask(Waiting(self.buried_in, "", 0.0, 0, self.message))
        tag = task.properties.get("delivery_tag")
        return task if task.id or not isinstance(tag, str) else DelayedTask(task.message._replace(id=tag))

    @property
    def id(self) -> str:
        """The task id; for a message that is no task, the delivery tag."""
        return self.task.id

    @property
    def name(self) -> str | None:
        """Name of the task; None for a message that is no task."""
        return self.task.name

    @property
    def reason(self) -> str | None:
        """Why the message was buried; None for a message that kombu-delayq did not bury."""
        return self._text("reason")

    @property
    def error(self) -> str | None:
        """The last error of the task."""
        return self._text("error")

    @property
    def worker(self) -> str | None:
        """Node name of the worker, or the host, that buried the message."""
        return self._text("worker")

    @property
    def exchange(self) -> str | None:
        """Exchange through which the task came to its worker; empty for the default exchange."""
        return self._text("exchange")

    @property
    def routing_key(self) -> str | None:
        """Routing key of the task; with the default exchange, the name of its queue."""
        return self._text("routing_key")

    @property
    def retries(self) -> int:
        """How often the task was retried."""
        found = self._record.get("retries")
        return found if isinstance(found, int) else 0

    @property
    def at(self) -> datetime | None:
        """When the message was buried, by the clock of the worker."""
        try:
            at = datetime.fromisoformat(self._text("at") or "")
        except ValueError:
            return None
        return in_utc(at)

    @property
    def priority(self) -> int:
        """0 to 9."""
        return priority_of({"properties": self.task.properties})

    def released(self, exchange: str, routing_key: str) -> bytes:
        """Returns the message to push to a queue: without the record, with this exchange and routing key as address."""
        address = {"exchange": exchange, "routing_key": routing_key}
        return with_properties(self.message, {DEAD_LETTER: None}, delivery_info=address)

    @property
    def _record(self) -> Mapping[str, Any]:
        found = self.task.properties.get(DEAD_LETTER)
        return found if isinstance(found, dict) else {}

    def _text(self, what: str) -> str | None:
        found = self._record.get(what)
        return found if isinstance(found, str) else None
