"""Workers of a cluster under steady traffic, and a ledger of what was published and what ran."""

import socket
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.chaos.brokers.clustered import ClusterRedis
from tests.chaos.fleet.app import make_app
from tests.chaos.fleet.members import Member, Post
from tests.chaos.fleet.setup import OURS, SPREAD, Setup
from tests.support.conditions import until
from tests.support.servers.cluster import slot_of

#: Workers, threads of each, lease of their consumers in s.
WORKERS, THREADS, LEASE_S = 2, 4, 5.0
#: What Celery writes when it makes a consumer anew.
RESTARTED = ("Connection to broker lost", "Cannot connect to", "Restarting", "Traceback", "was silent for longer")
#: How long tasks may take to run after the fault, in s: what a consumer took and did not get comes back with its lease.
SETTLED_S = 30.0


@dataclass(slots=True)
class Sent:
    """A task in the ledger. Times in s since the epoch, 0 where it has not happened.

    Attributes:
        queue: Its queue.
        due: When it was due; 0 at once.
        intended: When its publisher began.
        confirmed: When publishing had returned.
        errors: How often publishing raised.
        starts: When it started, each time.
    """

    queue: str
    due: float
    intended: float
    confirmed: float
    errors: int
    starts: list[float]


class Traffic:
    """Two workers, and a publisher that publishes to a queue on each of three primaries.

    Args:
        broker: The cluster, running.
        directory: For ledger and logs.
        rate: Tasks per second, over all queues.

    Attributes:
        tasks: All tasks so far, by id.
        usual_s: How long tasks of all queues took to start when there was no fault, in s, the last time.
    """

    def __init__(self, broker: ClusterRedis, directory: Path, rate: float) -> None:
        self.broker, self.cluster = broker, broker.cluster
        self._directory = directory
        self._rate = rate
        self._members: list[Member] = []
        self._workers: list[Member] = []
        self._read: dict[Path, int] = {}
        self._restarts: dict[str, int] = defaultdict(int)
        self.usual_s = 0.0
        self.tasks: dict[str, Sent] = defaultdict(lambda: Sent("", 0.0, 0.0, 0.0, 0, []))

    def look(self) -> dict[str, Sent]:
        """Reads what is new in the ledger. Returns all tasks by id."""
        for path in self._directory.glob("*.ledger"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            for line in whole.decode().splitlines():
                self._note(line)
        return self.tasks

    def first_start(self, queue: str, since: float) -> float:
        """Waits until a task of a queue starts that its publisher began at a time or later. Returns when it started."""

        def starts() -> list[float]:
            tasks = list(self.look().values())
            return [min(one.starts) for one in tasks if one.queue == queue and one.starts and one.intended >= since]

        return min(until(starts, 60, f"a task of {queue}, published after the fault began, starts"))

    def await_steady(self) -> None:
        """Waits until tasks of all queues run that were published after this call."""
        now = time.time()
        self.usual_s = max(self.first_start(queue, now) for queue in SPREAD) - now

    def await_runs(self, until_s: float) -> list[str]:
        """Waits until all tasks that were confirmed by a time have run, or may be lost. Returns the ids of the lost."""

        def missing() -> list[str]:
            return [
                task_id
                for task_id, task in self.look().items()
                if 0 < task.confirmed <= until_s and not task.starts and not self.is_excused(task)
            ]

        deadline = time.monotonic() + SETTLED_S
        while (found := missing()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def is_excused(self, task: Sent) -> bool:
        """Whether a task was published to a primary that was lost before its replica had the task."""
        slot, excuses = slot_of(task.queue), self.broker.replication.excuses
        return excuses(task.confirmed, slot) or bool(task.due and excuses(task.due, slot))

    def doubles(self, begin: float, end: float) -> dict[str, Sent]:
        """Returns the tasks that were published in a time and ran more than once."""
        return {key: task for key, task in self.look().items() if begin <= task.confirmed <= end and task.starts[1:]}

    def check_workers(self, fault: str) -> None:
        """Checks that no worker and no consumer was restarted since the last check, and that remote control works."""
        for member in self._workers:
            assert member.process.poll() is None, f"{fault}: {member.name} ended:\n{self.log_of(member)[-3000:]}"
            new = self.log_of(member)[self._restarts[member.name] :]
            self._restarts[member.name] += len(new)
            found = [line for line in new.splitlines() if any(text in line for text in RESTARTED)]
            assert not found, f"{fault}: the consumer of {member.name} was restarted:\n{new[-5000:]}"
        self._await_ping(fault)

    def log_of(self, member: Member) -> str:
        """Returns the log of a member so far."""
        return (self._directory / f"{member.name}.log").read_text(errors="replace")

    def logs(self) -> str:
        """Returns the ends of all logs."""
        return "\n".join(f"--- {member.name}\n{self.log_of(member)[-3000:]}" for member in self._members)

    def _await_ping(self, fault: str) -> None:
        nodes = sorted(f"{member.name}@{socket.gethostname()}" for member in self._workers)

        def answered() -> bool:
            replies = self._app.control.ping(destination=nodes, timeout=1)
            return sorted(node for reply in replies for node in reply) == nodes

        until(answered, 20, f"{fault}: workers answer remote control")

    def _note(self, line: str) -> None:
        event, task_id, *fields = line.split()
        if event == "I":
            task = self.tasks[task_id]
            task.queue, task.due, task.intended = fields[1], float(fields[3]), float(fields[4])
        elif event == "C":
            self.tasks[task_id].confirmed = float(fields[0])
        elif event == "E":
            self.tasks[task_id].errors += 1
        elif event == "S":
            self.tasks[task_id].starts.append(float(fields[3]))

    def _setup(self, name: str) -> Setup:
        options = {"consumer_ttl": LEASE_S}
        return Setup(name, OURS, self.broker.url(OURS), str(self._directory), options, rate=self._rate, queues=SPREAD)

    def _worker(self, number: int) -> Post:
        name = f"ours-threads-{number}"
        args = (
            *("-m", "celery", "-A", "tests.chaos.fleet.app", "worker", "-n", f"{name}@%h", "-l", "WARNING"),
            *("-P", "threads", "-c", str(THREADS), "-Q", ",".join(SPREAD), "--without-mingle"),
        )
        return Post("worker", "threads", args, self._setup(name))

    def __enter__(self) -> Self:
        posts = [self._worker(number) for number in range(WORKERS)]
        publisher = Post("publisher", "", ("-m", "tests.chaos.fleet.steady"), self._setup("publisher-steady"))
        self._app = make_app(self._setup("control"))
        self._members = [Member(post, self.broker.faults, self._directory) for post in [*posts, publisher]]
        self._workers = self._members[:WORKERS]
        return self

    def end_publishing(self) -> float:
        """Ends the publisher. Returns when it had ended, s since the epoch."""
        self._members[-1].terminate()
        self._members[-1].process.wait(60)
        return time.time()

    def __exit__(self, *_: object) -> None:
        for member in self._members:
            member.close()
        self._app.close()
