"""Writes what a run found: the page of the documentation, its charts, and the raw figures."""

import json
from collections.abc import Iterator
from datetime import datetime
from math import inf, isfinite
from pathlib import Path
from typing import Any

from tests.bench.columns import with_path
from tests.bench.facts import Entrant, Facts, numbers
from tests.bench.groups import GROUPS
from tests.bench.results import Gap, Results, Sample
from tests.bench.schedule import Scale
from tests.bench.sections import Sections
from tests.bench.tables import Tables

#: Names of the page, of the directory beside it, and of the raw figures in this directory.
PAGE, BESIDE, FIGURES = "benchmarks.md", "benchmarks", "figures.json"


def write(results: Results, facts: Facts, directory: Path) -> None:
    """Writes ``benchmarks.md``, beside it ``benchmarks/figures.json``, and charts into ``_build/benchmarks/``.

    Args:
        results: The samples, and the gaps.
        facts: Facts of the run.
        directory: ``docs``, or the directory of a quick run. Made if it is missing.
    """
    from tests.bench import charts

    beside = directory / BESIDE
    beside.mkdir(parents=True, exist_ok=True)
    (beside / FIGURES).write_text(as_json(results, facts), encoding="utf-8")
    results = with_path(results)
    drawn = directory / "_build" / BESIDE
    drawn.mkdir(parents=True, exist_ok=True)
    charts.draw(results, facts, drawn)
    text = "\n".join(lines(results, facts))
    (directory / PAGE).write_text(text + "\n", encoding="utf-8")


def lines(results: Results, facts: Facts) -> Iterator[str]:
    """Yields the lines of the page.

    Args:
        results: Results with the sums that ``with_path`` adds.
        facts: Facts of the run.
    """
    sections, tables = Sections(results, facts), Tables(results, facts)
    yield from sections.head(f"{BESIDE}/{FIGURES}")
    yield from sections.glance()
    yield from sections.targets()
    yield from sections.method()
    for group in GROUPS:
        yield from tables.group(group)
    yield from sections.contenders()
    yield from sections.gaps()


def read(figures: Path) -> tuple[Results, Facts]:
    """Returns what ``write`` has written as raw figures, so that the page can be written again."""
    found = json.loads(figures.read_text(encoding="utf-8"))
    samples = [
        Sample(**{**fields, "value": inf if fields["value"] is None else fields["value"]})
        for fields in found["samples"]
    ]
    facts = found["facts"]
    entrants = [Entrant(**fields) for fields in facts.pop("contenders")]
    date, notes = datetime.fromisoformat(facts.pop("date")), tuple(facts.pop("notes"))
    # Figures of before a measure was there have no numbers for its text.
    facts["numbers"] = {**numbers(Scale()), **facts["numbers"]}
    run = Facts(**facts, contenders=entrants, date=date, notes=notes)
    return Results(samples, [Gap(**fields) for fields in found["gaps"]]), run


def as_json(results: Results, facts: Facts) -> str:
    """Returns all samples, gaps and facts. An infinite value, of a task that did not begin, becomes null."""
    found = results.as_dict()
    parts = {name: ",\n  ".join(map(_json, found[name])) for name in ("samples", "gaps")}
    listed = ",\n".join(f'"{name}": [\n  {part}\n]' for name, part in parts.items())
    return f'{{\n"facts": {_json(facts.as_dict())},\n{listed}\n}}\n'


def _json(value: dict[str, Any]) -> str:
    plain = {name: _plain(item) if isinstance(item, float) else item for name, item in value.items()}
    return json.dumps(plain, ensure_ascii=False, allow_nan=False)


def _plain(value: float) -> float | None:
    """Returns a value with six significant digits."""
    return float(f"{value:.6g}") if isfinite(value) else None
