"""When a worker knows that a consumer is dead: by its lease, and by looks at who subscribes to its channel."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kombu_delayq.options import Options
from kombu_delayq.processes import _BEGAN, _STATE, _stat, this_process
from kombu_delayq.store.types import ConsumerLease
from kombu_delayq.transfer import dead
from kombu_delayq.transfer.dead import (
    GONE_S,
    GRACE_FRACTION,
    GRACE_S,
    LOOK_FRACTION,
    LOOK_S,
    READ_S,
    SETTLE_S,
    STEP_IN_FRACTION,
    EndedLeases,
    GoneConsumers,
)
from tests.support.conditions import until

ME, OTHER = "host:1:aaaaaaaa", "host:2:bbbbbbbb"


class Fleet:
    """A leader's view of two consumers, and its clock.

    Attributes:
        now_s: The clock.
        connected_at: When the leader's connection was made.
        port: Where the leader asks.
        missing: Consumers without a subscriber.
        looks: How often Redis was asked who subscribes.
        process: What ``ME`` says of its process.
    """

    def __init__(self) -> None:
        self.now_s, self.connected_at, self.port, self.missing, self.looks = 1000.0, 0.0, 6379, set[str](), 0
        self.process = ""
        self.gone = GoneConsumers()
        consumers = SimpleNamespace(
            subscribed=lambda: {"": {ME: self.process, OTHER: ""}, "q": {ME: self.process}},
            without_subscriber=self._without_subscriber,
        )
        pool = SimpleNamespace(node_of=lambda _key: SimpleNamespace(connection_kwargs={"port": self.port}))
        self.store: Any = SimpleNamespace(consumers=consumers, pool=pool, keys=SimpleNamespace(lease="lease"))

    def _without_subscriber(self, names: list[str]) -> set[str]:
        self.looks += 1
        return self.missing & {*names}

    def after(self, seconds: float) -> dict[str, list[str]]:
        """Looks for so long, as often as a leader does. Returns what the last look has found."""
        found: dict[str, list[str]] = {}
        for _ in range(round(seconds / LOOK_S)):
            self.now_s += LOOK_S
            found = self.gone.look(self.store)
        return found


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    fleet = Fleet()
    monkeypatch.setattr(dead, "monotonic", lambda: fleet.now_s)
    monkeypatch.setattr(dead, "connected_at", lambda _pool: fleet.connected_at)
    return fleet


def test_a_consumer_without_a_subscriber_in_every_look_is_gone(fleet: Fleet) -> None:
    """It is gone in all of its slot groups, and the others are not."""
    assert fleet.after(10) == {}
    fleet.missing = {ME}
    assert fleet.after(GONE_S) == {}
    assert fleet.after(LOOK_S) == {"": [ME], "q": [ME]}


def test_a_consumer_that_subscribes_again_lives(fleet: Fleet) -> None:
    """One look that sees it is enough, however often it is missed."""
    fleet.after(10)
    for _ in range(5):
        fleet.missing = {ME}
        assert fleet.after(GONE_S) == {}
        fleet.missing = set()
        assert fleet.after(LOOK_S) == {}


def test_after_a_lost_connection_everybody_has_the_time_to_come_back(fleet: Fleet) -> None:
    """Nobody is gone while the leader's own connection is new, and then only a consumer that has stayed away."""
    fleet.after(10)
    fleet.connected_at, fleet.missing = fleet.now_s, {ME, OTHER}
    assert fleet.after(GRACE_S - LOOK_S) == {}
    fleet.missing = {OTHER}
    assert fleet.after(LOOK_S) == {"": [OTHER]}


def test_who_was_seen_over_the_same_connection_needs_no_time_to_come_back(fleet: Fleet) -> None:
    """A standby that has just begun and has seen the leader knows what an old one knows; it knows nothing of others."""
    fleet.connected_at, fleet.missing = fleet.now_s + GONE_S, {OTHER}
    fleet.after(2 * LOOK_S)
    fleet.missing = {ME, OTHER}
    fleet.after(GONE_S)
    assert fleet.after(LOOK_S) == {"": [ME], "q": [ME]}
    fleet.connected_at += 1
    assert fleet.after(LOOK_S) == {}


@pytest.mark.wide
def test_a_process_of_this_machine_that_has_ended_is_gone_at_once(fleet: Fleet) -> None:
    """Whatever the age of the connection; but one that runs, or is elsewhere, needs its time."""
    fleet.connected_at, fleet.missing = fleet.now_s, {ME}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        place, _, _ = this_process().rpartition("/")
        fleet.process = f"{place}/{other.pid}@{_stat(other.pid)[_BEGAN]}"
        assert fleet.after(LOOK_S) == {}
        other.kill()
        until(lambda: _stat(other.pid)[_STATE] == "Z")
        assert fleet.after(LOOK_S) == {"": [ME], "q": [ME]}
    assert fleet.after(LOOK_S) == {"": [ME], "q": [ME]}
    for elsewhere in ("", fleet.process.replace(place, "other/1"), this_process()):
        fleet.process = elsewhere
        fleet.after(READ_S)
        assert fleet.gone.look(fleet.store) == {}


def test_after_a_failover_of_a_cluster_everybody_has_the_time_to_notice(fleet: Fleet) -> None:
    """Some consumers still subscribe at the node that was the leader's before, until they ask for the nodes again."""
    fleet.after(10)
    fleet.port, fleet.missing = 6380, {ME, OTHER}
    assert fleet.after(SETTLE_S) == {}
    fleet.missing = {OTHER}
    assert fleet.after(LOOK_S) == {"": [OTHER]}


def test_a_leader_that_stood_still_looks_anew(fleet: Fleet) -> None:
    """What a leader saw before it stood still, or before another one led, counts no more."""
    fleet.after(10)
    fleet.missing = {ME}
    fleet.after(GONE_S)
    fleet.now_s += 60
    assert fleet.after(GONE_S) == {}
    fleet.gone.forget()
    assert fleet.after(LOOK_S) == {}
    assert fleet.after(GONE_S) == {"": [ME], "q": [ME]}


def test_a_call_between_two_looks_asks_nothing(fleet: Fleet) -> None:
    """The leader calls it for each message that is due, and is told how long it may wait."""
    fleet.after(1)
    looks = fleet.looks
    assert fleet.gone.wait_s() == LOOK_S
    assert fleet.gone.look(fleet.store) == {}
    assert fleet.looks == looks


OPTIONS = Options()
TTL_MS = 1000 * OPTIONS.consumer_ttl
LOOK_MS, HOUR_MS = TTL_MS * LOOK_FRACTION, 3_600_000.0


@pytest.mark.parametrize("leads", [True, False])
def test_a_clock_that_jumps_forth_and_back_stops_nothing(leads: bool) -> None:
    """When Redis's clock was an hour ahead for a while, the dead are given back as soon after it as after an outage."""
    leases, ended = EndedLeases(), [cast(ConsumerLease, SimpleNamespace(name="host:1:aaaaaaaa"))]
    now_ms = 1e12
    for jump_ms in (0, HOUR_MS, -HOUR_MS):
        now_ms += jump_ms
        leases.late(OPTIONS, now_ms, ended, leads=leads)
        now_ms += LOOK_MS
    looks = 1 + round((GRACE_FRACTION + (0 if leads else STEP_IN_FRACTION)) / LOOK_FRACTION)
    assert any(leases.late(OPTIONS, now_ms + look * LOOK_MS, ended, leads=leads) for look in range(looks))


def test_after_a_clock_was_set_back_consumers_have_the_time_to_come_back() -> None:
    """A worker that has just seen Redis's clock jump back takes nobody for dead before its grace is over."""
    leases, ended = EndedLeases(), [cast(ConsumerLease, SimpleNamespace(name="host:1:aaaaaaaa"))]
    leases.late(OPTIONS, 1e12, ended, leads=True)
    back_ms = 1e12 - HOUR_MS
    assert not leases.late(OPTIONS, back_ms, ended, leads=True)
    assert not leases.late(OPTIONS, back_ms + TTL_MS * GRACE_FRACTION - 1, ended, leads=True)
    assert leases.late(OPTIONS, back_ms + TTL_MS * GRACE_FRACTION, ended, leads=True)
