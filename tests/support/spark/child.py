"""Spark jobs in a process of their own, which a test may kill, or whose Spark is another than that of the tests.

Run as ``python -m tests.support.spark.child JSON``, with an object that has the arguments of ``run``.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from celery_ext.spark import promote
from tests.support.spark import session
from tests.support.spark.jobs import append_stepped, beside, write_table
from tests.support.spark.stepped import Journal


class Broker(NamedTuple):
    """Address of a test's server."""

    url: str
    port: int


@contextmanager
def running(directory: Path, **arguments: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Starts the process, whose log is the file ``log`` in the directory. It is killed at the end."""
    directory.mkdir()
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.spark.child", json.dumps({"directory": str(directory), **arguments})],
            cwd=session.ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(20)


def run(
    directory: str,
    port: int,
    jobs: Sequence[Mapping[str, Any]],
    master: str = "local[4,4]",
    promotions: Sequence[Mapping[str, Any]] = (),
    conf: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Notes the process id of its JVM in the journal, and runs jobs side by side.

    Args:
        directory: For files of Spark.
        port: Port of the broker, which has the journal, too.
        jobs: ``rows`` and ``partitions`` of each, ``step`` before its writer, and ``options`` of the data source.
        master: Master URL of Spark.
        conf: Further settings of Spark.
        promotions: Arguments of ``promote`` beside the jobs, and ``rows`` that are first written to the table.
    """
    journal = Journal(port)
    spark = session.start(Path(directory), master, conf)
    journal.note(f"jvm {spark.sparkContext._gateway.proc.pid}")  # type: ignore[union-attr]
    broker = Broker(f"redis://127.0.0.1:{port}/0", port)
    with ExitStack() as stack:
        written: list[Future[Any]] = [
            stack.enter_context(
                beside(
                    spark,
                    append_stepped,
                    spark.range(0, job["rows"], 1, job["partitions"]),
                    broker,
                    job["step"],
                    **job["options"],
                )
            )
            for job in jobs
        ]
        for promotion in promotions:
            given = {"broker_url": broker.url, **promotion, "until": datetime.max.replace(tzinfo=UTC)}
            write_table(spark, given["table"], range(given.pop("rows")))
            written.append(stack.enter_context(beside(spark, promote, spark, **given)))
        for future in written:
            future.result()
    session.stop(spark)


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
