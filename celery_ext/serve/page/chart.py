"""What comes due when, as bars: for the table of queues, and for the chart where no script runs."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from starlette.requests import Request

#: What the chart shows: name, words and length in s.
SPANS = {"hour": ("Hour", 3600), "day": ("Day", 86_400), "month": ("Month", 30 * 86_400)}
#: Number of bars of the large chart and of a small one.
BARS, SMALL_BARS = 120, 24
#: The script knows the parts of this many queues, the largest.
MOST_PARTS = 60
#: A small bar is drawn at least this high where something is due.
_LEAST = 1.5


class Bars(NamedTuple):
    """Bars of an SVG.

    Attributes:
        path: All bars but the first, as the data of a path.
        first: The first bar: what is overdue.
        width: Width of the drawing.
        height: Its height.
    """

    path: str
    first: str
    width: int
    height: int


def bars(counts: Sequence[int], height: int, step: int = 5, gap: int = 1) -> Bars:
    """Draws counts as bars. The highest is as high as the drawing.

    Args:
        counts: The first is what is overdue.
        height: Height of the drawing.
        step: Distance from bar to bar.
        gap: Space between two bars.
    """
    most = max(counts, default=0) or 1
    drawn = [
        f"M{at * step} {height}v-{max(count / most * height, _LEAST):.1f}h{step - gap}V{height}z" if count else ""
        for at, count in enumerate(counts)
    ]
    return Bars("".join(drawn[1:]), drawn[0] if drawn else "", len(counts) * step, height)


def span_of(request: Request) -> str:
    """Returns the span that the chart shows, a key of ``SPANS``."""
    span = request.query_params.get("span", "")
    return span if span in SPANS else "hour"


def bounds(now_ms: float, span: str, count: int = BARS) -> list[float]:
    """Returns the bounds of a histogram of what is due: all that is overdue, ``count`` equal parts, all that is later.

    Args:
        now_ms: Where the span begins, ms since the epoch.
        span: A key of ``SPANS``.
        count: Number of parts.
    """
    length_ms = SPANS[span][1] * 1000
    return [-inf, *(now_ms + length_ms * at / count for at in range(count + 1)), inf]


@dataclass(frozen=True)
class Chart:
    """The chart of what comes due, before a script draws a better one.

    Attributes:
        span: A key of ``SPANS``.
        from_ms: Where it begins: Redis's clock, ms since the epoch.
        counts: Of all queues together, the counts of ``bounds``.
        parts: For some queues, their counts; the script shows the part of a queue.
        spans: The spans to choose from: name, words, link.
    """

    span: str
    from_ms: float
    counts: Sequence[int]
    parts: Mapping[str, Sequence[int]]
    spans: Sequence[tuple[str, str, str]]

    @property
    def data(self) -> str:
        """What the script needs to draw the chart, as JSON."""
        span_s = SPANS[self.span][1]
        return json.dumps({"from": self.from_ms, "span": span_s, "all": self.counts, "parts": self.parts})

    @property
    def bars(self) -> Bars:
        """The drawing."""
        return bars(self.counts[:-1], 100)

    @property
    def total(self) -> int:
        """How many come due within the span."""
        return sum(self.counts[1:-1])

    @property
    def summary(self) -> str:
        """The chart in a sentence."""
        many = f"{self.total:,} {'task' if self.total == 1 else 'tasks'}"
        return f"{many} due in the next {'30 days' if self.span == 'month' else self.span}"


def chart(
    span: str, now_ms: float, due: Mapping[str, Sequence[int]], link: Callable[..., str], *, in_parts: bool
) -> Chart:
    """Makes the chart.

    Args:
        span: A key of ``SPANS``.
        now_ms: Where it begins.
        due: For each queue, the counts of ``bounds``.
        link: Returns the link to a ``span``.
        in_parts: Whether the script shows the parts of queues.
    """
    counts = [sum(column) for column in zip(*due.values(), strict=True)] or [0] * (BARS + 2)
    largest = sorted(due, key=lambda name: -sum(due[name]))[:MOST_PARTS] if in_parts else []
    spans = [(name, words, link(span=name)) for name, (words, _) in SPANS.items()]
    return Chart(span, now_ms, counts, {name: due[name] for name in largest if any(due[name])}, spans)


def small_bars(counts: Sequence[int], count: int = SMALL_BARS) -> Bars:
    """Draws a histogram of many parts small, for a row of a table."""
    inner = counts[1:-1]
    width = max(len(inner) // count, 1)
    return bars([0, *(sum(inner[at : at + width]) for at in range(0, len(inner), width))], 20, step=4)
