"""The order of messages of one delay level."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from celery_ext import install
from tests.support.workers.harness import MakeProj, Proj

COUNT = 600


def setting_back(proj: Proj) -> Callable[[], datetime]:
    """Returns a clock that is set back by 0.3 s now and then."""
    original, calls = proj.app.now, 0

    def now() -> datetime:
        nonlocal calls
        calls += 1
        return original() - timedelta(milliseconds=300 * (calls // 200))

    return now


@pytest.mark.nightly
@pytest.mark.parametrize("clock", ["steady", "set back"])
def test_messages_of_one_level_keep_their_order(
    make_proj: MakeProj, clock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """600 messages of one level, published by one producer to one queue, arrive in the order they were sent.

    So it is also when the producer's clock is set back meanwhile; other levels, and none, come at their own time.
    """
    proj = make_proj(delayq_levels="1500ms 1h", timezone="Europe/Berlin", worker_prefetch_multiplier=100)
    install(proj.app)
    if clock == "set back":
        monkeypatch.setattr(proj.app, "now", setting_back(proj))
    proj.worker(pool="solo")
    begun = datetime.now(UTC).timestamp()
    for value in range(COUNT):
        proj.send("record", value, delay_level=1, ignore_result=True)
    later = proj.send("record", "highest", delay_level=99)
    proj.send("record", "at once", delay_level=0, ignore_result=True)
    runs = [run for run in proj.await_runs(COUNT + 1, 60) if run["value"] != "at once"]
    assert [run["value"] for run in runs] == list(range(COUNT))
    assert min(run["at"] for run in runs) >= begun + 1.5
    assert proj.delayed() == 1
    assert later.state == "PENDING"
