"""procrastinate on PostgreSQL."""

from tests.bench.contender import Contender
from tests.bench.everyone.commands import python, versions
from tests.bench.postgres import PostgresServer, no_postgres, postgres_version

PROGRAM = "tests.bench.contenders.procrastinate_"


def _schema() -> str:
    from procrastinate.schema import SchemaManager

    return SchemaManager.get_schema()


PROCRASTINATE = Contender(
    name="procrastinate",
    versions=lambda: {**versions("procrastinate", "psycopg"), "PostgreSQL": postgres_version()},
    producer=python(PROGRAM),
    worker=python("procrastinate", f"--app={PROGRAM}.app", "--log-level=error", "worker"),
    consumers=python("tests.bench.contenders.forked", PROGRAM),
    alone=python("procrastinate", f"--app={PROGRAM}.app", "--log-level=error", "worker", "--concurrency=10"),
    alone_settings="`--concurrency=10`",
    settings=(
        "`procrastinate worker` with its defaults: one task at a time, in a thread; it looks at what is due every 5 s. "
        "Bulk: `batch_defer_jobs`, for `batch_defer` takes one due time for all. A job that has run or been cancelled "
        "stays in its table. PostgreSQL with default settings, which wait for the disk at each commit and allow "
        "100 connections, of which a worker opens 5"
    ),
    server=lambda: PostgresServer(_schema),
    counts=False,
    most_consumers=19,
    heavy=True,
    why_not=no_postgres,
)
