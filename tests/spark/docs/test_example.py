"""The pipeline in docs/examples/spark: the demo in the session of the tests, and its report on runs that went wrong."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support import ROOT

EXAMPLE = ROOT / "docs" / "examples" / "spark"
DEMO = [sys.executable, str(EXAMPLE / "demo.py")]
#: How long the demo may take, in s: far longer than it does, for machines that do much else.
DEMO_S = 600
#: How long before now the orders of a fabricated run were placed, and after how long an unpaid one is closed.
PLACED, AFTER = timedelta(minutes=40), timedelta(minutes=30)


def environment(**changes: str | None) -> dict[str, str]:
    """Returns the variables of a user who has not told Spark which Python to run."""
    changed = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": None, **changes}
    return {name: value for name, value in changed.items() if value is not None}


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets the modules of the example be imported."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield
    for module in EXAMPLE.glob("*.py"):
        sys.modules.pop(module.stem, None)


@pytest.mark.timeout(DEMO_S)
@pytest.mark.usefixtures("example")
def test_the_demo_closes_what_is_not_paid(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The demo, with fewer orders and faster, closes each unpaid order once and no paid one, and leaves nothing."""
    demo: Any = import_module("demo")
    # A Spark of its own would take most of the test's time to start.
    monkeypatch.setattr(demo.processes, "spark", lambda directory: nullcontext(spark))
    for module in (demo, demo.processes):
        monkeypatch.setattr(module, "PATIENCE_S", DEMO_S / 2)
    for name in ("SHOP_BROKER", "SHOP_DIRECTORY"):
        monkeypatch.setenv(name, "")  # is set anew by the demo, and as before after the test
    arguments = ["demo.py", "--orders", "400", "--speed-up", "200", "--keep", str(tmp_path / "files")]
    monkeypatch.setattr(sys, "argv", arguments)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            demo.main()
    finally:
        signal.signal(signal.SIGTERM, before)
    stdout = capsys.readouterr().out
    assert ended.value.code == 0, stdout
    [waiting, still] = re.findall(r"^close_unpaid\.py .*?(\d+)(?: tasks wait in Redis)? \(", stdout, re.MULTILINE)
    assert int(still) <= int(waiting) <= 400  # where Spark was slow, some are closed already, or all
    counts = re.findall(r"^(never paid|paid in time|paid too late) +(\d+) +(\d+) +(\d+)$", stdout, re.MULTILINE)
    assert sum(int(orders) for _, orders, _, _ in counts) == 400
    closings = [json.loads(line)["order_id"] for line in lines_in(tmp_path / "files" / "closed")]
    assert len(closings) == len(set(closings)) == sum(int(closed) for _, _, closed, _ in counts)
    [port] = re.findall(r"Redis on port (\d+)", stdout)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(port))), "the Redis of the example still runs"


def lines_in(directory: Path) -> Iterator[str]:
    """Yields the lines of all files in a directory."""
    for file in directory.iterdir():
        yield from file.read_text(encoding="utf-8").splitlines()


def test_without_java_the_demo_says_so(tmp_path: Path) -> None:
    """Without a Java that is new enough, the demo ends with one sentence that names which one is needed."""
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    old.chmod(0o755)
    for home, found in ((str(tmp_path), f"{old} is Java 11"), (str(EXAMPLE), f"there is none in JAVA_HOME, {EXAMPLE}")):
        done = subprocess.run(DEMO, env=environment(JAVA_HOME=home), capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"Spark needs Java 17 or later, and {found}.\n"


class Run:
    """The files of a run with three orders: one never paid, one paid in time, one paid too late.

    Args:
        directory: Where they are.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.placed_at = datetime.now(UTC).replace(microsecond=0) - PLACED
        self.due_at = self.placed_at + AFTER
        shop = import_module("orders").Shop(directory, 3, 1, 1)
        self.orders = shop.orders
        for order in self.orders:
            order["placed_at"] = self.placed_at
        shop.write_orders()
        (directory / "closed").mkdir()
        self.unpaid, self.paid, self.late = (order["order_id"] for order in self.orders)
        early, late = self.placed_at + timedelta(minutes=5), self.due_at + timedelta(minutes=1)
        for order_id, status, at in (
            (self.unpaid, "declined", early),
            (self.paid, "captured", early),
            (self.late, "captured", late),
        ):
            self.write("payments/1.json", order_id=order_id, status=status, paid_at=at.isoformat())
        for until in (early, late):
            self.write(
                "cancelled.json", paid_until=until.isoformat(), done_by=(until + timedelta(seconds=1)).isoformat()
            )

    def close(self, order_id: str, late_s: float = 0.25, **other: Any) -> None:
        """Notes that an order was closed."""
        amount = next(order["amount"] for order in self.orders if order["order_id"] == order_id)
        closing = {"order_id": order_id, "amount": str(amount), "units": 2, "due_at": self.due_at.isoformat()}
        at = self.due_at + timedelta(seconds=late_s)
        self.write("closed/1.json", **{**closing, "closed_at": at.isoformat(), "worker": "alice", **other})

    def write(self, name: str, **entry: Any) -> None:
        """Appends a JSON line to a file."""
        with (self.directory / name).open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(entry)}\n")


@pytest.fixture
def run(tmp_path: Path, example: None) -> Run:
    """A run of which no order is closed."""
    return Run(tmp_path / "files")


def test_the_report_finds_what_went_wrong(spark: SparkSession, run: Run) -> None:
    """Orders not closed, or closed twice, early, after the cancellation or with a wrong amount, are problems."""
    run.close(run.paid, late_s=-0.01, amount="0.01")
    for _ in range(2):
        run.close(run.late)
    assert import_module("report").judge(spark, run.directory, AFTER).problems == [
        "1 unpaid orders were not closed",
        "1 orders were closed after their task had been cancelled",
        "1 orders were closed more than once",
        "1 orders were closed before their time",
        "1 tasks got another amount than their order has",
    ]
