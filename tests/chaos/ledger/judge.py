"""The judgement: what became of each task, and whose fault it is if that was not right."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from tests.chaos.fleet.setup import LIMITS, OURS, STOCK, TICK, TICK_MS, key_of, owner_of, waiting_key_of
from tests.chaos.ledger.events import Fault, Writer

#: By how much two readings of the clock may differ: due times are written in whole ms.
CLOCK_S = 0.001
#: How long after the end of a task its acknowledgement may be on its way, and how long before its start a worker may
#: have had its message in hand, in s. Faults then can make it run twice.
ACK_S, IN_HAND_S = 3.0, 8.0
#: Faults that befall a worker, with the reason for a second run that they give.
REASONS = {
    "kill": "its worker was killed",
    "kill child": "its worker was killed",
    "crash": "its worker ended by itself",
    "slow shutdown": "its worker was killed",
    "stop": "its worker was stopped",
    "silent": "its worker was silent for longer than its lease",
    "client kill": "its worker's connection was cut",
    "redis kill": "Redis was away",
    "debug sleep": "Redis was away",
    "failover": "Redis failed over",
    "primary kill": "Redis failed over",
    "cluster failover": "Redis failed over",
    "node stopped": "Redis failed over",
    "redis full": "Redis was full",
    "redis flush": "Redis had lost its data",
    "replay": "a replay of dead letters was cut off",
    "postgres restart": "the database was away",
    "postgres crash": "the database was away",
}
UNEXPLAINED = "unexplained"
#: The process id of whom the harness notes as the replayer of dead letters, and how long a replay may take, in s.
REPLAYER, REPLAY_S = -2, 30.0
#: Faults of a process after which a task may still run in it whose key has been given to others.
ENDS = {"kill", "kill child", "crash", "slow shutdown", "stop", "silent"}


@dataclass(slots=True)
class Run:
    """One start of a try of a task.

    Attributes:
        writer: Who ran it.
        number: The try, 0 for the first.
        start: When it started, s since the epoch.
        eta: The due time that the message had; 0 without.
        end: When it ended; None if it did not.
    """

    writer: Writer
    number: int
    start: float
    eta: float = 0.0
    end: float | None = None


@dataclass(slots=True)
class Task:
    """What the ledger has of a task.

    Attributes:
        kind: Such as ``plain`` or ``early``.
        queue: Its queue.
        tries: How often it fails before it succeeds.
        due: When it was due, s since the epoch; 0 at once.
        intended: When its publisher began; 0 if no publisher noted it.
        confirmed: When its publisher was done; 0 if it never was.
        outcome: What became of it then, such as ``added``.
        errors: How often publishing raised.
        nexts: Due times noted for further tries.
        refused: How often its retry was refused and it went back to its queue.
        runs: All runs.
    """

    kind: str = ""
    queue: str = ""
    tries: int = 0
    due: float = 0.0
    intended: float = 0.0
    confirmed: float = 0.0
    outcome: str = ""
    errors: int = 0
    nexts: list[tuple[int, float]] = field(default_factory=list)
    refused: int = 0
    runs: list[Run] = field(default_factory=list)


@dataclass(frozen=True)
class Finding:
    """A task that was not run once at its time.

    Attributes:
        what: ``lost``, ``early``, ``double``, ``stuck``, or ``over`` the limit of its key.
        id: The task.
        by: Whose fault: ``ours``, ``stock``, ``mixed`` (either), ``replication`` (Redis's), or ``promised`` where
            nothing more was promised.
        why: The reason, in words.
        details: What the ledger has, for the reader.
    """

    what: str
    id: str
    by: str
    why: str
    details: str

    @property
    def is_bad(self) -> bool:
        """Whether it needs a look: a second run that has a reason is what at least once means."""
        if self.by in ("promised", "replication"):
            return False
        return self.what != "double" or self.why == UNEXPLAINED


def gather(events: Iterable[tuple[Writer, list[str]]]) -> dict[str, Task]:
    """Sorts the events of a ledger by task."""
    tasks: dict[str, Task] = defaultdict(Task)
    for writer, (event, task_id, *fields) in events:
        if event in "ICE":
            _note_publishing(tasks[task_id], event, fields)
        else:
            _note_running(tasks[task_id], event, fields, writer)
    return dict(tasks)


def add_missing_ticks(tasks: dict[str, Task]) -> None:
    """Adds the runs of the periodic entry that should have been between its first and its last, and never started."""
    found = {round(task.due * 1000): task for task in tasks.values() if task.kind == TICK}
    for at_ms in range(min(found, default=0), max(found, default=0), TICK_MS):
        if at_ms not in found:
            [queue, *_] = {task.queue for task in found.values()}
            tasks[f"{TICK}-{at_ms}"] = Task(TICK, queue, due=at_ms / 1000, confirmed=at_ms / 1000)


def _note_publishing(task: Task, event: str, fields: list[str]) -> None:
    if event == "I":
        task.kind, task.queue = fields[0], fields[1]
        task.tries, task.due, task.intended = int(fields[2]), float(fields[3]), float(fields[4])
    elif event == "C":
        task.outcome, task.confirmed = fields[0], float(fields[1])
    else:
        task.errors += 1


def _note_running(task: Task, event: str, fields: list[str], writer: Writer) -> None:
    number = int(fields[0])
    if event == "S":
        task.runs.append(Run(writer, number, float(fields[3]), float(fields[1])))
    elif event == "N":
        task.nexts.append((number, float(fields[1])))
    elif event == "X":
        task.refused += 1
    elif event == "D":
        # Of several runs of a try in one process, the latest that has not ended.
        open_ones = (run for run in reversed(task.runs) if run.end is None and run.writer is writer)
        run = next((run for run in open_ones if run.number == number), None)
        if run is not None:
            run.end = float(fields[1])
    else:
        raise ValueError(f"the ledger has an unknown event {event!r}")


class Judge:
    """Judges tasks.

    Args:
        faults: What befell the fleet.
        lease_s: A worker that was stopped for longer has lost its messages to others.
        stuck: Ids of the tasks that Redis still has at the end, with the key.
    """

    def __init__(self, faults: Iterable[Fault], lease_s: float, stuck: Mapping[str, str]) -> None:
        self._lease_s = lease_s
        self._stuck = stuck
        self._by_main: dict[int, list[Fault]] = defaultdict(list)
        for fault in faults:
            if fault.kind in REASONS:
                self._by_main[fault.main].append(fault)

    def findings(self, tasks: Mapping[str, Task]) -> Iterator[Finding]:
        """Yields whatever was not right."""
        for task_id, task in tasks.items():
            yield from self._of_task(task_id, task)
        keyed: dict[tuple[str, str], list[tuple[str, Run]]] = defaultdict(list)
        for task_id, task in tasks.items():
            if task.kind == "keyed":
                keyed[task.queue, key_of(task_id)] += [(task_id, run) for run in task.runs]
        for (queue, key), runs in keyed.items():
            yield from self._over(queue, key, runs)
        alike: dict[tuple[str, str], dict[str, Task]] = defaultdict(dict)
        for task_id, task in tasks.items():
            if task.kind == "once" and task_id not in self._stuck:
                alike[task.queue, waiting_key_of(task_id)][task_id] = task
        for (queue, key), of_key in alike.items():
            yield from self._of_key(queue, key, of_key)

    def _of_key(self, queue: str, key: str, tasks: Mapping[str, Task]) -> Iterator[Finding]:
        """Yields the tasks of a waiting key that were stored, not replaced, and never ran, and one that ran too many.

        An error of a publisher, or its end, leaves open what became of one.
        """
        stored = [task_id for task_id, task in tasks.items() if task.outcome in ("added", "replaced")]
        replaced = sum(task.outcome == "replaced" for task in tasks.values())
        ran = [task_id for task_id, task in tasks.items() if task.runs]
        unsure = sum(bool(task.errors) or not task.confirmed for task in tasks.values())
        missing = len(stored) - replaced - len(ran)
        for task_id in [*set(stored).difference(ran)][: max(0, missing - unsure)]:
            yield Finding("lost", task_id, owner_of(queue), f"never ran, of {key}", _story(tasks[task_id], []))
        for task_id in ran[: max(0, -missing - unsure)]:
            yield Finding("double", task_id, owner_of(queue), UNEXPLAINED, f"of {key}, one more ran than was left")

    def _over(self, queue: str, key: str, runs: list[tuple[str, Run]]) -> Iterator[Finding]:
        """Yields the runs that began while as many of their key ran as may, but for those of a process with a fault."""
        running: list[Run] = []
        for task_id, run in sorted(runs, key=lambda each: each[1].start):
            running = [other for other in running if other.end is None or other.end > run.start]
            if run.end is None or any(fault.kind in ENDS for fault in self._overlapping(*_span(run), run.writer.main)):
                continue
            if len(running) >= LIMITS[key.partition(":")[0]]:
                others = ", ".join(f"{other.writer.name} from {other.start:.3f} to {other.end}" for other in running)
                why = f"more than {len(running)} of a key at once"
                yield Finding("over", task_id, owner_of(queue), why, f"{key}: {run.start:.3f} beside {others}")
            running.append(run)

    def _of_task(self, task_id: str, task: Task) -> Iterator[Finding]:
        runs = sorted(task.runs, key=lambda run: run.start)
        if task_id in self._stuck:
            yield Finding("stuck", task_id, owner_of(task.queue), f"in {self._stuck[task_id]}", _story(task, runs))
        elif task.kind != "once" and task.confirmed and not any(run.number >= task.tries for run in runs):
            after = f", after try {runs[-1].number}" if runs else ""
            yield Finding(
                "lost", task_id, owner_of(task.queue), f"never ran, of {task.queue}{after}", _story(task, runs)
            )
        for run in runs:
            due = _due_of(task, run)
            if run.start < due - CLOCK_S:
                why = f"{(due - run.start) * 1000:.1f} ms before it was due, try {run.number}"
                yield Finding("early", task_id, run.writer.by, why, _story(task, runs))
        yield from self._doubles(task_id, task, runs)

    def _doubles(self, task_id: str, task: Task, runs: list[Run]) -> Iterator[Finding]:
        by_try: dict[int, list[Run]] = defaultdict(list)
        for run in runs:
            by_try[run.number].append(run)
        for number, of_try in sorted(by_try.items()):
            for first, second in pairwise(of_try):
                before = by_try.get(number - 1, [])
                by, why = self._why_double(task, first, second, before)
                yield Finding("double", task_id, by, why, _story(task, runs))

    def _why_double(self, task: Task, first: Run, second: Run, before: list[Run]) -> tuple[str, str]:
        """Returns whose fault a second run of a try is, and why."""
        stock = STOCK if STOCK in (first.writer.by, second.writer.by) else OURS
        if len(before) > 1:
            return stock, "the try before it ran twice"
        for run in (first, second):
            fault = self._fault_of(run)
            if fault is not None:
                return stock, REASONS[fault.kind]
        if first.number and task.kind == "letter":
            if self._between(first.start - REPLAY_S, second.start, [REPLAYER, 0]):
                return stock, REASONS["replay"]
        elif task.refused:
            return stock, "its retry was refused, and it went back"
        sent = [(run.start, (run.end or run.start) + ACK_S) for run in before]
        sent = sent or [(task.intended, task.confirmed or task.intended + ACK_S)]
        senders = [run.writer.main for run in before]
        if task.errors or any(self._between(begin, end, [*senders, 0, -1]) for begin, end in sent):
            return stock, "its publisher repeated it"
        if stock == STOCK:
            return STOCK, "stock's visibility sweep, or other"
        return OURS, UNEXPLAINED

    def _fault_of(self, run: Run) -> Fault | None:
        """Returns a fault of the worker while it may have had the message in hand."""
        begin, end = run.start - IN_HAND_S, (run.end or run.start) + ACK_S
        faults = [*self._overlapping(begin, end, run.writer.main), *self._overlapping(begin, end, 0)]
        return next((fault for fault in faults if self._counts(fault)), None)

    def _between(self, begin: float, end: float, mains: list[int]) -> bool:
        return any(self._counts(fault) for main in mains for fault in self._overlapping(begin, end, main))

    def _counts(self, fault: Fault) -> bool:
        return fault.kind != "stop" or fault.end - fault.begin > self._lease_s * 0.5

    def _overlapping(self, begin: float, end: float, main: int) -> Iterator[Fault]:
        return (fault for fault in self._by_main.get(main, []) if fault.begin <= end and fault.end >= begin)


def _due_of(task: Task, run: Run) -> float:
    """Returns the earliest time at which a run may have started."""
    if run.number == 0:
        return task.due
    return min((due for number, due in task.nexts if number == run.number), default=run.eta)


def _story(task: Task, runs: list[Run]) -> str:
    """Returns what the ledger has of a task, in a line."""
    parts = [f"{task.kind} to {task.queue}, {task.tries} retries, intended {task.intended:.3f}"]
    parts.append(f"due {task.due:.3f}" if task.due else "at once")
    parts.append(f"confirmed {task.confirmed:.3f}" if task.confirmed else "never confirmed")
    parts += [f"{task.errors} errors"] * bool(task.errors)
    for run in runs:
        end = "no end" if run.end is None else f"{(run.end - run.start) * 1000:.0f} ms"
        writer = run.writer
        parts.append(f"try {run.number} at {run.start:.3f} by {writer.name} ({writer.main}/{writer.pid}), {end}")
    return "; ".join(parts)


def _span(run: Run) -> tuple[float, float]:
    """Returns from when to when a fault of a process concerns a run."""
    return run.start - IN_HAND_S, (run.end or run.start) + ACK_S
