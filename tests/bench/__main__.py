"""Compares kombu-delayq with the alternatives, and writes the documentation's page about it."""

import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

import click

from tests.bench import facts, page
from tests.bench.contender import ROOT
from tests.bench.entrants import EVERYONE
from tests.bench.facts import Entrant, Facts
from tests.bench.schedule import QUICK, Run, Scale

NAMES = [contender.name for contender in EVERYONE]


@click.command(epilog="It ends by itself within 30 minutes, the quick one within 3. Exit code 1: something failed.")
@click.option("--quick", is_flag=True, help="Small sizes: 3 minutes, and rough figures.")
@click.option("--only", multiple=True, type=click.Choice(NAMES), help="Only this contender; may be repeated.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write into this directory.  [default: docs; for a quick run or a part, build/bench]",
)
@click.option(
    "--again",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Measure nothing: write the page once more from the raw figures in this file, into its parent's directory.",
)
def main(quick: bool, only: tuple[str, ...], output: Path | None, again: Path | None) -> None:
    """Gives every contender the same work, in turn, and writes the results.

    Every measure starts servers of its own and ends them. A contender that cannot run here is named with the reason.
    Run it on a machine with nothing else to do.
    """
    if again is not None:
        page.write(*page.read(again), output or again.parents[1])
        return
    date, begun = datetime.now(UTC), monotonic()
    chosen = [contender for contender in EVERYONE if not only or contender.name in only]
    entrants = [Entrant.of(contender) for contender in chosen]
    for entrant in entrants:
        click.echo(f"{entrant.name}: {entrant.why_not or ', '.join(map(' '.join, entrant.versions.items()))}")
    able = [contender for contender, entrant in zip(chosen, entrants, strict=True) if not entrant.why_not]
    scale = QUICK if quick else Scale()
    run = Run(able, scale, click.echo)
    run.run()
    directory = output or (ROOT / "build" / "bench" if quick or only else ROOT / "docs")
    command = "make bench-quick" if quick else "make bench"
    if only:
        command = shlex.join(["python", "-m", "tests.bench", *sys.argv[1:]])
    about = Facts(facts.machine(), entrants, date, command, monotonic() - begun, facts.numbers(scale), quick)
    page.write(run.results, about, directory)
    click.echo(f"{directory / 'benchmarks.md'}, after {(monotonic() - begun) / 60:.1f} minutes")
    failed = [gap for gap in run.results.gaps if gap.failed]
    for gap in failed:
        click.echo(f"{gap.contender}, {gap.measure or 'backlog'} {gap.size or ''}: {gap.why}", err=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main(prog_name="python -m tests.bench")
