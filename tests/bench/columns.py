"""A column of a table: one measure at one size, of all contenders; who leads in it, and how its cells are shown."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import floor, inf, isinf

from tests.bench.measures import MEASURES, Measure
from tests.bench.results import Results, Sample, Spread

#: Begin of the names of this project's contenders.
OURS = "kombu-delayq"
#: Medians that differ by no more than this share are taken for equal.
ALIKE = 0.05
#: Text of ``Results.of`` for a cell that has neither values nor a gap.
NOT_MEASURED = "not measured in this run"
#: Stands between the least and the greatest value, and in a cell without a value.
DASH = "\u2013"


@dataclass(frozen=True)
class Column:
    """A measure at one size.

    Attributes:
        measure: What is measured.
        size: Size, as in ``Sample``.
        cells: For each contender its values, or why there are none.
    """

    measure: Measure
    size: int
    cells: Mapping[str, Spread | str]

    @cached_property
    def spreads(self) -> dict[str, Spread]:
        """The contenders that have values."""
        return {name: cell for name, cell in self.cells.items() if isinstance(cell, Spread)}

    @cached_property
    def best(self) -> list[str]:
        """Who has the best median; nobody if most have it, or it is not compared."""
        best = self.best_of(self.spreads)
        if best is None or isinf(self.spreads[best].median):
            return []
        found = [name for name, cell in self.spreads.items() if cell.median == self.spreads[best].median]
        return [] if len(found) > max(1, len(self.spreads) // 2) else found

    def best_of(self, names: Iterable[str]) -> str | None:
        """Returns the first of these that has the best median, if any has one."""
        sign = {"less": 1, "more": -1, None: 0}[self.measure.better]
        medians = {name: sign * self.spreads[name].median for name in names if name in self.spreads}
        return min(medians, key=medians.__getitem__) if medians and sign else None

    def among(self, others: str) -> "Column":
        """Returns the same with kombu-delayq and those whose names begin so."""
        return replace(self, cells={name: cell for name, cell in self.cells.items() if name.startswith((OURS, others))})

    @property
    def ours(self) -> str | None:
        """The better form of kombu-delayq."""
        return self.best_of(name for name in self.cells if name.startswith(OURS))

    @property
    def other(self) -> str | None:
        """The best of the others."""
        return self.best_of(name for name in self.cells if not name.startswith(OURS))

    @property
    def leads(self) -> bool | None:
        """Whether kombu-delayq leads; None where it has no value, or nobody else has.

        It does if the median of one of its forms is the best, or differs from the best by no more than 5 % or what is
        taken for equal, or lies within the spread of the best.
        """
        if self.ours is None or self.other is None:
            return None
        mine, best = self.spreads[self.ours], self.spreads[self.other]
        if self.best_of([self.ours, self.other]) == self.ours or best.least <= mine.median <= best.most:
            return True
        if isinf(mine.median):
            return False
        return abs(mine.median - best.median) <= max(self.measure.alike, ALIKE * abs(best.median))


def columns(results: Results, key: str, contenders: Sequence[str]) -> list[Column]:
    """Returns the columns of a measure: one if it has no sizes, else one for each size that has values or a gap."""
    measure = MEASURES[key]
    contenders = [name for name in contenders if not measure.only or name in measure.only]
    if not measure.by:
        return [Column(measure, 0, {name: _cell(results, measure, name, 0) for name in contenders})]
    sizes = {sample.size for sample in results.samples if sample.measure == key}
    sizes |= {gap.size for gap in results.gaps if gap.size and gap.measure and key.startswith(gap.measure)}
    return [
        Column(measure, size, {name: _cell(results, measure, name, size) for name in contenders})
        for size in sorted(sizes)
    ]


def _cell(results: Results, measure: Measure, contender: str, size: int) -> Spread | str:
    found = results.of(measure.key, contender, size)
    if isinstance(found, Spread) and found.least < measure.least:
        found = Spread(*(max(value, measure.least) for value in (found.median, found.least, found.most)), found.rounds)
    if found == NOT_MEASURED and measure.follows:
        other = results.of(measure.follows, contender, size)
        return other if isinstance(other, str) else found
    return found


def with_path(results: Results) -> Results:
    """Adds the samples of ``path_cpu``: the sum of ``offer_cpu`` and ``transfer_cpu`` of each round."""
    parts: dict[tuple[str, int], dict[str, list[float]]] = {}
    for sample in results.samples:
        if sample.measure in ("offer_cpu", "transfer_cpu"):
            parts.setdefault((sample.contender, sample.size), {}).setdefault(sample.measure, []).append(sample.value)
    added = [
        Sample("path_cpu", contender, size, offer + transfer)
        for (contender, size), found in parts.items()
        for offer, transfer in zip(found.get("offer_cpu", ()), found.get("transfer_cpu", ()), strict=False)
    ]
    return replace(results, samples=[*results.samples, *added])


def shown(value: float, measure: Measure, grace_s: str) -> str:
    """Returns a value as in a cell, without its unit.

    Args:
        value: Value of a sample.
        measure: Measure of the value.
        grace_s: How long the run waited for tasks that did not begin, in s.
    """
    if value == inf:
        return f"not within {grace_s} s"
    value *= measure.times
    if measure.unit == "%":  # what is missing from 100 is not to be rounded away
        value = floor(value * 10**measure.digits + 1e-6) / 10**measure.digits
    if abs(value) >= 100:
        return f"{float(f'{value:.3g}'):,.0f}".replace("-", "\u2212")
    least = 10.0**-measure.digits
    if 0 < value < least / 2:
        return f"< {least:.{measure.digits}f}"
    text = f"{value:.{measure.digits}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "\u2212")


def spread(cell: Spread, measure: Measure, grace_s: str) -> str:
    """Returns the median, and the least and greatest values where they differ in what is shown."""
    median, least, most = (shown(value, measure, grace_s) for value in (cell.median, cell.least, cell.most))
    return median if least == most else f"{median} ({least}{DASH}{most})"
