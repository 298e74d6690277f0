"""The results of a run: samples, and gaps with their reasons."""

from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Sample:
    """One measured value.

    Attributes:
        measure: A key of ``tests.bench.measures.MEASURES``.
        contender: Its name.
        size: How many messages waited, or consumers were idle; 0 where the measure has no size.
        value: In the unit of the measure; infinite where it did not come to an end.
    """

    measure: str
    contender: str
    size: int
    value: float


@dataclass(frozen=True)
class Gap:
    """Why there is no value, in place of one.

    Attributes:
        measure: Begin of the keys of the measures that have no value; empty for all measures of the contender.
        contender: Its name.
        size: As in ``Sample``; 0 for all sizes.
        why: The reason, as the text of a table's cell.
        failed: Whether something went wrong; else the contender only lacks it.
    """

    measure: str
    contender: str
    size: int
    why: str
    failed: bool = False


@dataclass(frozen=True)
class Spread:
    """The values of one cell.

    Attributes:
        median: Median of all rounds.
        least: The least value.
        most: The greatest value.
        rounds: Number of rounds.
    """

    median: float
    least: float
    most: float
    rounds: int


@dataclass
class Results:
    """All samples and gaps of a run."""

    samples: list[Sample] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    def of(self, measure: str, contender: str, size: int = 0) -> Spread | str:
        """Returns the values of a cell, or why there are none."""
        values = [
            sample.value
            for sample in self.samples
            if (sample.measure, sample.contender, sample.size) == (measure, contender, size)
        ]
        if values:
            return Spread(median(values), min(values), max(values), len(values))
        matching = [
            gap.why
            for gap in self.gaps
            if gap.contender == contender and measure.startswith(gap.measure) and gap.size in (0, size)
        ]
        return matching[0] if matching else "not measured in this run"

    def as_dict(self) -> dict[str, Any]:
        """Returns all of it, for JSON."""
        return {"samples": [asdict(sample) for sample in self.samples], "gaps": [asdict(gap) for gap in self.gaps]}
