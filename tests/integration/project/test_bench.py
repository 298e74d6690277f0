"""``make bench``: the same work for every contender, within a limit, and no silent gaps."""

from dataclasses import replace
from math import isfinite

import pytest

from tests.bench.everyone import celery_
from tests.bench.measures import MEASURES
from tests.bench.results import Results
from tests.bench.schedule import QUICK, Run, Scale
from tests.bench.servers import RedisServer

TINY = replace(QUICK, sizes=(300,), seconds=1, burst=50, grown=200, pushes=1000, together=2)
#: Rows of ``limit``, and what is only there if something is wrong.
OTHERS = {"limit", "limit_bytes"}


def ran(scale: Scale, *contenders: celery_.Contender) -> Results:
    """Runs contenders and returns what was found."""
    run = Run(contenders, scale, print)
    run.run()
    return run.results


@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_measure_of_a_contender_has_a_figure_or_a_reason() -> None:
    """A contender that can do everything goes through all the work, and nothing fails or is missing."""
    results = ran(TINY, celery_.HASH)
    assert [gap for gap in results.gaps if gap.failed] == []
    found = {(each.measure, each.contender) for each in results.samples}
    assert found >= {(f"poisson_{row}", celery_.HASH.name) for row in ("min", "p50", "p99", "max")}
    assert {each.measure for each in results.samples if each.contender == celery_.HASH.name} >= {
        *("enqueue_one", "enqueue_bulk", "kept", "cancel", "transfer", "longest", "worker", "idle_commands"),
    }
    for each in results.samples:
        assert isfinite(each.value), each
        if each.measure in ("poisson_min", "burst_min"):
            assert each.value >= 0, each
    assert {each.measure for each in results.samples} <= {*MEASURES, *OTHERS}


def test_what_there_is_no_time_for_is_said() -> None:
    """A run whose time is over begins nothing, and has a reason for every cell."""
    results = ran(replace(TINY, limit_s=0.0), celery_.HASH)
    assert results.samples == []
    for measure, size in (("enqueue_one", 300), ("transfer", 300), ("idle_cpu", 1), ("limit", 0)):
        assert "no time" in str(results.of(measure, celery_.HASH.name, size)), measure
    for measure, size in (("poisson_p50", 0), ("burst_max", 0), ("worker", 200)):
        assert "not tried" in str(results.of(measure, celery_.HASH.name, size)), measure


def test_a_contender_that_fails_does_not_end_the_run() -> None:
    """The reason that its program gave is in its cells, and the others are measured."""
    broken = replace(celery_.STOCK, name="Broken", producer=("sh", "-c", "echo it broke >&2; exit 3"))
    results = ran(replace(TINY, sizes=(100,), consumers=()), broken)
    assert results.samples == []
    assert "it broke" in str(results.of("enqueue_one", "Broken", 100))
    assert any(gap.failed for gap in results.gaps)


class _Broken(RedisServer):
    """A server that does not start."""

    def start(self) -> None:
        """Fails as those of Debian do."""
        raise RuntimeError("it did not start")


def test_a_server_that_does_not_start_does_not_end_the_run() -> None:
    """Whatever a server raises is in the cells of its contender."""
    broken = replace(celery_.STOCK, name="Broken", server=_Broken)
    results = ran(replace(TINY, sizes=(100,), consumers=()), broken)
    assert results.samples == []
    assert "it did not start" in str(results.of("enqueue_one", "Broken", 100))
    assert any(gap.failed for gap in results.gaps)
