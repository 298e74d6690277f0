"""Delay levels, as RocketMQ has them: a small number that stands for a delay."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any

from celery_ext.delays import durations
from kombu_delayq.errors import InvalidDelayLevel, quoted

#: The delays of levels 1 to 18. Source: messageDelayLevel in RocketMQ's MessageStoreConfig.
DEFAULT = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


@dataclass(frozen=True, slots=True, repr=False)
class DelayLevels:
    """A table of delay levels. Tables of the same delays are equal. Made by ``DelayLevels.parse``.

    Attributes:
        delays: Delay of each level, from level 1 on.
        text: What the table was parsed from.
    """

    delays: tuple[timedelta, ...]
    text: str = field(compare=False)

    @classmethod
    def parse(cls, text: "str | DelayLevels" = DEFAULT) -> "DelayLevels":
        """Reads a table.

        Args:
            text: Durations from level 1 on, separated by blanks, commas or both. A DelayLevels is returned as
                it is.

        Raises:
            InvalidDelayLevel: The text is not a table. The error names the level whose entry is wrong.
        """
        if isinstance(text, DelayLevels):
            return text
        if not isinstance(text, str):
            raise InvalidDelayLevel(f"delay levels are a text such as '1s 5s 10s 30s 1m', not {quoted(text)}")
        if not text.strip():
            raise InvalidDelayLevel(f"{quoted(text)} has no delay level: write some, such as '1s 5s 10s 30s 1m'")
        delays = []
        for level, entry in enumerate(durations.SEPARATOR.split(text.strip()), 1):
            try:
                delays.append(timedelta(seconds=durations.parse(entry)))
            except ValueError as reason:
                where = f"level {level}, {quoted(entry)}, of the delay levels {quoted(text)}"
                raise InvalidDelayLevel(f"{where} is wrong: {reason}") from None
        return cls(tuple(delays), text)

    def delay_s(self, level: int) -> float:
        """Returns the delay of a level in s.

        Args:
            level: 0 is no delay, 1 the first entry of the table. A level above the highest counts as the highest.

        Raises:
            InvalidDelayLevel: The level is not a whole number from 0.

        Source: RocketMQ lowers a level above the highest to the highest in HookUtils.transformDelayLevelMessage.
        """
        if isinstance(level, bool) or not isinstance(level, int) or level < 0:
            raise InvalidDelayLevel(
                f"a delay level is a whole number from 0, no delay, to {len(self)}, the highest, not {quoted(level)}"
            )
        return self.delays[min(level, len(self)) - 1].total_seconds() if level else 0.0

    def __len__(self) -> int:
        return len(self.delays)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"DelayLevels.parse({self.text!r})"


def delay_of_level(app: Any, level: int, options: Mapping[str, Any]) -> float:
    """Returns the delay, in s, of a call with a delay level.

    Args:
        app: The app. Its setting ``delayq_levels`` has the table, by default RocketMQ's.
        level: As of ``DelayLevels.delay_s``.
        options: The other options of the call.

    Raises:
        InvalidDelayLevel: The level or the table is wrong, or there is a ``countdown`` or an ``eta`` too.
    """
    for other in ("countdown", "eta"):
        if options.get(other) is not None:
            raise InvalidDelayLevel(f"delay_level={quoted(level)} cannot go together with {other}")
    table = app.conf.get("delayq_levels") or DEFAULT
    levels = _parsed(table) if isinstance(table, str) else DelayLevels.parse(table)
    return levels.delay_s(level)


_parsed = lru_cache(maxsize=16)(DelayLevels.parse)
