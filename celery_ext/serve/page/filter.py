"""What the reader asks for in addresses and forms: which tasks, and their new due time."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from math import inf, isinf

from celery_ext.delays import durations
from celery_ext.serve.access.identity import Caller
from celery_ext.waiting import Selection
from kombu_delayq.message import iso_of, ms_of
from kombu_delayq.store import DelayStore


@dataclass(frozen=True)
class TaskFilter:
    """Which tasks of a queue the reader wants to see, as they stand in the address.

    Attributes:
        queue: The queue; empty for all.
        from_ms: Least due time, ms since the epoch.
        to_ms: Due time that all tasks are before.
        task: Name of a task, or a pattern.
        q: What to search the arguments for.
        retried: Whether only tasks are shown that wait for a retry.
    """

    queue: str
    from_ms: float = -inf
    to_ms: float = inf
    task: str = ""
    q: str = ""
    retried: bool = False

    def selection(self, store: DelayStore, caller: Caller) -> Selection:
        """Returns the same for a search in the queues of a caller.

        Raises:
            ValueError: A part of it is wrong.
        """
        return Selection(
            queues=caller.queues_in(store, self.queue),
            from_ms=self.from_ms,
            to_ms=self.to_ms,
            task=self.task or None,
            q=self.q or None,
            retried=self.retried,
        )

    @property
    def from_iso(self) -> str:
        """Least due time in ISO 8601; empty without one."""
        return _iso(self.from_ms)

    @property
    def to_iso(self) -> str:
        """Due time that all tasks are before; empty without one."""
        return _iso(self.to_ms)

    @property
    def query(self) -> dict[str, str]:
        """The filter as it stands in an address; empty if nothing is filtered."""
        given = {"from": self.from_iso, "to": self.to_iso, "task": self.task, "q": self.q}
        given["retried"] = "1" if self.retried else ""
        return {name: value for name, value in given.items() if value}

    @property
    def in_words(self) -> str:
        """The filter as a sentence."""
        where = f"“{self.queue}”" if self.queue else "all queues"
        parts = [f"Tasks of {where}"]
        if self.from_iso:
            parts.append(f"due from {_utc(self.from_iso)}")
        if self.to_iso:
            parts.append(f"{'until' if self.from_iso else 'due'} before {_utc(self.to_iso)}")
        if self.task:
            parts.append(f"named {self.task}")
        if self.q:
            parts.append(f"with {self.q} in their arguments")
        if self.retried:
            parts.append("that wait for a retry")
        return f"{' '.join(parts)}." if self.query else f"All tasks that wait in {where}."


def filter_of(given: Mapping[str, str], name: str) -> TaskFilter:
    """Returns the filter in an address or a form.

    Raises:
        ValueError: A time is no time.
    """
    start, end, task, q = (given.get(part, "").strip() for part in ("from", "to", "task", "q"))
    return TaskFilter(name, _ms(start, -inf), _ms(end, inf), task, q, given.get("retried") == "1")


def new_due_ms(store: DelayStore, form: dict[str, str]) -> float:
    """Returns the due time that a form asks for, ms since the epoch: ``countdown`` from now, or ``eta``.

    Raises:
        ValueError: Both or none are given, or one is no such value.
    """
    countdown, eta = form.get("countdown", "").strip(), form.get("eta", "").strip()
    if bool(countdown) is bool(eta):
        raise ValueError("give either a delay or a time")
    if countdown:
        return store.now_ms() + durations.parse(countdown) * 1000
    try:
        return ms_of(datetime.fromisoformat(eta))
    except ValueError:
        raise ValueError(f"“{eta[:40]}” is no time") from None


def _ms(given: str, default: float) -> float:
    if not given:
        return default
    try:
        return ms_of(datetime.fromisoformat(given))
    except ValueError:
        raise ValueError(f"“{given[:40]}” is no time; write one like 2030-01-31T09:00:00Z") from None


def _iso(at_ms: float) -> str:
    iso = None if isinf(at_ms) else iso_of(at_ms)
    return iso.replace("+00:00", "Z") if iso else ""


def _utc(iso: str) -> str:
    return f"{iso[:19].replace('T', ' ')} UTC"
