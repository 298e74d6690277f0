"""Groups, chains and chords with countdowns."""

import time
from typing import Any

import pytest
from celery import chain, chord, group
from celery.canvas import Signature

from tests.support.workers.harness import Proj

pytestmark = pytest.mark.wide


def _add(proj: Proj, *numbers: Any, **options: Any) -> Signature:
    return proj.app.signature("proj.add", args=numbers, options=options)


@pytest.mark.journey
def test_groups_chains_and_chords_keep_their_countdowns(proj: Proj) -> None:
    """Every task of a canvas runs once, not before its own countdown is over, and the results are those of stock."""
    proj.worker()
    begun = time.time()
    a_group = group([_add(proj, n, countdown=1) for n in (1, 2, 3)], app=proj.app).apply_async()
    a_chain = chain(_add(proj, 10), _add(proj, 20, countdown=1), _add(proj, 30, countdown=1), app=proj.app).delay()
    header = [_add(proj, 100 * n, countdown=n) for n in (1, 2)]
    a_chord = chord(header, _add(proj, countdown=1), app=proj.app).apply_async()

    assert a_group.get(timeout=60) == [1, 2, 3]
    assert a_chain.get(timeout=60) == 60
    assert a_chord.get(timeout=60) == 300
    at = {run["value"]: run["at"] for run in proj.runs()}
    assert sorted(at) == [1, 2, 3, 10, 30, 60, 100, 200, 300]
    assert len(proj.runs()) == len(at)
    assert min(at[1], at[2], at[3], at[100], at[200] - 1) >= begun + 1
    assert at[30] >= at[10] + 1
    assert at[60] >= at[30] + 1
    assert at[300] >= at[200] + 1


def test_a_countdown_of_a_whole_canvas(proj: Proj) -> None:
    """A countdown given to a group counts for its tasks, one given to a chain for its first; meanwhile Redis has them.

    Links and error links of a delayed task are called as well.
    """
    begun = time.time()
    a_group = group([_add(proj, 1), _add(proj, 2)], app=proj.app).apply_async(countdown=2.5)
    a_chain = chain(_add(proj, 10), _add(proj, 20), app=proj.app).apply_async(countdown=2.5)
    linked = _add(proj, 100).apply_async(countdown=2.5, link=_add(proj, 200))
    assert proj.delayed() == 4
    proj.worker()

    assert a_group.get(timeout=60) == [1, 2]
    assert a_chain.get(timeout=60) == 30
    assert linked.get(timeout=60) == 100
    runs = proj.await_runs(6)
    assert sorted(run["value"] for run in runs) == [1, 2, 10, 30, 100, 300]
    assert all(run["at"] >= begun + 2.5 for run in runs)
