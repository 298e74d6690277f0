"""The programs of one contender, and how they are run."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic, sleep, time
from typing import Any, Self

import psutil

from tests.bench.journal import Journal
from tests.bench.program import Cannot
from tests.bench.servers import RedisServer, Server

#: Where the programs run, so that ``tests.bench`` is found.
ROOT = Path(__file__).parents[2]
#: How long a program may take to start and answer for the first time, in s.
START_S = 60.0


class Failed(Exception):
    """A contender's program ended, answered with an error, or took too long."""


@dataclass(frozen=True, eq=False)
class Contender:
    """Software that delays tasks.

    Attributes:
        name: Name in the tables.
        versions: Returns the versions of its parts, by name.
        producer: Command of its producer's program.
        worker: Command of one worker in its usual configuration.
        consumers: Command that runs as many idle consumers as the number that is appended to it.
        settings: Its usual configuration, and that of one process, for those who read ``figures.json``.
        alone: Command of a worker that is one process, with the concurrency of its defaults or what suits it better.
        mover: Command of a process that only moves due messages, if the contender has one.
        server: Starts the server that keeps its messages.
        ways: How it enqueues: "one" at a time and, if it has a way for many at once, in "bulk".
        counts: Whether its producer tells how many messages have not been moved; else a message is moved when its
            task begins.
        most_consumers: How many consumers its server takes with its default limits.
        env: Further environment variables of its programs.
        why_not: Returns what it lacks on this machine, or None.
    """

    name: str
    versions: Callable[[], dict[str, str]]
    producer: Sequence[str]
    worker: Sequence[str]
    consumers: Sequence[str]
    settings: str
    alone: Sequence[str]
    mover: Sequence[str] | None = None
    server: Callable[[], Server] = RedisServer
    ways: Sequence[str] = ("one", "bulk")
    counts: bool = True
    most_consumers: float = inf
    env: Mapping[str, str] = field(default_factory=dict)
    why_not: Callable[[], str | None] = lambda: None


class Client:
    """A running producer's program.

    Args:
        process: With pipes for its commands and answers.
        log: File to which it writes everything else.
        deadline: End of all waiting, by the monotonic clock.
    """

    def __init__(self, process: "subprocess.Popen[str]", log: Path, deadline: float) -> None:
        self._process, self._log, self._deadline = process, log, deadline
        self._lines: SimpleQueue[str] = SimpleQueue()
        Thread(target=self._read, daemon=True).start()

    def ask(self, do: str, **arguments: Any) -> Any:
        """Gives a command and waits for its answer.

        Raises:
            Cannot: The contender has no such operation.
            Failed: It failed, or there was no answer in time.
        """
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the answer tells
            print(json.dumps({"do": do, **arguments}), file=self._process.stdin, flush=True)
        try:
            line = self._lines.get(timeout=max(0.0, self._deadline - monotonic()))
        except Empty:
            raise Failed("its producer did not answer in time") from None
        if not line:
            raise Failed(f"its producer ended: {_tail(self._log)}")
        answer = json.loads(line)
        if "cannot" in answer:
            raise Cannot(answer["cannot"])
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["value"]

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            for line in answers:
                self._lines.put(line)
        self._lines.put("")


class Stage:
    """A contender with a server of its own, for one measure. What it starts ends with it.

    Args:
        contender: Contender whose programs it runs.
        deadline: End of all waiting, by the monotonic clock.
    """

    def __init__(self, contender: Contender, deadline: float) -> None:
        self.contender = contender
        self._deadline = deadline
        self.server = contender.server()
        self._directory = tempfile.TemporaryDirectory(prefix="delayq-bench-")
        self._logs = Path(self._directory.name)
        self.journal = Journal(self._logs / "journal")
        self._processes: dict[Path, subprocess.Popen[str]] = {}

    @cached_property
    def client(self) -> Client:
        """Its producer."""
        return Client(*self._start(self.contender.producer, subprocess.PIPE), self._deadline)

    def run(self, command: Sequence[str]) -> psutil.Process:
        """Starts another of its programs."""
        return psutil.Process(self._start(command)[0].pid)

    def ready(self, command: Sequence[str]) -> psutil.Process:
        """Starts a worker and returns when it has run a task; the journal is empty then."""
        process = self.run(command)
        self.client.ask("enqueue", count=1, first=time(), last=time(), bulk=False)
        self.until(self.journal.count, START_S, "its worker runs a task")
        self.journal.clear()
        return process

    def until(self, condition: Callable[[], Any], within_s: float, what: str) -> None:
        """Waits for a condition, and checks meanwhile that all its programs run.

        Raises:
            Failed: It did not come true, or a program ended.
        """
        end = min(monotonic() + within_s, self._deadline)
        while not condition():
            for log, process in self._processes.items():
                if process.poll() is not None:
                    raise Failed(f"{log.stem} ended with {process.returncode}: {_tail(log)}")
            if monotonic() > end:
                raise Failed(f"it did not come to this in time: {what}")
            sleep(0.005)

    def __enter__(self) -> Self:
        try:
            self.server.start()
        except BaseException:
            self.server.close()
            self._directory.cleanup()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    process.stdin.close()
        self.server.close()
        self._directory.cleanup()

    def _start(self, command: Sequence[str], pipe: int | None = None) -> tuple["subprocess.Popen[str]", Path]:
        """Starts a program that is talked to through pipes, or writes to its log alone."""
        log = self._logs / f"program {len(self._processes)}"
        with log.open("ab") as file:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **self.contender.env, **self._env()},
                stdin=pipe or subprocess.DEVNULL,
                stdout=pipe or file,
                stderr=file,
                text=True,
                start_new_session=True,
            )
        self._processes[log] = process
        return process, log

    def _env(self) -> dict[str, str]:
        return {"BENCH_SERVER": self.server.url, "BENCH_JOURNAL": str(self.journal.path), "PYTHONWARNINGS": "ignore"}


def _tail(log: Path) -> str:
    """Returns the last line of a log."""
    lines = log.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing")
