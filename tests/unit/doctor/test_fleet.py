"""Checks of workers that answer."""

from time import time
from types import SimpleNamespace
from typing import Any

import pytest

from celery_ext.doctor import Finding, fleet
from celery_ext.doctor.fleet import faults_of
from celery_ext.doctor.servers import ClockOffset
from celery_ext.doctor.subject import Subject
from celery_ext.doctor.workers import Worker, options_of_stock
from kombu_delayq.options import Options
from tests.support.examining import levels

NOW_S = time()


def worker(name: str = "w@host", *, ours: bool = True, **fields: Any) -> Worker:
    """Makes a worker whose clock is right and that has nothing odd."""
    usual = {
        "pid": 1,
        "transport": "delayq" if ours else "redis",
        "versions": {"kombu": "5.7.0", **({"kombu_delayq": "1.0.0"} if ours else {})},
        "options": {"consume": "reliable"} if ours else options_of_stock({}),
        "queues": ["celery"],
        "prefetch": 8,
        "clock_s": NOW_S,
        "between_s": (NOW_S - 0.1, NOW_S + 0.1),
        "running": [],
    }
    return Worker(name, ours=ours, **{**usual, **fields})


def look(check: Any, *workers: Worker, redis_ahead_s: float = 0.0) -> list[Finding]:
    """Makes a check of workers beside a Redis that is behind this process by so much."""
    servers = SimpleNamespace(clocks=lambda: {"redis": ClockOffset(redis_ahead_s, 0.001)})
    store: Any = SimpleNamespace(part=lambda _: servers, options=Options(transfer_rate={"mails": 20, "sms": [5, 40]}))
    return list(check(Subject(None, store, workers=workers)))


def test_a_fleet_of_one_kind_has_no_finding() -> None:
    """Whatever kind of check."""
    for check in (fleet.fleet, fleet.same_options, fleet.versions, fleet.clocks, fleet.rates, fleet.long_tasks):
        assert look(check, worker("a@host"), worker("b@host")) == [], check


def test_stock_workers_are_named() -> None:
    """Some are a warning, and if there is none but these, it is an error."""
    [found] = look(fleet.fleet, worker("a@host"), worker("b@host", ours=False))
    assert (found.level, "1 of 2 workers" in found.found, "b@host (redis)" in found.found) == ("warning", True, True)
    for names, said in (("b",), "the only worker uses"), ("bc", "all workers use"):
        [found] = look(fleet.fleet, *(worker(f"{name}@host", ours=False) for name in names))
        assert (found.level, found.found.startswith(f"{said} the stock transport: b@host")) == ("error", True)
    many = [worker(f"{name}@host", ours=name == "a") for name in "abc"]
    assert look(fleet.fleet, *many)[0].found.startswith("2 of 3 workers use the stock transport: b@host")


def test_more_messages_in_hand_than_a_rate_lets_go_are_named() -> None:
    """The prefetch of all workers of a queue counts together; a burst may be as large."""
    of_all = {"queues": ["mails", "sms", "other"], "prefetch": 16}
    assert look(fleet.rates, worker("a@host", **of_all)) == []
    [found] = look(fleet.rates, worker("a@host", **of_all), worker("b@host", **of_all))
    assert found.level == "notice"
    assert "mails (32 messages, 20 a second)." in found.found


def test_options_that_differ_are_named_with_their_values() -> None:
    """Where messages would not be found it is an error; 300 and 300.0 are alike."""
    first = worker("a@host", options={"sep": ":", "max_delay": 300, "transfer_rate": {"mails": 5}})
    other = worker("b@host", options={"sep": "|", "max_delay": 300, "transfer_rate": {"mails": 6}})
    found = look(fleet.same_options, first, other)
    assert levels(found) == ["error", "warning"]
    assert 'the transport option sep differs: ":" in a@host; "|" in b@host' in found[0].found
    assert "transfer_rate" in found[1].found


def test_releases_and_faults_of_workers_are_named() -> None:
    """An upgrade that is under way is a notice, a kombu that may stop consuming a warning."""
    older = worker("b@host", versions={"kombu_delayq": "0.9.0", "kombu": "5.6.2"})
    stock = worker("c@host", ours=False, versions={"kombu": "5.6.2"})
    found = look(fleet.versions, worker("a@host"), older, stock)
    assert levels(found) == ["notice", "warning", "notice"]
    assert "0.9.0 in b@host; 1.0.0 in a@host" in found[0].found
    assert "10205" in found[1].found
    assert "c@host (kombu 5.6.2)" in found[1].found
    assert "b@host" not in found[1].found
    assert "b@host (kombu 5.6.2), c@host (kombu 5.6.2)" in found[2].found


@pytest.mark.parametrize(
    ("version", "ours", "count"),
    [("5.7.0", False, 0), ("5.6.2", False, 2), ("5.6.2", True, 1), ("5.7.0rc1", False, 2), ("", False, 0)],
)
def test_faults_of_kombu_end_with_a_release(version: str, ours: bool, count: int) -> None:
    """A version that cannot be read has none."""
    assert len(list(faults_of(version, ours=ours))) == count


@pytest.mark.parametrize(("off_s", "said"), [(30.0, "(29.9s ahead)"), (-30.0, "(29.9s behind)"), (0.9, "")])
def test_clocks_of_workers_are_compared_with_that_of_redis(off_s: float, said: str) -> None:
    """How long the answer took does not count, and the clock of this process neither."""
    for here_s in (0.0, 600.0):
        asked = worker(clock_s=NOW_S + off_s, between_s=(NOW_S - 0.1 + here_s, NOW_S + 0.1 + here_s))
        found = look(fleet.clocks, asked, redis_ahead_s=here_s)
        assert levels(found) == (["warning"] if said else [])
        assert all("w@host (30s" in each.found or said in each.found for each in found)
    assert look(fleet.clocks, worker(clock_s=None)) == []


def test_tasks_that_run_for_too_long_are_found() -> None:
    """Only where a visibility timeout counts: on the stock transport, and with kombu's way of consuming."""
    running = [("report", NOW_S - 700), ("mail", NOW_S - 10)]
    brpop = {"consume": "brpop", "visibility_timeout": 600}
    stock = worker("s@host", ours=False, options=options_of_stock({"visibility_timeout": 600}), running=running)
    [found] = look(fleet.long_tasks, worker("a@host", running=running), stock)
    assert (found.level, found.found.startswith("1 task has been running for longer")) == ("error", True)
    assert ("report in s@host" in found.found, "mail" in found.found) == (True, False)
    assert levels(look(fleet.long_tasks, worker(options=brpop, running=running))) == ["error"]
