"""When a transfer worker knows that consumers whose lease has ended are dead."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kombu_delayq.options import Options
from kombu_delayq.store.types import ConsumerLease
from kombu_delayq.transfer.reclaim import GRACE_SHARE, LOOK_SHARE, STEP_IN_SHARE, _OfGroup

OPTIONS = Options()
STORE: Any = SimpleNamespace(options=OPTIONS)
TTL_MS = 1000 * OPTIONS.consumer_ttl
LOOK_MS, HOUR_MS = TTL_MS * LOOK_SHARE, 3_600_000.0


@pytest.mark.parametrize("leads", [True, False])
def test_a_clock_that_jumps_forth_and_back_stops_nothing(leads: bool) -> None:
    """When Redis's clock was an hour ahead for a while, the dead are given back as soon after it as after an outage."""
    of_group, dead = _OfGroup(""), [cast(ConsumerLease, SimpleNamespace(name="host:1:aaaaaaaa"))]
    now_ms = 1e12
    for jump_ms in (0, HOUR_MS, -HOUR_MS):
        now_ms += jump_ms
        of_group.late(STORE, now_ms, dead, leads=leads)
        now_ms += LOOK_MS
    looks = 1 + round((GRACE_SHARE + (0 if leads else STEP_IN_SHARE)) / LOOK_SHARE)
    assert any(of_group.late(STORE, now_ms + look * LOOK_MS, dead, leads=leads) for look in range(looks))


def test_after_a_clock_was_set_back_consumers_have_the_time_to_come_back() -> None:
    """A worker that has just seen Redis's clock jump back takes nobody for dead before its grace is over."""
    of_group, dead = _OfGroup(""), [cast(ConsumerLease, SimpleNamespace(name="host:1:aaaaaaaa"))]
    of_group.late(STORE, 1e12, dead, leads=True)
    back_ms = 1e12 - HOUR_MS
    assert not of_group.late(STORE, back_ms, dead, leads=True)
    assert not of_group.late(STORE, back_ms + TTL_MS * GRACE_SHARE - 1, dead, leads=True)
    assert of_group.late(STORE, back_ms + TTL_MS * GRACE_SHARE, dead, leads=True)
