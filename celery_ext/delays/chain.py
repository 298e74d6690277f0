"""Delay chains: how long each retry of a task waits, as one value."""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from celery_ext.delays import durations
from kombu_delayq.errors import InvalidDelayChain, quoted
from kombu_delayq.message import CHAIN_ID

#: Most steps of a chain. There is a limit because every message carries the chain's text.
MAX_STEPS = 1000

_SUFFIX = re.compile(r"(?=[*~])")
_REPEATS = re.compile(r"[1-9][0-9]*")
_PERCENT = re.compile(rf"({durations.NUMBER})%")


class _Step(NamedTuple):
    """A step as written: its delay, how often it comes, and its own jitter in percent."""

    delay: timedelta
    repeats: int
    jitter: float | None


@dataclass(frozen=True, slots=True, repr=False)
class DelayChain:
    """A retry schedule: the first failure waits for the first step, each further one for the next.

    Chains of the same delays and jitters are equal, however they are written. Made by ``DelayChain.parse``.

    Attributes:
        delays: Delay of each step, without jitter.
        jitters: Jitter of each step in percent, 0 to 100.
        text: What the chain was parsed from.
    """

    delays: tuple[timedelta, ...]
    jitters: tuple[float, ...]
    text: str = field(compare=False)

    @classmethod
    def parse(cls, text: "str | DelayChain") -> "DelayChain":
        """Reads a chain such as ``4m,10m*2,1h~10%``.

        Args:
            text: Durations, separated by commas, blanks or both. ``*3`` after a duration repeats it. ``~10%`` after a
                duration makes it up to 10 % shorter or longer at random. ``~10%`` as the last item holds for all
                steps that have no jitter of their own. A DelayChain is returned as it is.

        Raises:
            InvalidDelayChain: The text is no chain, or one of more than ``MAX_STEPS`` steps. The error names
                the item of the text that is wrong, counted from 1.
        """
        if isinstance(text, DelayChain):
            return text
        if not isinstance(text, str):
            raise InvalidDelayChain(f"a delay chain is a text such as '4m,10m,1h', not {quoted(text)}")
        return _chain(text)

    @classmethod
    def read(cls, text: str | None) -> "DelayChain | None":
        """Reads the chain of a message: None if it has none, or one that ``parse`` refuses."""
        try:
            return None if text is None else cls.parse(text)
        except InvalidDelayChain:
            return None

    @property
    def total(self) -> timedelta:
        """Sum of all delays, without jitter."""
        return sum(self.delays, timedelta())

    def delay_s(self, n: int, random: Callable[[], float] = random.random) -> float:
        """Returns how long a step waits this time, in s.

        Args:
            n: The step, counted from 0.
            random: Returns a random number from 0 to 1, which decides the jitter.

        Raises:
            IndexError: The chain has no such step.
        """
        if not 0 <= n < len(self.delays):
            raise IndexError(f"the delay chain {quoted(self.text)} has the steps 0 to {len(self.delays) - 1}, not {n}")
        return self.delays[n].total_seconds() * (1 + self.jitters[n] / 100 * (2 * random() - 1))

    def __len__(self) -> int:
        return len(self.delays)

    def __iter__(self) -> Iterator[timedelta]:
        return iter(self.delays)

    def __getitem__(self, n: int) -> timedelta:
        return self.delays[n]

    def __str__(self) -> str:
        return self.text

    def __json__(self) -> str:
        """Lets kombu write a chain into a signature, as its text."""
        return self.text

    def __repr__(self) -> str:
        return f"DelayChain.parse({self.text!r})"


@lru_cache(maxsize=1024)
def _chain(text: str) -> DelayChain:
    steps, jitter_of_all = _read(text)
    jitters = (jitter_of_all if step.jitter is None else step.jitter for step in steps)
    return DelayChain(tuple(step.delay for step in steps), tuple(jitters), text)


def _read(text: str) -> tuple[list[_Step], float]:
    """Returns the steps, with repeats written out, and the jitter of the steps that have none of their own."""
    # Of a text that is too long, the last piece is the rest. An item before it is already one too many.
    items = durations.SEPARATOR.split(text.strip(), maxsplit=MAX_STEPS + 1)
    if items == [""]:
        raise InvalidDelayChain(f"the delay chain {quoted(text)} has no step: write one such as '4m,10m,1h'")
    steps: list[_Step] = []
    for number, item in enumerate(items, 1):
        try:
            if item.startswith("~") and 1 < number == len(items):
                return steps, _percent(item)
            step = _step(item)
            if len(steps) + step.repeats > MAX_STEPS:
                raise ValueError(f"with it the chain has more than {MAX_STEPS} steps, which is the limit")
        except ValueError as reason:
            where = f"step {number}, {quoted(item)}, of the delay chain {quoted(text)}"
            raise InvalidDelayChain(f"{where} is wrong: {reason}") from None
        steps += [step] * step.repeats
    return steps, 0.0


def _step(item: str) -> _Step:
    if not item:
        raise ValueError("it is empty: write a duration, or leave out a comma")
    duration, *suffixes = _SUFFIX.split(item)
    if not duration:
        raise ValueError(
            "a step begins with its delay, as in 10m*3~10%; only the jitter of all steps stands alone, last"
        )
    by_sign = {suffix[0]: suffix for suffix in suffixes}
    if len(by_sign) < len(suffixes):
        raise ValueError("a step has * and ~ at most once each")
    return _Step(
        delay=timedelta(seconds=durations.parse(duration)),
        repeats=_repeats(by_sign["*"]) if "*" in by_sign else 1,
        jitter=_percent(by_sign["~"]) if "~" in by_sign else None,
    )


def _repeats(suffix: str) -> int:
    if not _REPEATS.fullmatch(suffix, 1):
        raise ValueError(f"after * comes a whole number from 1, as in 10m*3, not {quoted(suffix[1:])}")
    # `int` raises an error on several thousand digits.
    return int(suffix[1:]) if len(suffix) < 10 else MAX_STEPS + 1


def _percent(suffix: str) -> float:
    match = _PERCENT.fullmatch(suffix, 1)
    percent = float(match[1]) if match else None
    if percent is None or percent > 100:
        raise ValueError(f"after ~ comes a number from 0 to 100 and %, as in 10m~10%, not {quoted(suffix[1:])}")
    return percent


def id_of_chain(request: Any) -> str:
    """Returns the id that all steps of a chain share. A message that is delivered again begins the same chain."""
    properties = request.properties or {}
    return str(properties.get(CHAIN_ID) or properties.get("delivery_tag") or request.id)
