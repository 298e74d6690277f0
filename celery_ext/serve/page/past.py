"""What has happened in the past hour or day: deliveries, lateness, retries, failures and dead letters."""

from collections.abc import Sequence
from typing import NamedTuple

from celery_ext.serve.minutes import MinuteFigures, Minutes, total
from celery_ext.serve.page.chart import Bars, bars
from celery_ext.serve.page.figures import number, seconds
from kombu_delayq.store import DelayStore

#: Number of bars, and for how many minutes one stands, by the span of the chart of what comes due.
BARS, MINUTES_A_BAR = 60, {"hour": 1, "day": 24, "month": 24}
#: Height of a drawing.
_HEIGHT = 44


class PastBars(NamedTuple):
    """One of the charts.

    Attributes:
        name: What it counts.
        total: How many there were, or the largest lateness, in words.
        most: The highest bar, in words; empty if there is none.
        bars: The drawing.
        is_bad: Whether it counts what should not happen.
    """

    name: str
    total: str
    most: str
    bars: Bars
    is_bad: bool = False


class Past(NamedTuple):
    """The charts: ``span`` and ``bar`` say in words what they show, and for what a bar stands."""

    span: str
    bar: str
    charts: list[PastBars]


def past(store: DelayStore, queues: Sequence[str], letters: Sequence[str], span: str, now_ms: float) -> Past:
    """Makes the charts.

    Args:
        store: The broker's store.
        queues: Names of the queues.
        letters: Names of the queues of dead letters, for which letters are counted.
        span: A key of ``chart.SPANS``.
        now_ms: Redis's clock, ms since the epoch.
    """
    a_bar = MINUTES_A_BAR[span]
    count = BARS * a_bar
    found = store.part(MinuteFigures).read(sorted({*queues, *letters}), now_ms, count)
    sums = total(list(found.values()), count)
    words = "min" if a_bar == 1 else f"{a_bar} min"
    return Past("hour" if a_bar == 1 else "day", "a minute" if a_bar == 1 else words, list(_charts(sums, a_bar, words)))


def _charts(found: Minutes, a_bar: int, words: str) -> Sequence[PastBars]:
    late = [max(found.late_ms[at : at + a_bar]) for at in range(0, len(found.late_ms), a_bar)]
    worst = max(late)
    return [
        _counted("Came due", found.delivered, a_bar, words),
        PastBars("Late by up to", _late(worst) if any(found.delivered) else "none", "", bars([0, *late], _HEIGHT)),
        _counted("Retried", found.retried, a_bar, words),
        _counted("Failed", found.failed, a_bar, words, is_bad=True),
        _counted("Dead letters", found.dead, a_bar, words, is_bad=True),
    ]


def _late(worst_ms: float) -> str:
    return seconds(worst_ms / 1000) if worst_ms else "≤ 5 ms"


def _counted(name: str, counts: Sequence[int], a_bar: int, words: str, *, is_bad: bool = False) -> PastBars:
    parts = [sum(counts[at : at + a_bar]) for at in range(0, len(counts), a_bar)]
    most = f"max {number(max(parts))}/{words}" if any(parts) else ""
    return PastBars(name, number(sum(parts)), most, bars([0, *parts], _HEIGHT), is_bad and any(parts))
