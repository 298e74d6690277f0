"""A run: the fleet works while faults befall it, then Redis drains, and the ledger is judged."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from celery_ext.connection import open_store
from celery_ext.dead_letters import DeadLetters
from celery_ext.periodic import control
from kombu_delayq.errors import StoreUnavailable
from tests.chaos.brokers.single import SingleRedis
from tests.chaos.faults import Chaos, Draw, drawn
from tests.chaos.fleet.app import make_app
from tests.chaos.fleet.members import Fleet
from tests.chaos.fleet.posts import Plan, posts
from tests.chaos.fleet.setup import LETTERS, OURS, STOCK, TICK
from tests.chaos.ledger import leftovers
from tests.chaos.ledger.aof import blamed
from tests.chaos.ledger.events import FaultLog, read
from tests.chaos.ledger.judge import REPLAYER, Finding, Judge, Run, Task, add_missing_ticks, gather
from tests.chaos.ledger.logs import false_returns, silences
from tests.support.conditions import until

#: How often the fleet is looked after, and how often the progress is told, in s.
LOOK_S, TELL_S = 0.05, 5.0
#: In so many looks, one after the other, Redis must have no message. A look takes one key after the other, and may miss
#: a message that goes from a key it has not come to into one that it has seen.
EMPTY_LOOKS = 3
#: How long publishers and workers may take to end, in s.
RETIRE_S = 120.0


@dataclass
class Outcome:
    """What a run found.

    Attributes:
        plan: What was run.
        seconds: How long publishers published, until Redis was drained, and until all was judged.
        tasks: Number of tasks by kind, with ``confirmed``, ``ran`` and ``runs``.
        faults: Number of faults by kind.
        findings: Whatever was not right.
        left: Every key at the end.
        crashes: Processes that ended by themselves after they had worked, in words.
        false_starts: Those that ended by themselves before, as Celery does where Redis is full when it starts.
        drained: Whether Redis was drained.
        runs_by: Number of runs by worker.
        false_returns: Consumers that were taken for dead and lived, in words.
    """

    plan: Plan
    seconds: dict[str, float]
    tasks: dict[str, int]
    faults: dict[str, int]
    findings: list[Finding]
    left: list[leftovers.Left]
    crashes: list[str]
    false_starts: list[str]
    drained: bool
    runs_by: dict[str, int] = field(default_factory=dict)
    false_returns: list[str] = field(default_factory=list)

    def count(self, what: str, by: str = "") -> int:
        """Counts findings, also of one side only."""
        return sum(finding.what == what and by in ("", finding.by) for finding in self.findings)

    def wrong(self) -> dict[str, int]:
        """Counts what our part did wrong, by what it is."""
        bad = Counter(finding.what for finding in self.findings if finding.is_bad and finding.by == OURS)
        crashes = [crash for crash in self.crashes if not crash.startswith(f"publisher-{STOCK}-")]
        kinds = {
            "lost": "lost",
            "early": "early",
            "stuck": "stuck",
            "over a limit": "over",
            "double without a reason": "double",
        }
        return {
            **{name: bad[what] for name, what in kinds.items()},
            "keys left that should not be": sum(not left.why for left in self.left),
            "consumers taken for dead that lived": len(self.false_returns),
            "of our processes ended by themselves": sum(not crash.startswith(f"{STOCK}-") for crash in crashes),
        }


class Chaotic:
    """One run.

    Args:
        plan: What is run.
        broker: The Redis, running.
        directory: For the ledger and the logs.
        tell: Gets lines of progress.
        draws: The faults; by default drawn as the plan says. The run ends when they are over.
    """

    def __init__(
        self,
        plan: Plan,
        broker: SingleRedis,
        directory: Path,
        tell: Callable[[str], object] = lambda line: None,
        draws: Iterator[Draw] | None = None,
    ) -> None:
        self._plan = plan
        self._directory = directory
        self._tell = tell
        self._broker = broker
        self._draws = draws or drawn(plan.seed, plan.every_s, broker.weights)
        self._faults = broker.faults

    def run(self) -> Outcome:
        """Runs. Returns what was found."""
        broker = self._broker
        begun = time.time()
        fleet = Fleet(posts(self._plan, broker, self._directory), self._faults, self._directory)
        try:
            chaos = Chaos(fleet, broker, self._plan.lease_s, self._draws)
            replays = Replays(fleet, self._faults)
            self._publish(fleet, chaos, broker, replays)
            published = time.time()
            until(lambda: fleet.retire("publisher"), RETIRE_S, "publishers have ended")
            until(lambda: _pause_ticks(fleet), RETIRE_S, "the periodic entry is paused")
            drained = self._drain(fleet, broker, replays)
            until_drained = time.time()
            until(lambda: fleet.retire("worker"), RETIRE_S, "workers have ended")
            self._await_leases(broker)
            until(lambda: fleet.retire("transfer"), RETIRE_S, "transfer workers have ended")
        finally:
            fleet.close()
        with broker.client() as client:
            left = leftovers.left(client, running=False)
            stuck = leftovers.ids_in(client, left)
        self._tell("judging the ledger")
        tasks = gather(read(self._directory))
        add_missing_ticks(tasks)
        silent = list(silences(self._directory, self._plan.lease_s))
        findings = list(Judge([*self._faults.faults, *silent], self._plan.lease_s, stuck).findings(tasks))
        findings = self._blamed(findings, tasks)
        crashes = [fault for fault in self._faults.faults if fault.kind == "crash"]
        worked = {writer.main for writer, _ in read(self._directory)} if crashes else set()
        # A transfer worker writes no ledger, and waits for a Redis that is away or full.
        worked.update(fault.main for fault in crashes if fault.name.startswith("transfer-"))
        return Outcome(
            plan=self._plan,
            seconds={"published": published - begun, "drained": until_drained - begun, "judged": time.time() - begun},
            tasks=_counted(tasks),
            faults=dict(Counter(fault.kind for fault in [*self._faults.faults, *silent])),
            findings=findings,
            left=left,
            crashes=[f"{fault.name}: {fault.note}" for fault in crashes if fault.main in worked],
            false_starts=[f"{fault.name}: {fault.note}" for fault in crashes if fault.main not in worked],
            drained=drained,
            false_returns=[
                f"{fault.name}: {fault.main}" for fault in false_returns(self._directory, self._faults.faults)
            ],
            runs_by=dict(Counter(run.writer.name for task in tasks.values() for run in task.runs)),
        )

    def _publish(self, fleet: Fleet, chaos: Chaos, broker: SingleRedis, replays: "Replays") -> None:
        """Lets publishers publish and faults befall all, for as long as the plan says."""
        begun = told = time.monotonic()
        progress = Progress(self._directory)
        while (passed := time.monotonic() - begun) < self._plan.seconds and not chaos.is_over:
            chaos.step()
            fleet.look()
            broker.look()
            if time.monotonic() - told > TELL_S:
                told = time.monotonic()
                progress.look()
                replays.look()
                self._tell(f"{passed:6.0f} s  {progress}  {self._so_far()}")
            time.sleep(LOOK_S)
        chaos.end()

    def _drain(self, fleet: Fleet, broker: SingleRedis, replays: "Replays") -> bool:
        """Waits until Redis has no message any more, as long as something changes. Returns whether it got so far."""
        changed, last = time.monotonic(), -1
        told, empty = 0.0, 0
        while time.monotonic() - changed < self._plan.standstill_s:
            for member in fleet.of_role("worker", "transfer"):
                member.look()
            replays.look()
            with broker.client() as client:
                count = leftovers.waiting(client) + self._broker.waiting_beside()
            empty = empty + 1 if count == 0 else 0
            if empty == EMPTY_LOOKS:
                return True
            if count != last:
                changed, last = time.monotonic(), count
            if time.monotonic() - told > TELL_S:
                told = time.monotonic()
                self._tell(f"draining: {count:,} left")
            time.sleep(0.2)
        return False

    def _blamed(self, findings: list[Finding], tasks: dict[str, Task]) -> list[Finding]:
        """Returns the findings; for each loss, Redis's own log says whose it is."""
        lost = [finding.id for finding in findings if finding.what == "lost"]
        steps = self._broker.steps(lost) if lost else {}
        known = []
        for finding in findings:
            if finding.what == "lost" and (why := self._flushed(tasks[finding.id])):
                finding = replace(finding, by="promised", why=why)
            elif finding.what == "lost" and finding.id in steps:
                early = tasks[finding.id].kind == "early"
                by, why = blamed(steps[finding.id], finding.by, takes=self._plan.consume == "reliable", early=early)
                details = "; ".join([finding.details, *steps[finding.id][-6:]])
                finding = replace(finding, by=by, why=why, details=details)
            elif finding.what == "lost" and (why := self._excuse(tasks[finding.id])):
                finding = replace(finding, by="replication", why=why)
            known.append(finding)
        return known

    def _excuse(self, task: Task) -> str:
        """Returns why a lost task may be gone: something of it was written where Redis itself loses writes."""
        times = [task.confirmed, task.due, *(due for _, due in task.nexts)]
        times += [at for run in task.runs for at in (run.start, run.end) if at is not None]  # a retry is written last
        return next(filter(None, map(self._broker.excuse, times)), "")

    def _flushed(self, task: Task) -> str:
        """Returns why a lost task may be gone with what Redis had in its queues."""
        due = max([task.due, *(due for _, due in task.nexts)])
        return self._broker.gone_with(task.intended, due)

    def _await_leases(self, broker: SingleRedis) -> None:
        """Waits until the leases of dead consumers have ended and a transfer worker has seen it; not for ever."""
        deadline = time.monotonic() + 4 * self._plan.lease_s + 10
        with broker.client() as client:
            while leftovers.leases(client) and time.monotonic() < deadline:
                time.sleep(0.2)

    def _so_far(self) -> str:
        counts = Counter(fault.kind for fault in self._faults.faults)
        return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))


class Replays:
    """Replays dead letters.

    Args:
        fleet: One with a publisher of ours, whose app is used.
        faults: Gets each replay that an error ended.
    """

    def __init__(self, fleet: Fleet, faults: FaultLog) -> None:
        [setup, *_] = [member.post.setup for member in fleet.of_role("publisher") if member.post.setup.by == OURS]
        self._letters, self._faults = DeadLetters(make_app(setup)), faults

    def look(self) -> None:
        """Replays what is there."""
        begin = time.time()
        try:
            self._letters.replay(queue=LETTERS)
        except (RedisError, OSError, OperationalError, StoreUnavailable) as error:
            self._faults.add("replay", main=REPLAYER, begin=begin, end=time.time(), note=repr(error))


class Progress:
    """Counts events in the ledger while it grows."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}
        self._counts: Counter[bytes] = Counter()

    def look(self) -> None:
        """Reads what is new."""
        for path in self._directory.glob("*.ledger"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                new = file.read()
            self._read[path] = self._read.get(path, 0) + len(new)
            for event in (b"C", b"S"):
                self._counts[event] += new.count(b"\n" + event + b" ")

    def __str__(self) -> str:
        return f"{self._counts[b'C']:,} published, {self._counts[b'S']:,} runs"


def _pause_ticks(fleet: Fleet) -> bool:
    """Pauses the periodic entry, so that Redis can drain. Returns whether nothing is armed."""
    setup = next((member.post.setup for member in fleet.of_role("worker") if member.post.setup.ticks_to), None)
    if setup is None:
        return True
    with (
        make_app(setup) as app,
        suppress(RedisError, OSError, OperationalError),
        app.connection_for_write() as connection,
    ):
        store = open_store(connection)
        control.pause(store, [TICK])
        return all(entry.next_ms is None for entry in control.list_entries(store))
    return False


def _counted(tasks: dict[str, Task]) -> dict[str, int]:
    counts = Counter(task.kind or "unknown" for task in tasks.values())
    runs: list[Run] = [run for task in tasks.values() for run in task.runs]
    return {
        **dict(sorted(counts.items())),
        "all": len(tasks),
        "confirmed": sum(bool(task.confirmed) for task in tasks.values()),
        "unconfirmed that ran": sum(bool(task.runs) and not task.confirmed for task in tasks.values()),
        "runs": len(runs),
    }
