"""Measures what kombu-delayq promises, on a private Redis, and prints the figures next to the targets."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets import (
    asynchronous,
    batch,
    burst,
    cancel,
    capacity,
    cluster,
    counting,
    journal,
    lighter,
    publish,
    serve,
    serve_page,
    single,
    transfer,
    waiting,
)
from tests.bench.targets.capacity import check
from tests.bench.targets.consume import begun, idle, latency, rates
from tests.bench.targets.failover import leaders
from tests.bench.targets.report import Figure, heading, machine

ROOMS: dict[str, Callable[[PrivateRedis, bool], Iterator[Figure]]] = {
    "transfer": transfer.measure,
    "lighter": lighter.measure,
    "counting": counting.measure,
    "waiting": waiting.measure,
    "cancel": cancel.measure,
    "burst": burst.measure,
    "publish": publish.measure,
    "single": single.measure,
    "batch": batch.measure,
    "asynchronous": asynchronous.measure,
    "consume": rates.measure,
    "idle": idle.measure,
    "latency": latency.measure,
    "begun": begun.measure,
    "leaders": leaders.measure,
    "serve": serve.measure,
    "page": serve_page.measure,
    "journal": journal.measure,
    "cluster": cluster.measure,
    "capacity": capacity.measure,
    "predicted": check.measure,
}


@click.command()
@click.option("--quick", is_flag=True, help="Smaller sizes: a minute or two, and rougher figures.")
@click.option("--only", multiple=True, type=click.Choice(list(ROOMS)), help="Only this measure; may be repeated.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write this file.")
@click.option("--write", type=click.Path(dir_okay=False, path_type=Path), help="Write what capacity.py reckons with.")
def main(quick: bool, only: tuple[str, ...], json_file: Path | None, write: Path | None) -> None:
    """Prints each measure with its target and whether it is met.

    Every measure starts a private Redis and ends it. Messages are task messages of 1,000 bytes, or of about this size
    where Celery makes them. A measure that depends on the form of backup is taken for both forms, `hash` and `list`.
    Run it on a machine with nothing else to do.
    """
    with PrivateRedis() as server:
        about = machine(server.client())
    click.echo(", ".join(f"{name} {value}" for name, value in about.items()))
    click.echo(f"{'quick run; ' if quick else ''}1 KB messages; Redis without persistence\n\n{heading()}")
    figures = []
    for name in only or ROOMS:
        before = len(figures)
        with PrivateRedis() as server:
            for figure in ROOMS[name](server, quick):
                figures.append(figure)
                click.echo(figure.line())
        if len(figures) == before:
            click.echo(f"{name}: cannot be measured here: it needs kombu 5.7")
    _notes(figures)
    if write:
        capacity.write(figures, about, write)
    if json_file:
        report = {"machine": about, "quick": quick, "figures": [figure.as_dict() for figure in figures]}
        json_file.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")


def _notes(figures: list[Figure]) -> None:
    click.echo("")
    for figure in figures:
        if figure.note:
            click.echo(f"{figure.measure}: {figure.note}")
    missed = [figure.measure for figure in figures if figure.met is False]
    click.echo(f"\n{len(missed)} of {sum(figure.met is not None for figure in figures)} targets missed")


if __name__ == "__main__":
    main(prog_name="python -m tests.bench.targets")
