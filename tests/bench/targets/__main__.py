"""Measures what kombu-delayq promises, beside stock Celery, and prints the figures next to the targets."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets import (
    back,
    consume,
    deaths,
    failover,
    flood,
    limits,
    memory,
    periodic,
    publish,
    running,
    scale,
    serve,
    size,
    spark,
    transfer,
)
from tests.bench.targets.report import Figure, heading, machine

MEASURES: dict[str, Callable[[PrivateRedis, bool], Iterator[Figure]]] = {
    "publish": publish.measure,
    "transfer": transfer.measure,
    "consume": consume.measure,
    "memory": memory.measure,
    "return": back.measure,
    "deaths": deaths.measure,
    "failover": failover.measure,
    "periodic": periodic.measure,
    "flood": flood.measure,
    "limits": limits.measure,
    "running": running.measure,
    "scale": scale.measure,
    "serve": serve.measure,
    "size": size.measure,
    "spark": spark.measure,
}


@click.command()
@click.option("--quick", is_flag=True, help="Smaller sizes: a few minutes, and rougher figures.")
@click.option("--only", multiple=True, type=click.Choice(list(MEASURES)), help="Only this measure; may be repeated.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write this file.")
def main(quick: bool, only: tuple[str, ...], json_file: Path | None) -> None:
    """Prints each measure with its target and whether it is met.

    Every measure starts a private Redis and ends it. Messages are task messages of 1,000 bytes, or of about this size
    where Celery makes them. Run it on a machine with nothing else to do.
    """
    about = machine()
    click.echo(", ".join(f"{name} {value}" for name, value in about.items()))
    click.echo(f"\n{heading()}")
    figures = []
    for name in only or MEASURES:
        with PrivateRedis() as server:
            for figure in MEASURES[name](server, quick):
                figures.append(figure)
                click.echo(figure.line())
    click.echo("")
    for figure in figures:
        if figure.note:
            click.echo(f"{figure.measure}: {figure.note}")
    missed = [figure.measure for figure in figures if figure.met is False]
    click.echo(f"\n{len(missed)} of {sum(figure.met is not None for figure in figures)} targets missed")
    if json_file:
        report = {"machine": about, "quick": quick, "figures": [figure.as_dict() for figure in figures]}
        json_file.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(prog_name="python -m tests.bench.targets")
