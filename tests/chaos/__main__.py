"""Runs a fleet under random faults, and tells what became of each task."""

import random
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import click

from tests.chaos.brokers.behind_sentinel import SentinelRedis
from tests.chaos.brokers.clustered import ClusterRedis
from tests.chaos.brokers.journaled import JournaledRedis
from tests.chaos.brokers.single import SingleRedis
from tests.chaos.fleet.posts import Plan
from tests.chaos.fleet.setup import SPREAD
from tests.chaos.record import RECORD, note, recorded
from tests.chaos.report import lines
from tests.chaos.run import Chaotic
from tests.support import ROOT


@click.command()
@click.option("--seconds", type=float, default=180.0, show_default=True, help="How long publishers publish.")
@click.option("--hours", type=float, help="The same in hours.")
@click.option("--seed", type=int, help="Seed of the faults; by default a random one, which the report names.")
@click.option("--every", "every_s", default=1.5, show_default=True, help="Mean pause between two faults, in s.")
@click.option("--consume", default="reliable", show_default=True, type=click.Choice(["reliable", "brpop"]))
@click.option("--ours-only", is_flag=True, help="Without stock workers and stock publishers.")
@click.option("--sentinel", is_flag=True, help="A primary with replicas and Sentinels, which fail over.")
@click.option("--cluster", is_flag=True, help="A Redis Cluster of three primaries with a replica each.")
@click.option(
    "--journal/--no-journal",
    "journal",
    default=None,
    help="With a journal in PostgreSQL, which restarts, and a Redis that loses its data. By default one run in four.",
)
@click.option("--rate", default=300.0, show_default=True, help="Tasks per second of each publisher at most.")
@click.option("--publishers", default=2, show_default=True, help="Publishers of ours.")
@click.option("--lease", "lease_s", default=5.0, show_default=True, help="Lease of a consumer, in s.")
@click.option(
    "--tasks",
    type=int,
    help="Goes on with runs of the next seeds until their record has so many tasks. Keeps ledgers of bad runs only.",
)
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"Adds each run to this file; with --tasks by default to {RECORD.relative_to(ROOT)}.",
)
@click.option("--directory", type=click.Path(file_okay=False, path_type=Path), help="Where ledger and logs are kept.")
def main(
    seconds: float,
    hours: float | None,
    seed: int | None,
    every_s: float,
    consume: str,
    ours_only: bool,
    sentinel: bool,
    cluster: bool,
    journal: bool | None,
    rate: float,
    publishers: int,
    lease_s: float,
    tasks: int | None,
    record: Path | None,
    directory: Path | None,
) -> None:
    """Runs a fleet under random faults, and tells what became of each task.

    The exit code is 1 if a task of ours was lost, early or stuck, ran twice without a reason, or if something is left.
    """
    record = record or (RECORD if tasks else None)
    seed = random.randrange(10**6) if seed is None else seed
    journal = seed % 4 == 0 and not (sentinel or cluster) if journal is None else journal
    given = {"stock_pools": ()} if ours_only or journal or cluster else {}
    plan = Plan(
        seed=seed,
        seconds=hours * 3600 if hours else seconds,
        every_s=every_s,
        consume=consume,
        lease_s=lease_s,
        rate=rate,
        publishers=publishers,
        sentinel=sentinel,
        cluster=cluster,
        journal=journal,
        **given,
    )
    while True:
        folder = directory / str(plan.seed) if directory and tasks else directory
        folder = folder or Path(tempfile.mkdtemp(prefix="delayq-chaos-"))
        is_bad = _run(plan, folder, record)
        if tasks is None or is_bad:
            sys.exit(is_bad)
        done = recorded(plan, record)
        click.echo(f"{done:,} of {tasks:,} tasks are on record\n")
        if done >= tasks:
            return
        shutil.rmtree(folder)
        plan = replace(plan, seed=plan.seed + 1)


def _run(plan: Plan, directory: Path, record: Path | None) -> bool:
    """Runs a plan, and adds it to the record. Returns whether anything was wrong."""
    directory.mkdir(parents=True, exist_ok=True)
    click.echo(f"seed {plan.seed}; ledger and logs are in {directory}")
    with _broker(plan, directory) as broker:
        outcome = Chaotic(plan, broker, directory, click.echo).run()
    click.echo("\n".join(lines(outcome)))
    if record:
        note(outcome, directory, record)
    return any(outcome.wrong().values())


def _broker(plan: Plan, directory: Path) -> SingleRedis:
    if plan.cluster:
        return ClusterRedis(directory, SPREAD, plan.seed)
    return (SentinelRedis if plan.sentinel else JournaledRedis if plan.journal else SingleRedis)(directory)


if __name__ == "__main__":
    main(prog_name="python -m tests.chaos")
