"""A constant of ``docs/capacity.json``, and the line through what was measured at several sizes."""

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import mean
from types import ModuleType

from tests.bench.targets.report import Figure
from tests.support import ROOT

#: Bytes of the messages with which the costs are measured.
SIZES = (1_000, 2_000, 4_000, 8_000)


@dataclass(frozen=True)
class Constant(Figure):
    """A figure that is written into the file.

    Attributes:
        path: Names of the objects of the file that lead to it, and its own name.
        numbers: What is written: one number, or that of an empty message and that of each unit of its size.
    """

    path: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()


def of_size(what: str, path: tuple[str, ...], found: Sequence[tuple[int, float]], unit: str, per: int) -> Constant:
    """Returns a constant that grows with the size of a message.

    Args:
        what: What was measured.
        path: Its place in the file.
        found: Sizes in bytes, and what a message of this size costs.
        unit: Unit of the costs.
        per: Bytes for which the second number stands.
    """
    numbers = line([(size / per, cost) for size, cost in found])
    seen = ", ".join(f"{size:,} bytes: {cost:,.4g}" for size, cost in found)
    note = f"{numbers[0]:.4g} and {numbers[1]:.4g} for each {per:,} bytes; {seen}"
    first = numbers[0] + numbers[1] * 1000 / per
    return Constant(f"{what}, 1,000 bytes", first, unit, note=note, path=path, numbers=numbers)


def line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Returns base and slope of the line with the least squares of relative errors; neither is less than 0."""
    weights = [1 / cost**2 for _, cost in points]
    whole = sum(weights)
    x = sum(w * size for w, (size, _) in zip(weights, points, strict=True)) / whole
    y = sum(w * cost for w, (_, cost) in zip(weights, points, strict=True)) / whole
    across = sum(w * (size - x) * (cost - y) for w, (size, cost) in zip(weights, points, strict=True))
    slope = max(0.0, across / sum(w * (size - x) ** 2 for w, (size, _) in zip(weights, points, strict=True)))
    if y - slope * x < 0:
        return 0.0, mean(cost / size for size, cost in points)
    return y - slope * x, slope


@cache
def model() -> ModuleType:
    """Returns ``docs/capacity_model.py`` as a module."""
    spec = importlib.util.spec_from_file_location("capacity_model", ROOT / "docs" / "capacity_model.py")
    if spec is None or spec.loader is None:
        raise RuntimeError("docs/capacity_model.py cannot be read")
    module = sys.modules["capacity_model"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
