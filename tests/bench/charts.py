"""The page's charts, as SVG."""

from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite
from pathlib import Path

from matplotlib.figure import Figure

from tests.bench import drawing
from tests.bench.columns import columns
from tests.bench.drawing import EDGE, GREY, ROW, Marks
from tests.bench.facts import Facts
from tests.bench.results import Results, Spread

#: Values by size, by contender.
Found = dict[str, dict[int, float]]
#: The forms of the marks, from the smallest size to the greatest.
FORMS = ("o", "s", "D", "^")


def draw(results: Results, facts: Facts, directory: Path) -> dict[str, Path]:
    """Draws a chart for each group of measures that has one and values to show.

    Args:
        results: Results with the sums that ``with_path`` adds.
        facts: Facts of the run.
        directory: Directory for the charts.

    Returns:
        Path of each chart, by the key of its group.
    """
    made: dict[str, Callable[[Results, Sequence[str], Mapping[str, str]], Figure | None]] = {
        "enqueue": _enqueue,
        "memory": _memory,
        "transfer": _transfer,
        "lateness": _lateness,
        "alone": _alone,
        "cancel": _cancel,
        "idle": _idle,
        "path": _path,
    }
    names = [entrant.name for entrant in facts.contenders if not entrant.why_not]
    paths = {}
    with drawing.style():
        for key, make in made.items():
            drawn = make(results, names, facts.numbers)
            if drawn:
                paths[key] = directory / f"{key}.svg"
                drawing.save(drawn, paths[key])
    return paths


def _medians(results: Results, key: str, names: Sequence[str]) -> Found:
    """Returns the medians of a measure, of the contenders that have some."""
    found: Found = {}
    for column in columns(results, key, names):
        for name, spread in column.spreads.items():
            found.setdefault(name, {})[column.size] = spread.median
    return found


def _order(values: Mapping[str, float], *, most_first: bool = False) -> list[str]:
    """Returns names from the best value to the worst."""
    return sorted(values, key=values.__getitem__, reverse=most_first)


def _last(found: Found) -> dict[str, float]:
    """Returns each contender's value at its greatest size."""
    return {name: values[max(values)] for name, values in found.items()}


def _lines(found: Found, names: Sequence[str], label: str) -> Figure | None:
    above = {name: {size: value for size, value in values.items() if value > 0} for name, values in found.items()}
    above = {name: values for name, values in above.items() if values}
    if not above:
        return None
    drawn, (axes,) = drawing.figure(4.6)
    drawing.lines(axes, above, names)
    axes.set_ylabel(label)
    return drawn


def _transfer(results: Results, names: Sequence[str], _numbers: Mapping[str, str]) -> Figure | None:
    return _lines(_medians(results, "transfer", names), names, "messages transferred/s")


def _cancel(results: Results, names: Sequence[str], _numbers: Mapping[str, str]) -> Figure | None:
    return _lines(_medians(results, "cancel", names), names, "cancel one: median, ms")


def _rows(
    names: Sequence[str], order: Sequence[str], panels: Sequence[tuple[str, Sequence[Marks]]], scale: str
) -> Figure | None:
    """Draws panels of rows side by side, in the same order, with one legend if their marks are the same."""
    if not order:
        return None
    drawn, all_axes = drawing.figure(EDGE + ROW * len(order), len(panels))
    for axes, (label, series) in zip(all_axes, panels, strict=True):
        axes.set_xscale(scale)
        drawing.rows(axes, series, order, names)
        axes.set_xlabel(label)
    if any(len(series) > 1 for _, series in panels):
        drawing.legend(drawn, panels[0][1])
    return drawn


def _by_size(found: Found, what: str) -> list[Marks]:
    sizes = sorted({size for values in found.values() for size in values})
    return [
        Marks(
            f"{size:,} {what}{'s' if what == 'consumer' and size > 1 else ''}",
            form,
            True,
            {name: values[size] for name, values in found.items() if size in values},
        )
        for size, form in zip(sizes, FORMS, strict=False)
    ]


def _enqueue(results: Results, names: Sequence[str], _numbers: Mapping[str, str]) -> Figure | None:
    one, bulk = (
        {name: values[min(values)] for name, values in _medians(results, key, names).items()}
        for key in ("enqueue_one", "enqueue_bulk")
    )
    series = [Marks("one at a time", "o", True, one), Marks("in bulk", "D", False, bulk)]
    order = _order({**one, **bulk}, most_first=True)
    return _rows(names, order, [("tasks enqueued/s", series)], "log")


def _alone(results: Results, names: Sequence[str], _numbers: Mapping[str, str]) -> Figure | None:
    rates, cpu = (_last(_medians(results, key, names)) for key in ("alone", "alone_cpu"))
    panels = [
        ("tasks/s", [Marks("", "o", True, rates)]),
        ("CPU of the server, µs a task", [Marks("", "o", True, cpu)]),
    ]
    return _rows(names, _order(rates, most_first=True), panels, "log")


def _memory(results: Results, names: Sequence[str], _numbers: Mapping[str, str]) -> Figure | None:
    kept, worker = (_last(_medians(results, key, names)) for key in ("kept", "worker"))
    order = _order({name: kept.get(name, 0) + worker.get(name, 0) for name in {**kept, **worker}})
    panels = [
        ("server, bytes a waiting message", [Marks("", "o", True, kept)]),
        ("worker, bytes a waiting message", [Marks("", "o", True, worker)]),
    ]
    drawn = _rows(names, order, panels, "linear")
    for axes in drawn.axes if drawn else ():
        axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    return drawn


def _idle(results: Results, names: Sequence[str], _numbers: Mapping[str, str]) -> Figure | None:
    commands, cpu = (_medians(results, key, names) for key in ("idle_commands", "idle_cpu"))
    panels = [
        ("commands/s", _by_size(commands, "consumer")),
        ("CPU of the server, % of a core", _by_size(cpu, "consumer")),
    ]
    drawn = _rows(names, _order(_last(commands)), panels, "symlog")
    for axes, linear in zip(drawn.axes if drawn else (), (1.0, 0.1), strict=False):
        axes.set_xscale("symlog", linthresh=linear)
        axes.xaxis.set_major_formatter(drawing.plain)
        axes.set_xlim(left=-linear / 8)
    return drawn


def _path(results: Results, names: Sequence[str], _numbers: Mapping[str, str]) -> Figure | None:
    found = _medians(results, "path_cpu", names)
    drawn = _rows(
        names,
        _order(_last(found)),
        [("CPU of the server from offer to queue, µs a message", _by_size(found, "waiting"))],
        "log",
    )
    limit = results.of("limit", "LPUSH")
    if drawn and isinstance(limit, Spread):
        axes = drawn.axes[0]
        axes.axvline(limit.median, color=GREY, linestyle="--", linewidth=1.2)
        axes.annotate(
            f"bare LPUSH: {limit.median:.1f}",
            (limit.median, 1),
            xycoords=("data", "axes fraction"),
            xytext=(4, 2),
            textcoords="offset points",
            color=GREY,
        )
    return drawn


def _lateness(results: Results, names: Sequence[str], numbers: Mapping[str, str]) -> Figure | None:
    marks = (("p50", "o", True), ("p99", "D", False), ("max", "|", True))
    panels, never = [], []
    for key, title in (("poisson", "{per_s}/s for {seconds} s: ms late"), ("burst", "{burst} at once: ms late")):
        found = {part: _last(_medians(results, f"{key}_{part}", names)) for part, _, _ in marks}
        panels.append((title.format_map(numbers), [Marks(part, form, full, found[part]) for part, form, full in marks]))
        never.append(found["max"])
    p99 = panels[0][1][1].values or panels[1][1][1].values
    others = {name: inf for _, series in panels for name in series[1].values}
    order = _order({**others, **p99})
    drawn = _rows(names, order, panels, "symlog")
    for axes, most, key in zip(drawn.axes if drawn else (), never, ("poisson", "burst"), strict=False):
        axes.set_xscale("symlog", linthresh=1.0)
        axes.xaxis.set_major_formatter(drawing.plain)
        axes.margins(x=0.08)
        for at, name in enumerate(order):
            begun = results.of(f"{key}_begun", name)
            if not isfinite(most.get(name, 0.0)) and isinstance(begun, Spread):
                axes.annotate(
                    f"{begun.median:.0%} begun \u2192",
                    (1, at),
                    xycoords=("axes fraction", "data"),
                    va="center",
                    ha="right",
                    color=drawing.colour(name, names),
                    fontsize=8.5,
                    backgroundcolor="white",
                )
    return drawn
