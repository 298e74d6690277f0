"""What a worker says of itself when it starts."""

import re

from tests.support.workers.harness import MakeProj, Proj

LINE = "`delayq doctor` finds"


def test_a_worker_that_is_well_says_nothing(proj: Proj) -> None:
    """The servers of the tests keep nothing on disk, which is no matter of a worker."""
    assert LINE not in proj.worker(pool="solo").log


def test_a_worker_says_in_one_line_what_is_bad(make_proj: MakeProj) -> None:
    """A visibility timeout below the lease of consumers is said once, at the level WARNING."""
    proj = make_proj(broker_transport_options={"visibility_timeout": 30})
    found = re.findall(rf".*{LINE}.*", proj.worker(pool="solo").log)
    assert len(found) == 1
    assert "WARNING" in found[0]
    assert "visibility-timeout: visibility_timeout=30 is not above consumer_ttl=60" in found[0]


def test_a_stock_worker_says_nothing(make_proj: MakeProj) -> None:
    """The checks are those of workers on our transport."""
    proj = make_proj(broker_transport="", broker_transport_options={"visibility_timeout": 30})
    assert LINE not in proj.worker(pool="solo").log
