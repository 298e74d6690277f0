"""Work on a far tier from the shell, such as from cron: ``python -m celery_ext.spark promote PATH``."""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from celery_ext.spark.errors import InvalidSparkOption
from celery_ext.spark.option_parsers import moment
from kombu_delayq.errors import DelayqError

#: Options of the data source that name the broker.
_BROKER = ("broker_url", "broker_url_env", "celery_app")


def main(given: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        given: The command line, by default that of the process.

    Returns:
        The exit code: 0 when all is done, 1 when something failed, which stderr says.
    """
    arguments = vars(_parser().parse_args(given))
    command = arguments.pop("command")
    try:
        for line in command(**arguments):
            print(line)
    except DelayqError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if error.name not in ("pyspark", "pyarrow"):
            raise
        print(f"Error: {error.name} is missing: pip install 'kombu-delayq[spark]'", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m celery_ext.spark", description="Works on a far tier: the folder of the option far."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command, about in (
        (_promote, "load what is due soon into Redis; starts Spark"),
        (_cancel, "cancel tasks in the folder and in Redis; their ids come from stdin, one on each line"),
        (_status, "show how many tasks are due in which hour, and which hours are being promoted"),
        (_vacuum, "remove files that nobody needs"),
    ):
        one = commands.add_parser(command.__name__.strip("_"), help=about, description=about)
        one.set_defaults(command=command)
        one.add_argument("path", help="folder or URL of the far tier")
        if command in (_promote, _cancel):
            for option in _BROKER:
                one.add_argument(f"--{option.replace('_', '-')}", metavar="VALUE", help=f"as the option {option}")
        if command is _promote:
            one.add_argument("--before", metavar="TIME", type=_moment, help="ISO 8601; default: in two hours")
    return parser


def _moment(text: str) -> datetime:
    try:
        return moment(text)
    except ValueError as reason:
        raise argparse.ArgumentTypeError(str(reason)) from None


def _promote(path: str, before: datetime | None, **broker: Any) -> list[str]:
    from celery_ext.spark import promote

    _check(broker)
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    spark = running or SparkSession.builder.appName("delayq promote").getOrCreate()
    try:
        done = promote(spark, path, before, **broker)
    finally:
        if running is None:
            spark.stop()
    counts = f"{done.sent:,} sent, {done.repeated:,} sent before, {done.cancelled:,} cancelled"
    return [f"promoted {done.rows:,} rows of {len(done.hours)} hours: {counts}"]


def _cancel(path: str, **broker: Any) -> list[str]:
    from celery_ext.spark import cancel

    _check(broker)
    words = Counter(cancel(path, [line.strip() for line in sys.stdin if line.strip()], **broker).values())
    return [f"{count:,} {word}" for word, count in sorted(words.items())]


def _status(path: str) -> list[str]:
    from celery_ext.spark.far.tier import FarTier

    hours: Counter[str] = Counter()
    begun: Counter[str] = Counter()
    for unit in FarTier.of(path).units():
        hours[unit.hour] += unit.rows
        begun[unit.hour] += unit.is_begun
    lines = [f"{hour}  {rows:>12,}{'  being promoted' if begun[hour] else ''}" for hour, rows in sorted(hours.items())]
    return [*lines, f"{sum(hours.values()):,} rows in {len(hours)} hours; cancelled ones count until they are promoted"]


def _vacuum(path: str) -> list[str]:
    from celery_ext.spark import vacuum

    done = vacuum(path)
    return [
        f"removed {done.orphans:,} files of jobs that failed, {done.promoted:,} that are promoted, "
        f"{done.tombstones:,} of cancels; forgot {done.manifests:,} jobs"
    ]


def _check(broker: dict[str, Any]) -> None:
    if not any(broker.values()):
        raise InvalidSparkOption("which broker? Give --broker-url, --broker-url-env or --celery-app")


if __name__ == "__main__":
    sys.exit(main())
