"""The bounds that this project has set itself, and whether a run met them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.bench.columns import OURS
from tests.bench.measures import STOCK
from tests.bench.results import Results, Spread


@dataclass(frozen=True)
class Bound:
    """A target.

    Attributes:
        title: What is bounded, and where it was measured.
        bound: The bound, in words.
        values: The value of each form of kombu-delayq, by its name; None where it was not measured.
        keeps: Returns whether a value is within the bound.
    """

    title: str
    bound: str
    values: Mapping[str, float | None]
    keeps: Callable[[float], bool]

    def met(self, name: str) -> bool | None:
        """Returns whether the shown value of a form is within the bound; None without a value."""
        value = self.values[name]
        return None if value is None else self.keeps(round(value, 2))


def bounds(results: Results) -> list[Bound]:
    """Returns all targets with the values of a run."""
    ours = sorted({sample.contender for sample in results.samples if sample.contender.startswith(OURS)})

    def bound(title: str, words: str, of: Callable[[str], float | None], keeps: Callable[[float], bool]) -> Bound:
        return Bound(title, words, {name: of(name) for name in ours}, keeps)

    def worst(key: str, most: bool = False) -> Callable[[str], float | None]:
        return lambda name: max(
            (_value(spread, most) for spread in _spreads(results, key, name).values()), default=None
        )

    def idle(name: str) -> float | None:
        found = _spreads(results, "quiet_cpu", name).get(100)
        return None if found is None else found.median

    return [
        bound("Round trips for a task with a delay", "≤ 1", worst("enqueue_one_reads"), lambda value: value <= 1),
        bound(
            f"The producer's CPU time for a task with a delay, of {STOCK}'s own",
            "≤ 1",
            lambda name: _ratio(results, "enqueue_one_cpu", name),
            lambda value: value <= 1,
        ),
        bound(
            "Redis's CPU time for a message of 1,000 bytes transferred, at every backlog, µs",
            "≤ 8",
            worst("script_transfer"),
            lambda value: value <= 8,
        ),
        bound(
            "Longest that a transfer took of Redis's CPU time, of all rounds and backlogs, ms",
            "≤ 5",
            worst("script_longest", most=True),
            lambda value: value <= 5,
        ),
        bound(
            f"Tasks a second of one worker process, of {STOCK}'s own",
            "≥ 3",
            lambda name: _ratio(results, "alone", name),
            lambda value: value >= 3,
        ),
        bound(
            "Redis's CPU for 100 idle consumers without gossip, % of a core",
            "< 1",
            idle,
            lambda value: value < 1,
        ),
    ]


def _value(found: Spread, most: bool) -> float:
    return found.most if most else found.median


def _spreads(results: Results, key: str, contender: str) -> dict[int, Spread]:
    """Returns the values of a contender by size."""
    sizes = {sample.size for sample in results.samples if (sample.measure, sample.contender) == (key, contender)}
    found = {size: results.of(key, contender, size) for size in sorted(sizes)}
    return {size: spread for size, spread in found.items() if isinstance(spread, Spread)}


def _ratio(results: Results, key: str, name: str) -> float | None:
    """Returns the greatest ratio to stock, of the sizes that both have."""
    stock = _spreads(results, key, STOCK)
    ratios = [
        found.median / stock[size].median for size, found in _spreads(results, key, name).items() if size in stock
    ]
    return max(ratios, default=None)
