"""``global_keyprefix`` and databases other than 0."""

import time
from typing import Any

import pytest

from tests.support.conditions import stays
from tests.support.workers.harness import MakeProj, Proj

pytestmark = pytest.mark.both_layouts

#: What stands before the prefix in names of Redisson's layout.
REDISSON = ("redisson_delay_queue:{", "redisson_delay_queue_timeout:{")


def _in_db(make_proj: MakeProj, url: str, db: int, prefix: str) -> Proj:
    options: dict[str, Any] = {"global_keyprefix": prefix} if prefix else {}
    return make_proj(broker_url=url.removesuffix("/0") + f"/{db}", broker_transport_options=options)


@pytest.mark.journey
def test_apps_that_share_a_redis_keep_apart(make_proj: MakeProj, proj: Proj) -> None:
    """A prefix and a database number hold for all keys; nothing that another app delayed is ever touched.

    What the apps have in common is the queue's name.
    """
    url = proj.server.url
    ours = _in_db(make_proj, url, 3, "ours:")
    others = [_in_db(make_proj, url, 3, "theirs:"), _in_db(make_proj, url, 3, ""), _in_db(make_proj, url, 4, "ours:")]
    ours.worker()
    due = time.time() + 1
    for other in others:
        other.send("record", "other", countdown=1)
    ours.send("record", "normal", countdown=1)
    ours.send("record", "urgent", countdown=1, priority=9)
    retried = ours.send("flaky", 1, kwargs={"countdown": 1})

    runs = ours.await_runs(4)
    assert sorted(str(run.get("value")) for run in runs) == ["None", "None", "normal", "urgent"]
    assert all(run["at"] >= due for run in runs if run.get("value"))
    assert retried.get(timeout=20) == 1
    stays(lambda: [other.delayed() for other in others] == [1, 1, 1], 0.5)
    assert len(ours.runs()) == 4
    assert [ours.delayed(), proj.delayed()] == [0, 0]
    keys = set(proj.server.client(3).scan_iter()) - set(proj.keys())
    known = [f"{before}{prefix}" for before in ("", *REDISSON) for prefix in ("ours:", "theirs:")]
    strangers = {key for key in keys if not key.startswith(tuple(known))}
    assert strangers <= {"{delayq}:queues", "_kombu.binding.celery", "_kombu.binding_permanent.celery"}
    assert not set(proj.server.client(0).scan_iter())
