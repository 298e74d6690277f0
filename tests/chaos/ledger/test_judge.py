"""The judgement of ledgers that are made up."""

from pathlib import Path

import pytest

from tests.chaos.fleet.posts import Plan
from tests.chaos.fleet.setup import TICK, key_of
from tests.chaos.ledger.events import Fault, Ledger, Writer, read
from tests.chaos.ledger.judge import REPLAYER, UNEXPLAINED, Finding, Judge, Task, add_missing_ticks, gather
from tests.chaos.run import Outcome

OURS = Writer("ours-threads", "ours", 10, 10)
OTHER = Writer("ours-solo", "ours", 20, 20)
STOCK = Writer("stock-prefork", "stock", 30, 31)
SENDER = Writer("publisher", "ours", 40, 40)
INTENT = (SENDER, "I a plain chaos.ours 0 0.0 100.0")
CONFIRM = (SENDER, "C a added 100.1")


def judged(
    *events: tuple[Writer, str], faults: tuple[Fault, ...] = (), stuck: dict[str, str] | None = None
) -> list[Finding]:
    """Judges events, with a lease of 5 s."""
    tasks = gather((writer, line.split()) for writer, line in events)
    return list(Judge(faults, 5.0, stuck or {}).findings(tasks))


def run_by(writer: Writer, start: float, number: int = 0, eta: float = 0.0) -> list[tuple[Writer, str]]:
    """Makes the events of a run that takes 0.1 s."""
    return [(writer, f"S a {number} {eta} 0 {start}"), (writer, f"D a {number} {start + 0.1}")]


def test_nothing_is_found_of_a_task_that_ran_once():
    """A task that ran once at its time is no finding."""
    assert judged(INTENT, CONFIRM, *run_by(OURS, 100.2)) == []


def test_lost():
    """A confirmed task that never ran is lost, by those who consume its queue."""
    (found,) = judged(INTENT, CONFIRM)
    assert (found.what, found.by) == ("lost", "ours")


def test_an_unconfirmed_task_may_run_or_not():
    """A task whose publisher was killed before its confirmation is not lost."""
    assert judged(INTENT) == []
    assert judged(INTENT, *run_by(OURS, 100.2)) == []


def test_lost_before_its_last_try():
    """A task that was to be retried, and whose retry never ran, is lost."""
    intent = (SENDER, "I a retry chaos.mixed 1 0.0 100.0")
    (found,) = judged(intent, CONFIRM, *run_by(STOCK, 100.2))
    assert (found.what, found.by) == ("lost", "mixed")
    assert judged(intent, CONFIRM, *run_by(STOCK, 100.2), (STOCK, "N a 1 101.0"), *run_by(OURS, 101.1, 1)) == []


def test_early():
    """A task that starts before it is due is early, by the one who ran it."""
    intent = (SENDER, "I a delayed chaos.mixed 0 105.0 100.0")
    (found,) = judged(intent, CONFIRM, *run_by(STOCK, 104.9))
    assert (found.what, found.by) == ("early", "stock")
    assert judged(intent, CONFIRM, *run_by(STOCK, 105.0)) == []


def test_an_early_retry():
    """A retry that starts before the time that the try before it noted is early."""
    intent = (SENDER, "I a chain chaos.ours 1 0.0 100.0")
    before = [intent, CONFIRM, *run_by(OURS, 100.2), (OURS, "N a 1 101.0")]
    (found,) = judged(*before, *run_by(OURS, 100.9, 1))
    assert (found.what, found.by) == ("early", "ours")


def test_stuck():
    """A task whose message is still in Redis is stuck, not lost."""
    (found,) = judged(INTENT, CONFIRM, stuck={"a": "unacked"})
    assert (found.what, found.by, found.why) == ("stuck", "ours", "in unacked")


def test_double_without_a_reason():
    """A second run that no fault explains is the transport's."""
    (found,) = judged(INTENT, CONFIRM, *run_by(OURS, 100.2), *run_by(OTHER, 150.0))
    assert (found.what, found.by, found.why, found.is_bad) == ("double", "ours", UNEXPLAINED, True)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (Fault("kill", "ours-threads", 10, 100.25, 100.25), "its worker was killed"),
        (Fault("stop", "ours-solo", 20, 96.0, 105.0), "its worker was stopped"),
        (Fault("client kill", "", 10, 100.25, 100.25), "its worker's connection was cut"),
        (Fault("redis kill", "", 0, 99.0, 101.0), "Redis was away"),
        (Fault("slow shutdown", "ours-threads", 10, 100.1, 120.1), "its worker was killed"),
    ],
)
def test_double_with_a_reason(fault: Fault, why: str):
    """A fault of one of the two workers while it may have held the message explains a second run."""
    (found,) = judged(INTENT, CONFIRM, *run_by(OURS, 100.2), *run_by(OTHER, 105.5), faults=(fault,))
    assert (found.what, found.why, found.is_bad) == ("double", why, False)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("kill", "another", 99, 100.25, 100.25),
        Fault("kill", "ours-threads", 10, 130.0, 130.0),
        Fault("stop", "ours-threads", 10, 100.15, 100.25),
        Fault("term", "ours-threads", 10, 100.15, 100.25),
    ],
)
def test_faults_that_explain_nothing(fault: Fault):
    """Another's fault, one long after, a stop shorter than the lease and a warm shutdown explain no second run."""
    (found,) = judged(INTENT, CONFIRM, *run_by(OURS, 100.2), *run_by(OTHER, 150.0), faults=(fault,))
    assert found.why == UNEXPLAINED


def test_double_by_its_publisher():
    """A publisher that repeated after an error made the second message."""
    (found,) = judged(INTENT, (SENDER, "E a 100.05"), CONFIRM, *run_by(OURS, 100.2), *run_by(OTHER, 150.0))
    assert found.why == "its publisher repeated it"


def test_double_by_the_try_before():
    """Two runs of a try, each of which publishes the next one, explain two runs of that."""
    intent = (SENDER, "I a retry chaos.ours 1 0.0 100.0")
    kill = Fault("kill", "ours-threads", 10, 100.25, 100.25)
    runs = [*run_by(OURS, 100.2), *run_by(OTHER, 105.5), *run_by(OTHER, 120.0, 1), *run_by(OTHER, 135.0, 1)]
    first, second = judged(intent, CONFIRM, *runs, faults=(kill,))
    assert (first.why, second.why) == ("its worker was killed", "the try before it ran twice")


def test_double_with_a_stock_worker():
    """A second run in which a stock worker took part is stock's."""
    (found,) = judged(INTENT, CONFIRM, *run_by(STOCK, 100.2), *run_by(OURS, 150.0))
    assert (found.by, found.is_bad) == ("stock", False)


def keyed(*, faults: tuple[Fault, ...] = (), **starts: float) -> list[Finding]:
    """Judges keyed tasks of one key with a limit of 2, each of 0.1 s, the first of them by another worker."""
    events: list[tuple[Writer, str]] = []
    for place, (name, start) in enumerate(starts.items()):
        task_id, by = f"{name}.1", OURS if place else OTHER
        events += [(SENDER, f"I {task_id} keyed chaos.ours 0 0.0 100.0"), (SENDER, f"C {task_id} added 100.1")]
        events += [(by, f"S {task_id} 0 0.0 0 {start}"), (by, f"D {task_id} 0 {start + 0.1}")]
    return judged(*events, faults=faults)


def test_more_of_a_key_at_once_than_its_limit() -> None:
    """Of three runs of a key at once, whose limit is 2, the last one is over it."""
    assert key_of("a.1") == "two:1"
    assert keyed(a=100.2, b=100.25, c=100.31) == []
    (found,) = keyed(a=100.2, b=100.25, c=100.28)
    assert (found.what, found.id, found.by, found.is_bad) == ("over", "c.1", "ours", True)


@pytest.mark.parametrize("kind", ["kill", "stop"])
def test_a_process_that_was_cut_off_may_run_another_one(kind: str) -> None:
    """What a killed or stopped process still ran does not count."""
    fault = Fault(kind, "ours-solo", 20, 100.22, 106.0)
    assert keyed(a=100.2, b=100.25, c=100.28, faults=(fault,)) == []


def once(ran: set[int], *outcomes: str) -> list[Finding]:
    """Judges tasks of one waiting key, with what became of each (empty: its publisher was killed)."""
    events: list[tuple[Writer, str]] = []
    for number, outcome in enumerate(outcomes):
        events.append((SENDER, f"I a.{number} once chaos.ours 0 100.5 100.0"))
        events += [(SENDER, f"C a.{number} {outcome} 100.1")] if outcome else []
        events += [(OURS, f"S a.{number} 0 0.0 0 100.6")] if number in ran else []
    return judged(*events)


def test_of_tasks_of_a_waiting_key_those_run_that_were_stored_and_not_replaced() -> None:
    """A task that was kept out or replaced does not run, and the others do."""
    assert once({0}, "added", "kept", "kept") == []
    assert once({2}, "added", "replaced", "replaced") == []
    (found,) = once(set(), "added", "kept")
    assert (found.what, found.by, found.is_bad) == ("lost", "ours", True)
    (found,) = once({0, 1}, "added", "replaced")
    assert (found.what, found.by, found.is_bad) == ("double", "ours", True)


def test_a_publisher_that_was_killed_leaves_open_what_waits_under_its_key() -> None:
    """Its task may have taken the place of the one before."""
    assert once({1}, "added", "") == once(set(), "added", "") == once({0, 1}, "added", "") == []


def test_a_dead_letter_that_is_replayed_twice() -> None:
    """A replay that was cut off explains a second one, and without it there is no reason."""
    intent = (SENDER, "I a letter chaos.ours 1 0.0 100.0")
    runs = [*run_by(OURS, 100.2), *run_by(OURS, 105.0, 1), *run_by(OTHER, 107.0, 1)]
    assert judged(intent, CONFIRM, *runs[:4]) == []
    (found,) = judged(intent, CONFIRM, *runs[:2])
    assert found.what == "lost"
    (found,) = judged(intent, CONFIRM, *runs)
    assert found.is_bad
    (found,) = judged(intent, CONFIRM, *runs, faults=(Fault("replay", "", REPLAYER, 104.0, 105.0),))
    assert not found.is_bad


def test_a_ledger_is_read_as_it_was_written(tmp_path: Path):
    """Each process has a file of its own, and a line that was cut short is left out."""
    ledger = Ledger(str(tmp_path), "ours-solo", "ours")
    ledger.write_many(["S a 0 0.0 0 100.2"])
    ledger.write("D", "a", 0)
    (file,) = tmp_path.glob("*.ledger")
    with file.open("a") as end:
        end.write("S b 0 0.0")
    found = list(read(tmp_path))
    assert [fields[:2] for _, fields in found] == [["S", "a"], ["D", "a"]]
    assert {(writer.name, writer.by) for writer, _ in found} == {("ours-solo", "ours")}


def test_a_run_of_the_periodic_entry_that_is_missing_is_lost() -> None:
    """Between the first and the last run of the entry each second has one, or it counts as lost."""
    tasks = {str(at): Task(TICK, "chaos.ours", due=float(at), confirmed=at) for at in (100, 101, 103)}
    add_missing_ticks(tasks)
    assert sorted(tasks) == ["100", "101", "103", "tick-102000"]
    [found] = Judge([], 5.0, {}).findings({"tick-102000": tasks["tick-102000"]})
    assert (found.what, found.by) == ("lost", "ours")


@pytest.mark.parametrize("what", ["lost", "early", "stuck", "over", "double"])
def test_whatever_is_found_of_ours_makes_a_run_fail(what: str) -> None:
    """Each kind of finding counts as wrong, under its own name."""
    found = Finding(what, "a", "ours", UNEXPLAINED, "")
    outcome = Outcome(Plan(), {}, {}, {}, [found], [], [], [], drained=True)
    assert [name.split()[0] for name, count in outcome.wrong().items() if count] == [what]
