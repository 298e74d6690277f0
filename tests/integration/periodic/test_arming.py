"""What processes arm of a schedule, together and one after the other."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from celery.beat import BeatLazyFunc
from celery.schedules import BaseSchedule, crontab, schedule
from kombu import Exchange, Queue

from celery_ext.periodic import arming, control, messages
from celery_ext.periodic.armer import Armer
from celery_ext.periodic.arming import Arming
from celery_ext.periodic.entries import Entries, Entry, checked
from celery_ext.periodic.messages import BEAT, ENTRY
from celery_ext.periodic.source import Settings
from celery_ext.periodic.store import PAUSED, STOCK_BEAT, PeriodicStore
from celery_ext.waiting import by_id
from tests.support.workers import periodic
from tests.support.workers.periodic import HOUR_MS, Process, StartProcess, every

both_brokers = pytest.mark.parametrize("broker_url", ["plain", "cluster"], indirect=True)


class Never(BaseSchedule):
    """A schedule whose next run cannot be computed, as that of some crontabs."""

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        """Fails."""
        raise RuntimeError("unable to rollover")


@both_brokers
def test_a_minute_is_armed_and_each_run_once(start_process: StartProcess) -> None:
    """One process arms the runs of the next minute, at least one; a second one that leads next adds nothing."""
    schedule = {"second": every(1.0), "hour": every(3600.0, options={"queue": "slow"})}
    first = start_process("first", schedule)
    ticks, [(hourly, due_ms)] = first.armed(), first.armed("slow")
    assert 60 <= len(ticks) <= 72
    assert 3_540_000 < due_ms - first.store.now_ms() <= 3_600_000
    second = start_process("second", schedule)
    assert (first.arming.leads, second.arming.leads) == (True, False)
    first.arming.end()
    second.step()
    assert second.arming.leads
    assert second.armed()[: len(ticks)] == ticks[-len(second.armed()) :][: len(ticks)]
    assert second.armed("slow") == [(hourly, due_ms)]


def test_an_entry_that_moves_to_another_queue(start_process: StartProcess) -> None:
    """The run in the old queue is removed, the new queue has one, and a process that leads later adds none."""
    start_process("old", {"tick": every(600.0)}).arming.end()
    moved = {"tick": every(600.0, options={"queue": "other", "missed": "all"})}
    new = start_process("new", moved)
    armed = new.armed("other")
    assert (len(new.armed()), len(armed)) == (0, 1)
    for _ in range(2):
        new.arming.end()
        new = start_process("next", moved)
        assert (new.arming.leads, new.armed("other")) == (True, armed)


def test_an_entry_that_has_moved_makes_up_what_it_has_missed(start_process: StartProcess) -> None:
    """Each run comes once, also when it moves on, and its first queue knows nothing of later runs."""
    missed = {"missed": "all"}
    process = start_process("first", {"tick": every(600.0, options=missed)})
    process.age("tick", 3 * HOUR_MS)
    process.store.part(PeriodicStore).end_lease("first")
    process = start_process("second", {"tick": every(600.0, options={"queue": "second", **missed})})
    assert len(process.armed("second")) == 19  # the next, and what was missed
    process.age("tick", HOUR_MS, "second")
    process.store.part(PeriodicStore).end_lease("second")
    process = start_process("third", {"tick": every(600.0, options={"queue": "third", **missed})})
    assert len(process.armed("third")) == 7


def test_a_moved_entry_rests_and_goes_on_once(start_process: StartProcess) -> None:
    """After a pause in its new queue it has one run, also when another process leads."""
    start_process("old", {"tick": every(600.0)}).arming.end()
    moved = {"tick": every(600.0, options={"queue": "other"})}
    new = start_process("new", moved)
    control.pause(new.store, ["tick"])
    new.step()
    assert new.armed("other") == []
    control.resume(new.store, ["tick"])
    armed = new.step().armed("other")
    new.arming.end()
    assert start_process("next", moved).armed("other") == armed
    assert len(armed) == 1


@both_brokers
def test_a_purge_costs_no_run_to_come(start_process: StartProcess) -> None:
    """What a purge removes of a schedule is armed again, also while an entry is paused."""
    monthly = every(crontab("0", "0", day_of_month="1"))
    process = start_process("p", {"tick": every(600.0), "rests": every(600.0), "monthly": monthly})
    control.pause(process.store, ["rests"])
    process.step()
    months = [due for _, due in process.armed() if due % 600_000 == 0]
    assert process.app.control.purge() == 2
    assert process.armed() == []
    process.step()
    assert len(process.armed()) == 2
    assert [due for _, due in process.armed() if due % 600_000 == 0] == months
    assert process.store.part(PeriodicStore).notes(["celery"])["celery"]["rests"].digest == PAUSED
    assert process.step().armed() == process.step().armed()


class Often(BaseSchedule):
    """A schedule of one's own, which has no ``__repr__``."""

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        """Says ten minutes."""
        return timedelta(minutes=10)


def test_a_schedule_without_a_text_is_the_same_everywhere(start_process: StartProcess) -> None:
    """Processes with equal schedules lead one after the other, and disarm nothing."""
    first = start_process("first", {"own": every(Often())})
    armed = first.armed()
    second = start_process("second", {"own": every(Often())})
    assert first.step().arming.leads
    first.arming.end()
    assert second.step().arming.leads
    assert second.armed() == armed


@pytest.mark.parametrize(("missed", "made_up"), [("last", 1), ("skip", 0), ("all", 6)])
@pytest.mark.parametrize("of", [600.0, crontab(minute="*/10")])
def test_missed_runs(
    start_process: StartProcess, monkeypatch: pytest.MonkeyPatch, missed: str, made_up: int, of: Any
) -> None:
    """After an hour without anybody, one missed run comes, or none, or each."""
    process = start_process("p", {"tick": every(of, options={"missed": missed})})
    now_ms = process.store.now_ms()
    monkeypatch.setattr(process.store, "now_ms", lambda: now_ms)  # no run becomes due between the look and the count
    process.age("tick", HOUR_MS + 5000)
    process.step()
    past = [due for _, due in process.armed() if due <= now_ms]
    assert made_up <= len(past) <= made_up + (missed == "all")
    assert [due for _, due in process.armed() if due > now_ms]
    assert all(now_ms - due <= 600_000 for due in past[-1:])
    assert {later - before for before, later in pairwise(past)} <= {600_000.0}


def test_pause_and_resume(start_process: StartProcess) -> None:
    """A paused entry has no run, and after its pause none is made up."""
    process = start_process("p", {"tick": every(600.0), "other": every(600.0)})
    process.age("tick", HOUR_MS)
    process.store.part(PeriodicStore).pause(["tick"])
    process.step()
    assert len(process.armed()) == 1
    process.store.part(PeriodicStore).resume(["tick"])
    process.step()
    assert [round((due - process.store.now_ms()) / 1000, -2) for _, due in process.armed()] == [600.0, 600.0]


def test_messages_are_those_of_beat(start_process: StartProcess) -> None:
    """A message has the arguments, options and header of beat's; an expiry counts from its run."""
    options = {"queue": "q", "priority": 3, "headers": {"own": 1}, "expires": 30, "countdown": 5}
    entry = every(600.0, args=(1, BeatLazyFunc(lambda: "lazy")), kwargs={"k": "v"}, options=options)
    process = start_process("p", {"tick": entry})
    [message] = by_id.browse(process.store, "q")
    body = json.loads(message.body or b"")
    headers, properties = body["headers"], body["properties"]
    assert (headers["task"], headers["celery_beat_task"], headers["own"]) == ("shop.tick", True, 1)
    assert headers["argsrepr"] == "[1, 'lazy']"
    assert (properties["priority"], headers["periodic_entry"]) == (3, "tick")
    assert headers["ignore_result"] in (False, None)
    [(at_ms, _)] = process.store.part(PeriodicStore).notes(["q"])["q"]["tick"].runs
    assert message.due_ms == at_ms + 5000
    assert datetime.fromisoformat(headers["expires"]).timestamp() * 1000 == at_ms + 30_000


def test_of_many_alike_a_template_makes_the_same(start_process: StartProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages of entries with the same task and options are those that Celery makes."""

    def said(caught: messages.Caught) -> Any:
        message = json.loads(caught.offer.body)
        left_s = message["properties"].pop("expiration", None)  # which counts from now, and is part of the tag
        tag = message["properties"].pop("delivery_tag")
        return message, left_s is None and tag, caught.queue, caught.offer[:3], caught.expire_ms

    options: list[dict[str, Any]] = [{}, {"expires": 30}, {"expires": "next"}, {"queue": "q", "priority": 3}]
    options += [{"headers": {"own": 1}, "countdown": 5}, {"ignore_result": True, "serializer": "yaml"}]
    entries = {
        f"{number} of {at}": every(600.0, args=(number, BeatLazyFunc(lambda: "lazy")), kwargs={"é": None}, options=one)
        for at, one in enumerate(options)
        for number in range(3)
    }
    process = start_process("p", {})
    found, at_ms = checked(process.app, entries).entries.values(), int(process.store.now_ms()) + HOUR_MS
    made = []
    for before in (len(entries), 0):
        monkeypatch.setattr(messages, "_BEFORE_TEMPLATE", before)
        made.append([said(*process.arming._messages.of(entry, at_ms, at_ms + 600_000)) for entry in found])
    assert made[0] == made[1]
    assert {type(like).__name__ for like in process.arming._messages._like.values()} == {"_Like"}


def test_a_run_may_expire_with_the_next(start_process: StartProcess) -> None:
    """With ``expires="next"`` a run that has not begun expires when the next one is due."""
    process = start_process("p", {"tick": every(600.0, options={"expires": "next"})})
    [message] = by_id.browse(process.store, "celery")
    expires = json.loads(message.body or b"")["headers"]["expires"]
    assert datetime.fromisoformat(expires).timestamp() * 1000 == message.due_ms + 600_000


def test_a_countdown_makes_no_run_early(start_process: StartProcess) -> None:
    """As with beat, a run with a countdown below 0 comes at its time, and one with a countdown above 0 later."""
    for countdown, later_ms in ((-5, 0), (5, 5000)):
        options = {"countdown": countdown, "queue": f"q{countdown}"}
        process = start_process(f"p{countdown}", {"tick": every(600.0, options=options)})
        [(at_ms, _)] = process.store.part(PeriodicStore).notes([options["queue"]])[options["queue"]]["tick"].runs
        assert [due_ms for _, due_ms in process.armed(options["queue"])] == [at_ms + later_ms]
        process.arming.end()


def test_wrong_entries_stop_no_others(start_process: StartProcess, caplog: pytest.LogCaptureFixture) -> None:
    """Each entry that cannot run is named, with the reason, and the others are armed."""

    def fail() -> None:
        raise LookupError("no such thing")

    process = start_process(
        "p",
        {
            "never": {"task": "shop.tick", "schedule": Never()},
            "no schedule": {"task": "shop.tick", "schedule": "soon"},
            "no task": {"schedule": 1.0},
            "": every(600.0),
            "typo": every(600.0, tsak=1),
            "missed": every(600.0, options={"missed": "some"}),
            "lazy": every(600.0, args=[BeatLazyFunc(fail)]),
            "fanout": every(600.0, options={"queue": "all"}),
            "good": every(600.0),
        },
        task_queues=[Queue("celery"), Queue("all", Exchange("all", "fanout"))],
    )
    assert len(process.armed()) == 1
    assert "periodic entry '' does not run: it has no name" in caplog.text
    for name in ("no schedule", "no task", "typo", "missed"):
        assert f"periodic entry {name!r} does not run: " in caplog.text
    wrong = [record.args[0] for record in caplog.records if "does not run: " in record.msg and record.args]
    assert wrong == sorted(wrong)
    assert "periodic entry 'never' cannot be sent: NeverComes: " in caplog.text
    assert "'lazy' cannot be sent: LookupError: no such thing" in caplog.text
    assert "periodic entry 'good': this process knows no task shop.tick" in caplog.text
    records = {name: json.loads(record) for name, record in process.store.part(PeriodicStore).records().items()}
    assert "never comes" in records["never"]["error"]
    assert "LookupError" in records["lazy"]["error"]
    assert "fanout exchange all" in records["fanout"]["error"]


def test_run_now(start_process: StartProcess) -> None:
    """A run that somebody wants now goes to its queue once, and the schedule goes on as it was."""
    process = start_process("p", {"tick": every(600.0)})
    before = process.armed()
    process.store.part(PeriodicStore).request("the-run", "tick")
    process.store.part(PeriodicStore).request("another", "unknown")
    process.step()
    process.store.part(PeriodicStore).request("the-run", "tick")  # as after a process that died before its end
    process.step()
    assert process.armed() == before
    [raw] = process.store.client.lrange("celery", 0, -1)
    assert json.loads(raw)["headers"]["id"] == "the-run"
    assert process.store.part(PeriodicStore).wishes().requests == {}


def test_a_redis_that_has_lost_its_data(start_process: StartProcess) -> None:
    """The same process arms the entries anew."""
    process = start_process("p", {"tick": every(600.0)})
    process.store.client.flushall()
    process.step()
    assert len(process.armed()) == 1


def test_a_stock_beat_beside_us_is_noticed(start_process: StartProcess, caplog: pytest.LogCaptureFixture) -> None:
    """A message of beat without an entry of ours is noted and logged once; a retry of ours is none."""
    process = start_process("p", {"tick": every(600.0)})
    armer = Armer(process.app, Settings(process.app))
    armer._arming = process.arming
    request = SimpleNamespace(name="shop.tick", on_success=None, on_failure=None)
    for headers in ({BEAT: True, ENTRY: "tick"}, {BEAT: True, "retries": 1}, {}):
        request.message = SimpleNamespace(headers=headers)
        armer.look_at(request)
        process.step()
    assert process.store.part(PeriodicStore).sightings() == {}
    for _ in range(2):
        request.message = SimpleNamespace(headers={BEAT: True})
        armer.look_at(request)
        process.step()
    assert [*process.store.part(PeriodicStore).sightings()] == [STOCK_BEAT]
    assert caplog.text.count("a stock beat sends periodic tasks") == 1


def test_an_eager_app_arms_nothing(start_process: StartProcess, caplog: pytest.LogCaptureFixture) -> None:
    """With ``task_always_eager`` no task runs in the process that arms."""
    process = start_process("p", {"tick": every(600.0)}, task_always_eager=True)
    assert process.armed() == []
    assert "task_always_eager is set" in caplog.text


def test_one_off_start_and_end(start_process: StartProcess) -> None:
    """An entry runs once, or first at its start, or not after its end, where its source says so."""
    process = start_process("p", {})
    now_ms = int(process.store.now_ms())
    kinds: dict[str, dict[str, Any]] = {
        "once": {"one_off": True},
        "later": {"start_ms": now_ms + HOUR_MS},
        "ended": {"end_ms": now_ms},
        "off": {"is_on": False},
    }
    given = {name: Entry(name, "t", schedule(30.0), **more) for name, more in kinds.items()}
    process.arming._found = checked(process.app, given)
    process.arming._token = None
    process.step()
    notes = process.store.part(PeriodicStore).notes(["celery"])["celery"]
    assert {name: len(note.runs) for name, note in notes.items()} == {"once": 1, "later": 1}
    assert notes["later"].latest_ms == now_ms + HOUR_MS
    process.arming._token = None
    process.step()
    assert len(process.armed()) == 2


def test_an_entry_of_a_certain_time(start_process: StartProcess) -> None:
    """It runs once, at once if its time is past, and once more with a later time, also when another process arms."""
    clocked = pytest.importorskip("django_celery_beat.clockedschedule").clocked

    def at(hours: int, **options: Any) -> dict[str, Any]:
        return every(clocked(datetime.now(UTC) + timedelta(hours=hours)), options=options)

    schedule = {"past": at(-1), "soon": at(1, queue="slow", expires="next")}
    first = start_process("first", schedule)
    [(past, _)], [soon] = first.armed(), by_id.browse(first.store, "slow")
    assert json.loads(soon.body or b"")["headers"]["expires"] is None
    first.age("past", 1000)
    first.step()
    assert first.armed() == []
    first.arming.end()
    second = start_process("second", schedule | {"past": at(2)})
    assert [due_ms - second.store.now_ms() > HOUR_MS for _, due_ms in second.armed()] == [True]
    assert second.armed()[0][0] != past
    assert len(second.armed("slow")) == 1


class Rows:
    """A table with one row."""

    changes = True

    def __init__(self, app: Any, row: Entry) -> None:
        self._app, self._row = app, row

    def read(self) -> Entries:
        """Returns it."""
        return checked(self._app, {self._row.name: self._row})

    def note(self, runs: Any, now_ms: float) -> None:
        """Notes nothing."""


#: Starts a process with a row, which it arms, or dies before.
StartWith = Callable[..., Any]


@pytest.fixture
def start_with(start_process: StartProcess, monkeypatch: pytest.MonkeyPatch) -> StartWith:
    def start(row: Entry, *, dies: bool = False) -> Process | None:
        with monkeypatch.context() as patched:
            patched.setattr(periodic, "source_of", lambda app: Rows(app, row))
            if not dies:
                return start_process("p", {})
            patched.setattr(Arming, "_arm_page", Mock(side_effect=OSError("killed")))
            with pytest.raises(OSError, match="killed"):
                start_process("p", {})
            return None

    return start


def test_a_one_off_in_place_of_another_comes_once(start_with: StartWith) -> None:
    """It is a row with a run of its own, also when a process dies before it arms it, or leads after the run."""
    once = Entry("e", "t", schedule(600.0), one_off=True, row=1)
    start_with(once).age("e", HOUR_MS)
    assert start_with(once).armed() == []
    other = replace(once, row=2)
    start_with(other, dies=True)
    process = start_with(other)
    assert len(process.armed()) == 1
    assert start_with(other).armed() == process.armed()
    process.age("e", 0)
    assert start_with(other).armed() == []


def test_a_row_with_another_name_repeats_no_run(start_with: StartWith) -> None:
    """It goes on from its runs under the old name, also when a process dies before it arms the new one."""
    first = int(start_with(Entry("x", "t", schedule(600.0))).store.now_ms()) - HOUR_MS
    old = Entry("old", "t", schedule(600.0), last_ms=first, row=1)
    start_with(old).age("old", 60_000)
    new = replace(old, name="new")
    start_with(new, dies=True)
    process = start_with(new)
    [(_, due_ms)] = process.armed()
    assert due_ms > process.store.now_ms()
    assert [*process.store.part(PeriodicStore).records()] == ["new"]


def test_many_entries_are_armed_in_several_steps(start_process: StartProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that arms many entries renews its lease in between, and each is armed once."""
    monkeypatch.setattr(arming, "_BUSY_S", -1.0)
    process = start_process("p", {f"e{number}": every(3600.0) for number in range(450)})
    assert len(process.armed()) == 450
    assert process.arming.step() == arming.LOOK_S
