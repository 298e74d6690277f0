"""A limit: how many tasks of a key run at once, how many begin in a second, and how its turns weigh."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from kombu_delayq.options import LIMIT_CHECKS
from kombu_delayq.text import as_text


class Limit(NamedTuple):
    """What holds for each key of a limit. A field that is None says nothing.

    Attributes:
        running: How many tasks of a key run at once, over all workers; 0 pauses it.
        rate: How many tasks of a key begin in a second.
        burst: How many may begin at once after a pause; by default those of a second.
        weight: How many turns a key has for each one of the others.
    """

    running: int | None = None
    rate: float | None = None
    burst: float | None = None
    weight: float | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Returns what a value of the option ``limits`` says, which ``options.limits`` has checked."""
        rate = given.get("rate")
        a_second, burst = rate if isinstance(rate, (list, tuple)) else (rate, None)
        return cls(given.get("running"), a_second, burst, given.get("weight"))

    @classmethod
    def checked(cls, given: Mapping[str, Any]) -> Self:
        """Returns a limit that somebody gives, in the form of a value of the option ``limits``.

        Raises:
            ValueError: A value is none that the option may have; the text says which.
        """
        for field, value in given.items():
            try:
                LIMIT_CHECKS[field](value)
            except ValueError as reason:
                raise ValueError(f"{field}={value!r} {reason}") from None
        return cls.of(given)

    @classmethod
    def read(cls, noted: bytes | str | None) -> Self | None:
        """Returns a limit as Redis has it; None for none, or where somebody else has written it."""
        try:
            found = json.loads(as_text(noted or ""))
        except ValueError:
            return None
        return cls.of(found) if isinstance(found, dict) else None

    def written(self) -> str:
        """Returns the limit as scripts read it."""
        found: dict[str, Any] = {"running": self.running, "weight": self.weight}
        if self.rate is not None:
            found["rate"] = [self.rate, max(self.rate, 1) if self.burst is None else self.burst]
        return json.dumps({name: value for name, value in found.items() if value is not None})

    def over(self, other: "Limit | None") -> "Limit":
        """Returns this limit, with what it does not say from another one."""
        if other is None:
            return self
        rate, burst = (other.rate, other.burst) if self.rate is None else (self.rate, self.burst)
        return Limit(
            other.running if self.running is None else self.running,
            rate,
            burst,
            other.weight if self.weight is None else self.weight,
        )

    @property
    def words(self) -> str:
        """The limit for people, such as ``2 at once, 50 a second``."""
        parts = []
        if self.running is not None:
            parts.append("paused" if self.running == 0 else f"{self.running} at once")
        if self.rate is not None:
            parts.append(f"{self.rate:g} a second" + (f" ({self.burst:g} at once)" if self.burst is not None else ""))
        if self.weight not in (None, 1):
            parts.append(f"weight {self.weight:g}")
        return ", ".join(parts) or "turns only"
