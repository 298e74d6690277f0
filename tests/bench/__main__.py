"""Compares kombu-delayq with the alternatives: ``make bench``."""

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import click

from tests.bench import figures, jobs
from tests.bench.contender import Contender
from tests.bench.entrants import EVERYONE
from tests.bench.figures import FIGURES, PAGE, Figure
from tests.bench.targets.report import machine

NAMES = [contender.name for contender in EVERYONE]
#: A job is ended after so long, in s.
PATIENCE_S = 300.0


class Scale(NamedTuple):
    """How large a run is.

    Attributes:
        sizes: Backlogs.
        per_s: Tasks that come due a second at random times.
        seconds: For how long.
        burst: Tasks that come due in one instant.
        alone: Tasks that wait for a worker that is one process.
        grown: Tasks that wait while a worker's memory is measured.
        consumers: Numbers of idle consumers.
    """

    sizes: tuple[int, ...] = (5_000,)
    per_s: int = 100
    seconds: int = 10
    burst: int = 2_000
    alone: int = 5_000
    grown: int = 2_000
    consumers: tuple[int, ...] = (1, 3, 100)


QUICK = Scale((2_000,), seconds=4, burst=500, alone=1_000, grown=1_000, consumers=(1,))


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes: a few minutes, and rough figures.")
@click.option("--only", multiple=True, type=click.Choice(NAMES), help="Only this contender; may be repeated.")
@click.option("--output", type=click.Path(path_type=Path), help="File of the figures.  [default: with all: the page's]")
def main(quick: bool, only: tuple[str, ...], output: Path | None) -> None:
    """Gives every contender the same work, in turn, and writes the figures and the tables of the page.

    Every measure starts servers of its own and ends them. Run it on a machine with nothing else to do. Exit code 1:
    something failed.
    """
    chosen = [contender for contender in EVERYONE if not only or contender.name in only]
    missing = {contender.name: contender.why_not() or "" for contender in chosen}
    facts = {"machine": machine(), "date": datetime.now(UTC).date().isoformat(), "contenders": []}
    for contender in chosen:
        why_not = missing[contender.name]
        about = {"name": contender.name, "versions": {} if why_not else contender.versions()}
        facts["contenders"].append({**about, "settings": contender.settings, "why_not": why_not})
    found = []
    for figure in measured(
        [contender for contender in chosen if not missing[contender.name]], QUICK if quick else Scale()
    ):
        found.append(figure)
        click.echo(f"{figure.contender}, {figure.measure} {figure.size or ''}: {figure.why or f'{figure.value:,.4g}'}")
    file = output or (figures.ROOT / "build" / "bench" / "figures.json" if quick or only else FIGURES)
    figures.write(found, facts, file)
    click.echo("\n".join(figures.tables(figures.read(file))))
    click.echo(f"{file}; make reference writes the tables of {PAGE.name}" if file == FIGURES else str(file))
    sys.exit(any(figure.failed for figure in found))


def measured(contenders: list[Contender], scale: Scale) -> Iterator[Figure]:
    """Runs all jobs and yields their figures; what fails is a figure with its reason."""
    for measure, size, work in _plan(scale):
        for contender in contenders:
            try:
                yield from work(contender, deadline=monotonic() + PATIENCE_S)
            except Exception as error:  # a program of any contender, or its server: the others go on
                yield Figure(measure, contender.name, size, why=f"{type(error).__name__}: {error}", failed=True)


def _plan(scale: Scale) -> Iterator[tuple[str, int, Callable[..., Iterator[Figure]]]]:
    for size in scale.sizes:
        yield "", size, partial(jobs.backlog, size=size)
    for measure, count, seconds in (("spread", scale.per_s * scale.seconds, scale.seconds), ("burst", scale.burst, 0)):
        yield measure, 0, partial(jobs.lateness, measure=measure, count=count, seconds=seconds)
    yield "alone", 0, partial(jobs.alone, count=scale.alone)
    yield "worker", 0, partial(jobs.growth, count=scale.grown)
    for count in scale.consumers:
        yield "idle", count, partial(jobs.idle, count=count)


if __name__ == "__main__":
    main(prog_name="python -m tests.bench")
