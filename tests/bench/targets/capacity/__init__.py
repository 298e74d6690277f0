"""What messages, workers and connections cost Redis: the constants with which ``docs/capacity.py`` reckons."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets.capacity import commands, memory, workers
from tests.bench.targets.capacity.constants import Constant
from tests.bench.targets.report import Figure


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Measures all of them, most of them with and without hash slots."""
    yield from memory.measure()
    yield from commands.measure(quick)
    yield from workers.measure(quick)


def write(figures: Iterable[Figure], about: Mapping[str, Any], file: Path) -> None:
    """Writes the constants among some figures.

    Args:
        figures: The figures of a run.
        about: The machine.
        file: The file, which is replaced.
    """
    found: dict[str, Any] = {"machine": dict(about)}
    for figure in figures:
        if isinstance(figure, Constant):
            *above, last = figure.path
            place = found
            for name in above:
                place = place.setdefault(name, {})
            place[last] = [float(f"{number:.4g}") for number in figure.numbers]
            if len(figure.numbers) == 1:
                [place[last]] = place[last]
    file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
