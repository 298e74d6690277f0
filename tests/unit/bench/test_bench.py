"""The benchmarks: what their tables show, and that a contender goes through all the work."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench import __main__ as bench
from tests.bench import figures
from tests.bench.entrants import HASH, STOCK
from tests.bench.figures import Figure
from tests.bench.targets import __main__ as targets
from tests.bench.targets import report

FACTS = {
    "machine": {"cores": "2"},
    "date": "2026-11-24",
    "contenders": [{"name": name, "versions": {"it": "1"}, "settings": "usual", "why_not": ""} for name in ("A", "B")],
}
TINY = bench.QUICK._replace(sizes=(600,), seconds=1, burst=50, alone=600, grown=200)


def table(tmp_path: Path, *found: Figure) -> list[str]:
    """Returns the lines of the page for figures."""
    figures.write(found, FACTS, tmp_path / "figures.json")
    return list(figures.tables(figures.read(tmp_path / "figures.json")))


def test_the_best_value_of_a_row_and_what_is_near_it_is_bold(tmp_path: Path) -> None:
    """Less is better for times, more for rates, and values within 5 % are equal."""
    rows = table(tmp_path, Figure("kept", "A", 10, 104.0), Figure("kept", "B", 10, 100.0))
    assert "| memory of a waiting message, bytes | 10 | **104** | **100** |" in rows
    rows = table(tmp_path, Figure("transfer", "A", 10, 2_000.0), Figure("transfer", "B", 10, 1_000.0))
    assert "| transfer of what is overdue, /s | 10 | **2,000** | 1,000 |" in rows


def test_what_has_no_value_is_said(tmp_path: Path) -> None:
    """A task that did not begin is never, a missing value is empty, and its reason stands below the table."""
    rows = table(tmp_path, Figure("burst_p50", "A", value=inf), Figure("cancel", "B", 10, why="cannot"))
    assert "| 20,000 due at once: median, ms |  | never |  |" in rows
    assert "- B, cancel a random one, 10: cannot" in rows


class _Broken:
    """A server that does not start."""

    def __init__(self) -> None:
        raise RuntimeError("it did not start")


def test_a_contender_that_fails_does_not_end_the_run() -> None:
    """Whatever its server or program raises is the reason of its cells, and the run goes on."""
    broken = [replace(STOCK, name="Broken", server=_Broken), replace(STOCK, producer=("sh", "-c", "exit 3"))]
    scale = TINY._replace(sizes=(100,), consumers=())
    found = [next(bench.measured([one], scale)) for one in broken]
    assert [(figure.contender, figure.failed) for figure in found] == [("Broken", True), ("Celery", True)]


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_contender_that_can_do_everything_has_a_figure_in_every_row() -> None:
    """All the work is done, nothing fails, and no task begins early."""
    found = list(bench.measured([HASH], TINY))
    assert [figure for figure in found if figure.failed] == []
    assert {figure.measure for figure in found} >= {row.measure for row in figures.ROWS}


def test_the_targets_are_measured_one_by_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """A figure stands beside its target, and the last line counts what was missed."""

    def measure(server: PrivateRedis, quick: bool) -> Iterator[report.Figure]:
        yield report.Figure("rate", 90.0, "/s", 100, True)

    monkeypatch.setitem(targets.MEASURES, "publish", measure)
    targets.main(["--only", "publish"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "1 of 1 targets missed" in shown
    assert any(line.split() == ["rate", "90", "/s", "≥", "100", "NO"] for line in shown.splitlines())
