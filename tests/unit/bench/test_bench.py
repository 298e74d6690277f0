"""The benchmarks: what their tables show, and that a contender goes through all the work."""

from dataclasses import replace

import pytest

from tests.bench import __main__ as bench
from tests.bench import figures
from tests.bench.entrants import HASH, STOCK

TINY = bench.QUICK._replace(sizes=(600,), seconds=1, burst=50, alone=600, grown=200)


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
