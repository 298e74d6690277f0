"""How the page's charts look: lines over backlogs, and a row of marks for each contender."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, log10
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from tests.bench.columns import OURS

#: Colours of our two forms, which any colour vision tells apart on white; the others are grey.
COLOURS = ("#0060ad", "#d1570c")
GREY, INK, FAINT = "#767676", "#222222", "#dddddd"
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h", "*", "d", "p")
#: In inches, of which a page has 100 dots each.
WIDTH, ROW, EDGE = 8.0, 0.27, 1.1
#: How far apart the labels of lines are at least, as a share of the height.
APART = 0.062
#: Ratio of the greatest to the least value below which an axis also has numbers between the powers of ten.
FEW = 200


@dataclass(frozen=True)
class Marks:
    """Values of several contenders that belong together.

    Attributes:
        label: Label in the legend.
        mark: Form of the marks, in matplotlib's letters.
        filled: Whether the marks are filled.
        values: Values by contender.
    """

    label: str
    mark: str
    filled: bool
    values: Mapping[str, float]


def style() -> AbstractContextManager[None]:
    """Sets the style of all charts: text as outlines, and nothing that differs from run to run."""
    return mpl.rc_context(
        {
            "svg.fonttype": "path",
            "svg.hashsalt": OURS,
            "font.size": 10,
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": GREY,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "axes.grid": True,
            "grid.color": FAINT,
            "grid.linewidth": 0.7,
            "xtick.color": INK,
            "ytick.color": INK,
            "legend.frameon": False,
        }
    )


def figure(height: float, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """Returns an empty chart, and its panels from left to right."""
    drawn = Figure(figsize=(WIDTH, height), layout="constrained", facecolor="white")
    found = drawn.subplots(1, panels, sharey=panels > 1, squeeze=False)
    return drawn, list(found[0])


def save(drawn: Figure, path: Path) -> None:
    """Writes a chart as SVG."""
    drawn.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def colour(name: str, names: Sequence[str]) -> str:
    """Returns a contender's colour: the forms of kombu-delayq have one each."""
    ours = [contender for contender in names if contender.startswith(OURS)]
    return COLOURS[ours.index(name) % len(COLOURS)] if name in ours else GREY


def lines(axes: Axes, found: Mapping[str, Mapping[int, float]], names: Sequence[str]) -> None:
    """Draws a line for each contender over backlogs, both logarithmic, with its name at its end.

    Args:
        axes: Where.
        found: Values by size, by contender.
        names: All contenders, in the order of the tables.
    """
    axes.set(xscale="log", yscale="log", xlabel="messages waiting")
    for name, values in found.items():
        ours = name.startswith(OURS)
        look: dict[str, Any] = {"linewidth": 2.4 if ours else 1.1, "markersize": 7 if ours else 5}
        axes.plot(
            list(values),
            list(values.values()),
            color=colour(name, names),
            marker=MARKS[names.index(name) % len(MARKS)],
            zorder=3 if ours else 2,
            **look,
        )
    sizes = sorted({size for values in found.values() for size in values})
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.set_xlim(sizes[0] / 1.25, sizes[-1] * 1.25)
    axes.xaxis.set_minor_formatter(NullFormatter())
    low, high = axes.get_ylim()
    if high / low < FEW:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(plain))
    axes.yaxis.set_minor_formatter(NullFormatter())
    _name_lines(axes, found, names)


def _name_lines(axes: Axes, found: Mapping[str, Mapping[int, float]], names: Sequence[str]) -> None:
    low, high = (log10(limit) for limit in axes.get_ylim())
    ends = {name: list(values.items())[-1] for name, values in found.items()}
    heights = _spread({name: (log10(value) - low) / (high - low) for name, (_, value) in ends.items()})
    for name, (size, value) in ends.items():
        look: dict[str, Any] = {"fontweight": "bold"} if name.startswith(OURS) else {}
        axes.annotate(
            name,
            (size, value),
            xytext=(1.05, heights[name]),
            textcoords="axes fraction",
            color=colour(name, names),
            va="center",
            arrowprops={
                "arrowstyle": "-",
                "color": GREY,
                "linewidth": 0.7,
                "linestyle": ":",
                "shrinkA": 1,
                "shrinkB": 4,
            },
            **look,
        )


def _spread(heights: Mapping[str, float]) -> dict[str, float]:
    """Moves labels that are too close apart, as little as is needed and in the same order."""
    found = dict(sorted(heights.items(), key=lambda item: item[1]))
    names = list(found)
    for _ in range(200):
        for below, above in pairwise(names):
            missing = APART - (found[above] - found[below])
            if missing > 1e-4:
                found[below] -= missing / 2
                found[above] += missing / 2
    return found


def rows(axes: Axes, series: Sequence[Marks], order: Sequence[str], names: Sequence[str]) -> None:
    """Draws a row for each contender, with a mark for each of its values and a line that joins them.

    Args:
        axes: Where. Its scale is to be set before.
        series: The values. What is not finite is left to the caller.
        order: The rows, from the top.
        names: All contenders, in the order of the tables.
    """
    for at, name in enumerate(order):
        values = [marks.values[name] for marks in series if isfinite(marks.values.get(name, float("nan")))]
        shade = colour(name, names)
        if values:
            axes.plot([min(values), max(values)], [at, at], color=shade, linewidth=1.2, zorder=2)
        for marks in series:
            if isfinite(marks.values.get(name, float("nan"))):
                axes.plot(
                    marks.values[name],
                    at,
                    marks.mark,
                    color=shade,
                    markerfacecolor=shade if marks.filled else "white",
                    markersize=7,
                    zorder=3,
                )
    axes.set_yticks(range(len(order)), order)
    for label in axes.get_yticklabels():
        if label.get_text().startswith(OURS):
            label.set(color=colour(label.get_text(), names), fontweight="bold")
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(FuncFormatter(plain))


def legend(drawn: Figure, series: Sequence[Marks]) -> None:
    """Draws a legend of the marks below a chart."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=GREY, linestyle="", marker=marks.mark, markerfacecolor=GREY if marks.filled else "white")
        for marks in series
    ]
    drawn.legend(handles, [marks.label for marks in series], loc="outside lower center", ncols=len(series))


def plain(value: float, _position: int = 0) -> str:
    """Returns a number on an axis, without an exponent."""
    return f"{value:,.10g}".replace("-", "\u2212")
