"""The fixture beside libraries that fake the time of day."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from celery_ext import install
from celery_ext.testing import sending
from celery_ext.testing.delayed_tasks import DelayedTasks
from celery_ext.testing.sending import Clock, Sending
from celery_ext.testing.sending import _monotonic_s as monotonic_s
from tests.integration.testing.conftest import Shop

freezegun: Any = pytest.importorskip("freezegun", reason="the extra `test` brings it")
time_machine: Any = pytest.importorskip("time_machine", reason="the extra `test` brings it")

FRIDAY, MONDAY = datetime(2026, 5, 1, 12, tzinfo=UTC), datetime(2026, 5, 4, 8, tzinfo=UTC)


@pytest.fixture(params=["time-machine", "time-machine, ticking", "freezegun", "freezegun, ticking"])
def travel(request: pytest.FixtureRequest) -> Any:
    """Returns a context that moves the time to a moment, and can move it on."""
    ticking = "ticking" in request.param
    if "freezegun" in request.param:
        return lambda moment: freezegun.freeze_time(moment, tick=ticking)
    return lambda moment: time_machine.travel(moment, tick=ticking)


@pytest.mark.parametrize("delayed_tasks_broker", ["memory"], indirect=True)
def test_the_clock_moves_along(delayed_tasks: DelayedTasks, shop: Shop, travel: Any) -> None:
    """When somebody moves the time of day, what has come due runs, countdowns and etas alike, and sees that time."""
    seen = []

    @shop.app.task(shared=False, name="shop.look")
    def look() -> None:
        seen.append(datetime.now(UTC))

    with travel(FRIDAY) as moved:
        look.apply_async(countdown=3600)
        look.apply_async(eta=MONDAY)
        assert delayed_tasks.has(look, in_="1h")
        assert delayed_tasks.has(look, at=MONDAY)
        moved.move_to(FRIDAY + timedelta(minutes=59))
        assert delayed_tasks.run_due() == []
        moved.move_to(FRIDAY + timedelta(minutes=60, seconds=30))  # a clock that ticks goes on while a slow test runs
        assert len(delayed_tasks.run_due()) == 1
        moved.move_to(MONDAY)
        assert len(delayed_tasks.run_due()) == 1
        assert [moment.replace(second=0, microsecond=0) for moment in seen] == [FRIDAY + timedelta(hours=1), MONDAY]


@pytest.mark.parametrize("delayed_tasks_broker", ["memory"], indirect=True)
def test_what_a_ticking_clock_has_gone_on_does_not_count(
    delayed_tasks: DelayedTasks, shop: Shop, travel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a move of an hour, what was sent for in an hour runs, though a clock that ticks has not got there yet."""
    monkeypatch.setattr(sending, "_MOST_SLACK_S", 60.0)  # freezegun may take more than a second on a busy machine
    begun_s = monotonic_s()
    with travel(FRIDAY) as moved:
        delayed_tasks.run_due()
        while monotonic_s() - begun_s < 0.05:
            pass
        shop.remind.apply_async(("countdown",), countdown=3600)
        shop.remind.apply_async(("eta",), eta=datetime.now(UTC) + timedelta(hours=1))
        shop.remind.apply_async(("later",), countdown=3700)
        moved.move_to(FRIDAY + timedelta(hours=1))
        delayed_tasks.run_due()
        assert sorted(shop.done) == ["countdown", "eta"]
        shop.remind.apply_async(("soon",), countdown=0.5)  # sent since: nothing is early
        delayed_tasks.run_due()
        assert sorted(shop.done) == ["countdown", "eta"]


@pytest.mark.parametrize("delayed_tasks_broker", ["memory"], indirect=True)
def test_both_ways_may_be_mixed(delayed_tasks: DelayedTasks, shop: Shop, travel: Any) -> None:
    """``advance`` goes on from a time that somebody has moved to, and back when the time does."""
    shop.remind.apply_async(("before",), countdown=7200)
    with travel(datetime.now(UTC) + timedelta(hours=1)):
        shop.remind.apply_async(("then",), countdown=600)
        delayed_tasks.advance("9m")
        assert shop.done == []
        delayed_tasks.advance("2m")
        assert shop.done == ["then"]
    delayed_tasks.advance("1h45m")  # and 11 minutes before: the hour of the journey does not count
    assert shop.done == ["then"]
    delayed_tasks.advance("5m")
    assert shop.done == ["then", "before"]


@pytest.mark.parametrize("delayed_tasks_broker", ["memory"], indirect=True)
@pytest.mark.parametrize("year", [2020, 2060])
def test_periodic_tasks_count_from_where_the_test_begins(
    delayed_tasks: DelayedTasks, shop: Shop, travel: Any, year: int
) -> None:
    """A test begins with its first call or step, at whatever time, and anew when the time moves back."""
    shop.app.conf.beat_schedule = {"often": {"task": "shop.remind", "schedule": 600.0, "args": ("often",)}}
    install(shop.app, periodic=True)
    with travel(FRIDAY.replace(year=year)) as moved:
        shop.remind.apply_async(("called",), countdown=7200)
        moved.move_to(FRIDAY.replace(year=year, hour=13))  # an hour since the first call
        delayed_tasks.advance("1h")
        assert shop.done.count("often") in (11, 12)
        moved.move_to(FRIDAY.replace(year=year, hour=10))
        shop.done.clear()
        delayed_tasks.advance("1h")
        assert shop.done.count("often") in (5, 6)


def test_a_slow_test_changes_no_countdown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that a test itself takes counts for the clock that goes on, and not for the one that stands still."""
    passed_s = [0.0]
    for name in ("time.time", "time.clock_gettime"):
        monkeypatch.setattr(name, lambda *kind: 1_000_000.0 + passed_s[0])
    clock = Clock()
    still_s, now_s = clock.still_s(), clock.now_s()
    passed_s[0] = 100.0
    assert (clock.still_s(), clock.now_s()) == (still_s, now_s + 100)
    clock.skip(50)
    assert (clock.still_s(), clock.now_s()) == (still_s + 50, now_s + 150)


def test_a_slow_first_call_changes_no_eta(monkeypatch: pytest.MonkeyPatch, shop: Shop) -> None:
    """What the first call of an app takes to connect does not count for the eta that the test has made before it."""
    passed_s = [0.0]
    for name in ("time.time", "time.clock_gettime"):
        monkeypatch.setattr(name, lambda *kind: 1_000_000.0 + passed_s[0])
    eta = datetime.fromtimestamp(1_000_000.0 + 3600, UTC)

    def prepare(app: Any) -> None:
        passed_s[0] = 100.0

    sending = Sending(Clock(), lambda *args, **options: None, prepare)
    sending.send_task(shop.app, "shop.remind", eta=eta, task_id="one")
    assert sending.sent["one"].delay_s == 3600
