"""The whole pipeline on a Redis of its own: ``python demo.py``. Takes about a minute.

Starts a private Redis, two Celery workers and Spark, runs the shop and the jobs of this directory, and ends all of it
again. Exit code 0 means that exactly those orders were closed that should have been.
"""

import argparse
import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep

try:
    import cancel_paid
    import close_unpaid
    import processes
    import report
    import session
    from orders import FILE_S, PLACED_WITHIN, Shop
    from pyspark.sql import SparkSession
except ModuleNotFoundError as error:
    sys.exit(f"There is no {error.name} in this Python. Install it: pip install 'kombu-delayq[embedded,spark]'")

import celery_ext
from celery_ext.demo.private_redis import NoRedisServer, PrivateRedis

#: How late the last task may be, in s.
PATIENCE_S = 60.0
#: For how long nothing may be left in Redis before all is over, in s: a task just on its way to a worker is not seen.
QUIET_S = 1.0
#: How often the screen gets a line, in minutes of the shop.
LINE_MIN = 3


class Demo:
    """One run.

    Args:
        server: A running private Redis.
        directory: For all that is written.
        count: Number of orders.
        speed_up: How many times faster than real the time goes.
    """

    def __init__(self, server: PrivateRedis, directory: Path, count: int, speed_up: float) -> None:
        os.environ.update(SHOP_BROKER=server.url, SHOP_DIRECTORY=str(directory))
        from tasks import app  # reads both

        self._app = app
        self._server = server
        self._client = server.client()
        self._directory = directory
        self._count = count
        self._speed_up = speed_up
        self._after = session.CLOSED_AFTER / speed_up
        self._paid = 0

    def run(self) -> report.Report:
        """Runs the demo. Returns what came of it."""
        with ExitStack() as cleanup:
            cleanup.callback(self._app.close)
            workers = cleanup.enter_context(processes.workers(("alice", "bob"), self._directory))
            spark = cleanup.enter_context(processes.spark(self._directory))
            self._warm_up(spark)
            for worker in workers:
                worker.await_ready()
            shop = self._open_shop()
            self._close_unpaid(spark)
            self._watch(spark, shop)
            return report.judge(spark, self._directory, self._after)

    def _warm_up(self, spark: SparkSession) -> None:
        """Runs both jobs on nothing: the first ones of a Spark take their time."""
        directory = self._directory / "warm-up"
        Shop(directory, 0, 0, self._speed_up).write_orders()
        self._run_batch(spark, directory, "warm-up")
        (directory / "payments" / "0.json").write_text('{"order_id": "of nobody", "status": "captured"}')
        query = cancel_paid.start(spark, directory, self._server.url)
        query.processAllAvailable()
        query.stop()

    def _open_shop(self) -> Shop:
        shop = Shop(self._directory, self._count, 1, self._speed_up)
        shop.write_orders()
        self._opened = monotonic()
        minutes = PLACED_WITHIN.total_seconds() / 60
        say("orders.py", f"{self._count:,} orders of the last {minutes:.0f} minutes are in Parquet files")
        return shop

    def _close_unpaid(self, spark: SparkSession) -> None:
        for outcome in ("{} tasks wait in Redis", "run again with the same job_id: still {}"):
            began = monotonic()
            self._run_batch(spark, self._directory, "close-unpaid")
            say("close_unpaid.py", f"{outcome.format(f'{self._waiting():,}')} ({monotonic() - began:.1f} s)")

    def _run_batch(self, spark: SparkSession, directory: Path, job_id: str) -> None:
        orders = spark.read.parquet(str(directory / "orders"))
        close_unpaid.send(close_unpaid.closings(orders, self._after), self._server.url, job_id)

    def _watch(self, spark: SparkSession, shop: Shop) -> None:
        """Lets payments come in, the stream cancel and the workers close, until no task is left."""
        query = cancel_paid.start(spark, self._directory, self._server.url)
        journal = cancel_paid.Journal(query, self._directory / "cancelled.json")
        say("cancel_paid.py", "reads payments as they come in, and cancels the tasks of their orders\n")
        print(f"{'minute':>8}{'payments':>12}{'tasks waiting':>16}{'orders closed':>16}", flush=True)
        deadline = monotonic() + self._after.total_seconds() + PATIENCE_S
        line_due, quiet_since = 0.0, float("inf")
        while monotonic() < quiet_since + QUIET_S:
            self._paid += shop.write_payments()
            journal.note()
            quiet_since = float("inf") if self._is_busy() else min(quiet_since, monotonic())
            if self._minute() >= line_due:
                line_due = self._minute() // LINE_MIN * LINE_MIN + LINE_MIN
                self._show()
            if not query.isActive:
                query.awaitTermination()  # raises what has ended it
            if monotonic() > deadline:
                raise SystemExit(f"{self._waiting():,} tasks still wait {PATIENCE_S:g} s after the last was due")
            sleep(FILE_S / 2)
        self._show()
        query.processAllAvailable()
        journal.note()
        query.stop()

    def _show(self) -> None:
        print(f"{self._minute():8.0f}{self._paid:12,}{self._waiting():16,}{self._closed():16,}", flush=True)

    def _minute(self) -> float:
        """Returns the time of the shop, in minutes since it has opened."""
        return (monotonic() - self._opened) * self._speed_up / 60

    def _waiting(self) -> int:
        return celery_ext.select(self._app, queues=session.TASK["queue"]).count()

    def _closed(self) -> int:
        return sum(file.read_bytes().count(b"\n") for file in (self._directory / "closed").glob("*.json"))

    def _is_busy(self) -> bool:
        """Whether a task waits, is in its queue, or is with a worker."""
        return bool(self._waiting() or self._client.llen(session.TASK["queue"]) or self._client.hlen("unacked"))


def say(who: str, what: str) -> None:
    """Prints what a part of the pipeline does."""
    print(f"{who:17} {what}", flush=True)


def main() -> None:
    """Runs the demo, and judges it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--orders", type=int, default=3000, metavar="N", help="how many (default 3000)")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="a new directory for all files, which is kept")
    session.add_speed_up(parser)
    given = parser.parse_args()
    reason = session.why_no_java()
    if reason:
        sys.exit(reason)
    signal.signal(signal.SIGTERM, session.interrupt)  # ends what was started, as Ctrl-C does
    try:
        with ExitStack() as cleanup:
            directory = given.keep or Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="delayq-shop-")))
            directory.mkdir(parents=True, exist_ok=given.keep is None)
            server = cleanup.enter_context(PrivateRedis())
            seconds = 60 / given.speed_up
            print(f"A minute of the shop takes {seconds:g} s. An order is closed after 30 minutes: {30 * seconds:g} s.")
            print(f"Starting Redis on port {server.port}, two Celery workers, and Spark …\n", flush=True)
            found = Demo(server, directory.resolve(), given.orders, given.speed_up).run()
    except NoRedisServer as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("\nended, and all that it had started")
    print("\n" + "\n".join(found.lines()))
    good = "every unpaid order was closed once, and none that was paid in time"
    print(f"\n{'FAILED: ' + '; '.join(found.problems) if found.problems else good}")
    sys.exit(1 if found.problems else 0)


if __name__ == "__main__":
    main()
