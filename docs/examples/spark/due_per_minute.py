"""Plots how many tasks are due in each minute of the next day: ``python due_per_minute.py BROKER PNG``.

Needs matplotlib beside what ``kombu-delayq[spark]`` installs.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from celery_ext.spark import register

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
#: So many tasks have a colour of their own; the others share one.
COLOURS = ("#3b6fb6", "#e0853d", "#4f9d69", "#b5485d", "#8a6fb0", "#7d7d7d")
#: What has no name, because it is no task or cannot be read, and what has no colour.
NAMELESS, OTHERS = "no task", "other tasks"

#: By name of the task, how many are due in each minute, the first minute first.
Counts = dict[str, list[int]]


def due_per_minute(spark: SparkSession, broker: str, begin: datetime, **options: str) -> DataFrame:
    """Counts what is due within a day.

    Args:
        spark: A session in which the format ``celery`` is registered.
        broker: URL of the broker.
        begin: Of the day, with a zone.
        **options: Further options of the data source.

    Returns:
        ``minute``, ``task`` and ``count``, for minutes and tasks of which something is due.
    """
    waiting = (
        spark.read.format("celery")
        .options(broker_url=broker, columns="due,task", **options)  # so that no arguments are parsed
        .options(due_after=begin.isoformat(), due_before=(begin + DAY).isoformat())
        .load()
    )
    minute = sf.date_trunc("minute", "due").alias("minute")
    return waiting.groupBy(minute, sf.coalesce("task", sf.lit(NAMELESS)).alias("task")).count()


def by_task(counts: DataFrame, begin: datetime) -> Counts:
    """Collects counts, those of the task that has most first; the rest becomes one."""
    rows = [(row["task"], (row["minute"].astimezone(UTC) - begin) // MINUTE, row["count"]) for row in counts.collect()]
    totals: Counter[str] = Counter()
    for task, _, count in rows:
        totals[task] += count
    named = [task for task, _ in totals.most_common(len(COLOURS) if len(totals) <= len(COLOURS) else len(COLOURS) - 1)]
    found = {task: [0] * (DAY // MINUTE) for task in (named if len(named) == len(totals) else [*named, OTHERS])}
    for task, at, count in rows:
        found[task if task in named else OTHERS][at] += count
    return found


def plot(counts: Counts, begin: datetime, path: Path) -> None:
    """Draws the tasks of each minute on top of each other, and the total of each in the legend."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import dates, pyplot

    minutes = [begin + at * MINUTE for at in range(DAY // MINUTE)]
    figure, axes = pyplot.subplots(figsize=(12, 5), layout="constrained")
    if counts:
        labels = [f"{task}  {sum(each):,}" for task, each in counts.items()]
        axes.stackplot(minutes, *counts.values(), labels=labels, colors=COLOURS, step="post", linewidth=0)
        handles, texts = axes.get_legend_handles_labels()
        axes.legend(handles[::-1], texts[::-1], loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    total, most = sum(map(sum, counts.values())), max(map(sum, zip(*counts.values(), strict=True)), default=0)
    axes.set_title(f"{total:,} tasks due within a day, {most:,} in the fullest minute", loc="left", pad=12)
    axes.set_ylabel("due in a minute")
    axes.set_xlim(begin, begin + DAY)
    axes.set_ylim(0, max(most, 1) * 1.05)
    axes.xaxis.set_major_locator(dates.HourLocator(range(0, 24, 3), tz=UTC))
    axes.xaxis.set_minor_locator(dates.HourLocator(tz=UTC))
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(axes.xaxis.get_major_locator(), tz=UTC))
    axes.set_xlabel("UTC")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def draw(spark: SparkSession, broker: str, path: Path) -> None:
    """Plots the day that begins with this minute."""
    begin = datetime.now(UTC).replace(second=0, microsecond=0)
    plot(by_task(due_per_minute(spark, broker, begin), begin), begin, path)


def main(arguments: Iterable[str]) -> None:
    """Reads the broker, and writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("broker", help="URL of the broker, such as redis://localhost:6379/0")
    parser.add_argument("png", type=Path, help="file to write")
    given = parser.parse_args(list(arguments))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    register(spark)
    try:
        draw(spark, given.broker, given.png)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
