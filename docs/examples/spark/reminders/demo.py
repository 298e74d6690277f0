"""A year of reminders in a table, and those of today in Redis and workers: ``python demo.py``.

Starts a private Redis, two Celery workers and Spark. Writes the reminders, promotes today's hour, cancels some of it
before and after, and waits until the workers have run it. Exit code 0 means that each reminder of today ran once, and
no other.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import quantiles
from time import monotonic, sleep
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))  # for processes and session

try:
    import processes
    import reminders
    import session
    from pyspark.sql import SparkSession

    from celery_ext.demo.private_redis import NoRedisServer, PrivateRedis
except ModuleNotFoundError as error:
    sys.exit(f"There is no {error.name} in this Python. Install it: pip install 'kombu-delayq[embedded,spark]'")

#: Over how long the first reminders are due.
WITHIN = timedelta(minutes=1)
#: How late the last reminder may be, in s.
PATIENCE_S = 120.0
#: When the first reminder is due, in s from when they are scheduled, or in times of a query of the whole table, if that
#: is later. By then they are promoted, and the latest cancels have come, also on a slow machine.
READY_S, READY_QUERIES = 90.0, 10
#: From the first reminders to the others.
PAUSE = timedelta(hours=3)
#: One car in so many is sold before the promotion, and as many after it.
SOLD = 200
#: Settings with which Spark has tables of Delta Lake.
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


@dataclass
class Outcome:
    """What came of a run.

    Attributes:
        figures: What was measured, by what it is.
        expected: Cars that had to be reminded.
        sent: How often each car was reminded.
        late_ms: How late each reminder was.
    """

    figures: dict[str, str] = field(default_factory=dict)
    expected: set[int] = field(default_factory=set)
    sent: Counter[int] = field(default_factory=Counter)
    late_ms: list[float] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """What should not be, each in words; empty when all is well."""
        found = {
            "reminders were not sent": len(self.expected - self.sent.keys()),
            "reminders were sent that were cancelled, or not due": len(self.sent.keys() - self.expected),
            "reminders were sent more than once": sum(times > 1 for times in self.sent.values()),
            "reminders were sent early": sum(late < 0 for late in self.late_ms),
        }
        return [f"{count:,} {what}" for what, count in found.items() if count]


class Demo:
    """One run.

    Args:
        server: A running private Redis.
        directory: For all that is written.
        spark: The session.
        rows: Number of reminders.
        first: How many of them are due in the first minute.
        days: Over how many days the others are due.
        how: How they are written, as in ``reminders.schedule``.
    """

    def __init__(
        self, server: PrivateRedis, directory: Path, spark: SparkSession, rows: int, first: int, days: int, **how: bool
    ) -> None:
        self._server = server
        self._client = server.client()
        self._directory = directory
        self._spark = spark
        self._rows = rows
        self._first = first
        self._days = days
        self._how = how
        self._table, self._sold = str(directory / "table"), str(directory / "sold")
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Runs the demo."""
        os.environ.update(GARAGE_BROKER=self._server.url, GARAGE_DIRECTORY=str(self._directory))
        with processes.workers(("alice", "bob"), self._directory, HERE, reminders.TASK["queue"]) as workers:
            for worker in workers:
                worker.await_ready()
            self._schedule_year()
            self._look()
            self._schedule_first()
            self._sell(0, "before")
            self._promote()
            self._sell(SOLD // 2, "after")
            self._await_sent()
        return self._outcome

    def _schedule_year(self) -> None:
        begin, count = datetime.now(UTC) + PAUSE, self._rows - self._first
        year = reminders.of_cars(
            self._spark, reminders.FIRST_CAR + self._first, count, begin, timedelta(days=self._days) - PAUSE
        )
        began = monotonic()
        reminders.schedule(year, self._table, **self._how)
        took = monotonic() - began
        files = [file for file in Path(self._table).rglob("*") if file.is_file() and file.suffix != ".crc"]
        size = sum(file.stat().st_size for file in files)
        self._tell("reminders written", f"{count:,} in {took:.1f} s, {count / took:,.0f} a second")
        self._tell("files", f"{len(files):,}, {size / 1e6:,.1f} MB, {size / count:.1f} bytes a reminder")

    def _schedule_first(self) -> None:
        self._begin = datetime.now(UTC) + timedelta(seconds=max(READY_S, READY_QUERIES * self._query_s))
        first = reminders.of_cars(self._spark, reminders.FIRST_CAR, self._first, self._begin, WITHIN)
        reminders.schedule(first, self._table, **self._how)
        cars = range(reminders.FIRST_CAR, reminders.FIRST_CAR + self._first)
        self._outcome.expected = {car for car in cars if car % (SOLD // 2)}

    def _sell(self, rest: int, when: str) -> None:
        cars = self._spark.range(reminders.FIRST_CAR, reminders.FIRST_CAR + self._first).withColumnRenamed("id", "car")
        began = monotonic()
        count = reminders.sell(cars.where(f"car % {SOLD} = {rest}"), self._table, self._sold, self._server.url)
        self._tell(f"sold {when} the promotion", f"{count:,} cancelled in Redis, in {monotonic() - began:.1f} s")

    def _look(self) -> None:
        began = monotonic()
        table = self._spark.read.format("delta" if self._how.get("is_delta") else "parquet").load(self._table)
        days = table.selectExpr("date(eta) AS day")
        counts = [row["count"] for row in days.groupBy("day").count().collect()]
        self._query_s = took = monotonic() - began
        self._tell("reminders that wait, by a query", f"{sum(counts):,} on {len(counts)} days, in {took:.1f} s")

    def _promote(self) -> None:
        before = self._memory()
        began = monotonic()
        done = reminders.promote(self._spark, self._table, self._sold, self._server.url, self._begin + WITHIN)
        took = monotonic() - began
        self._tell("reminders promoted to Redis", f"{done.sent:,} in {took:.1f} s, {done.sent / took:,.0f} a second")
        if done.sent:
            each = (self._memory() - before) / done.sent
            self._tell("memory of Redis for these", f"{each:,.0f} bytes a reminder")
            self._tell("for all reminders it would be", f"{each * self._rows / 1e9:,.1f} GB")

    def _await_sent(self) -> None:
        deadline = monotonic() + (self._begin + WITHIN - datetime.now(UTC)).total_seconds() + PATIENCE_S
        while self._waiting() or self._client.llen(reminders.TASK["queue"]) or self._client.hlen("unacked"):
            if monotonic() > deadline:
                raise SystemExit(f"{self._waiting():,} reminders still wait {PATIENCE_S:g} s after the last was due")
            sleep(0.2)
        for entry in self._sent():
            self._outcome.sent[entry["car"]] += 1
            due, sent = (datetime.fromisoformat(entry[name]) for name in ("due_at", "sent_at"))
            self._outcome.late_ms.append((sent - due) / timedelta(milliseconds=1))
        late = quantiles(self._outcome.late_ms, n=100) if len(self._outcome.late_ms) > 1 else []
        self._tell("reminders sent by two workers", f"{sum(self._outcome.sent.values()):,}")
        if late:
            self._tell("late by", f"{late[49]:,.0f} ms (median), {late[98]:,.0f} ms (99 %)")

    def _sent(self) -> Iterator[dict[str, Any]]:
        for file in (self._directory / "sent").glob("*.json"):
            yield from map(json.loads, file.read_text(encoding="utf-8").splitlines())

    def _waiting(self) -> int:
        return int(self._client.zcard(f"delayq:{{{reminders.TASK['queue']}}}:due"))

    def _memory(self) -> int:
        return int(self._client.info("memory")["used_memory"])

    def _tell(self, what: str, value: str) -> None:
        self._outcome.figures[what] = value
        print(f"{what:34} {value}", flush=True)


def main() -> None:
    """Runs the demo, and judges it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=5_000_000, metavar="N", help="reminders (default 5,000,000)")
    parser.add_argument("--first", type=int, default=20_000, metavar="N", help="of them first (default 20,000)")
    parser.add_argument("--days", type=int, default=365, metavar="N", help="over how many days (default 365)")
    parser.add_argument("--unsorted", action="store_true", help="write the rows as they come")
    parser.add_argument("--delta", action="store_true", help="a table of Delta Lake; README.md says with which Spark")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="a new directory for all files, which is kept")
    given = parser.parse_args()
    reason = session.why_no_java()
    if reason:
        sys.exit(reason)
    signal.signal(signal.SIGTERM, session.interrupt)  # ends what was started, as Ctrl-C does
    try:
        with ExitStack() as cleanup:
            directory = given.keep or Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="delayq-garage-")))
            directory.mkdir(parents=True, exist_ok=given.keep is None)
            server = cleanup.enter_context(PrivateRedis())
            print("Starting Redis, two Celery workers, and Spark …\n", flush=True)
            spark = cleanup.enter_context(processes.spark(directory.resolve(), DELTA if given.delta else {}))
            how = {"is_delta": given.delta, "is_sorted": not given.unsorted}
            outcome = Demo(server, directory.resolve(), spark, given.rows, given.first, given.days, **how).run()
    except NoRedisServer as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("\nended, and all that it had started")
    good = "each reminder of today was sent once, and none that was cancelled or is due later"
    print(f"\n{'FAILED: ' + '; '.join(outcome.problems) if outcome.problems else good}")
    sys.exit(1 if outcome.problems else 0)


if __name__ == "__main__":
    main()
