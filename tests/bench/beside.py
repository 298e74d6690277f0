"""Measures this checkout beside an earlier commit, in turns: ``python -m tests.bench.beside COMMIT --only publish``."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import click

from tests.support import ROOT


@click.command()
@click.argument("commit")
@click.option("--only", multiple=True, default=["publish", "transfer", "consume"], help="As for tests.bench.targets.")
@click.option("--rounds", default=3, help="How often each of the two is measured.")
@click.option("--whole", is_flag=True, help="The sizes of `make bench-targets` instead of those of its QUICK=1.")
def main(commit: str, only: tuple[str, ...], rounds: int, whole: bool) -> None:
    """Prints the medians of COMMIT and of this checkout, and what this one has of the other.

    Each measures itself by its own tests.bench.targets, over the same packages and the same Redis.
    """
    found: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    units: dict[str, str] = {}
    with TemporaryDirectory(prefix="delayq-beside-") as folder:
        before = Path(folder) / "before"
        before.mkdir()
        archive = subprocess.run(["git", "-C", ROOT, "archive", commit], capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", before], input=archive, check=True)
        for turn in range(rounds):
            for at, checkout in enumerate((before, ROOT)):
                click.echo(f"round {turn + 1} of {rounds}: {'this checkout' if at else commit}", err=True)
                for figure in _measured(checkout, only, Path(folder) / "figures.json", whole=whole):
                    found[figure["measure"]][at].append(figure["value"])
                    units[figure["measure"]] = figure["unit"]
    click.echo(f"{'measure':<70} {'before':>12} {'now':>12} {'now / before':>14}")
    for measure, (then, now) in found.items():
        if then and now:
            values = median(then), median(now)
            ratio = f"{values[1] / values[0]:.3f}" if values[0] else "-"
            click.echo(f"{measure:<70} {values[0]:>12,.2f} {values[1]:>12,.2f} {ratio:>14} {units[measure]}".rstrip())


def _measured(checkout: Path, only: tuple[str, ...], out: Path, *, whole: bool) -> list[dict[str, Any]]:
    options = [word for name in only for word in ("--only", name)] + ([] if whole else ["--quick"])
    command = [sys.executable, "-m", "tests.bench.targets", *options, "--json", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    subprocess.run(command, cwd=checkout, env=environment, stdout=subprocess.DEVNULL, check=True)
    figures: list[dict[str, Any]] = json.loads(out.read_text())["figures"]
    return figures


if __name__ == "__main__":
    main(prog_name="python -m tests.bench.beside")
