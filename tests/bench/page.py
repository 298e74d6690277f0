"""Writes what a run found: the page of the documentation, its charts, and the raw figures."""

from pathlib import Path

from tests.bench.facts import Facts
from tests.bench.results import Results


def write(results: Results, facts: Facts, directory: Path) -> None:
    """Writes ``benchmarks.md``, and beside it ``benchmarks/`` with charts and ``figures.json``.

    Args:
        results: What was measured, and what could not be.
        facts: Of the run.
        directory: Where to: ``docs``, or that of a quick run. Made if it is missing.
    """
    raise NotImplementedError
