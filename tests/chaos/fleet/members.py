"""The processes of the fleet: started, signalled, and started again when they have ended."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from tests.chaos.fleet.setup import Setup
from tests.chaos.ledger.events import FaultLog
from tests.support import ROOT

#: How long a warm shutdown may take before the process is killed, in s.
WARM_S = 20.0


@dataclass(frozen=True)
class Post:
    """A place in the fleet.

    Attributes:
        role: ``worker``, ``transfer`` or ``publisher``.
        pool: Celery's pool of a worker, else empty.
        args: The command, after the interpreter.
        setup: Setup of its first process.
    """

    role: str
    pool: str
    args: tuple[str, ...]
    setup: Setup


class Member:
    """A post with its process.

    Attributes:
        post: The post.
        process: The process that holds it now.
        stopped_at: When it was stopped by SIGSTOP, s since the epoch; None if it runs.
        ending_since: When it was asked to end, s since the epoch; None if it was not.
    """

    def __init__(self, post: Post, faults: FaultLog, logs: Path) -> None:
        self.post = post
        self.name = post.setup.name
        self.stopped_at: float | None = None
        self.ending_since: float | None = None
        self._faults = faults
        self._log = logs / f"{self.name}.log"
        self._starts = 0
        self._end_noted = False
        self.process = self._start()

    @property
    def main(self) -> int:
        """Process id of its first process, which is also its session's."""
        return self.process.pid

    def kill(self) -> None:
        """SIGKILL to all of its processes."""
        self._note_stop()
        self._signal(signal.SIGKILL)
        self._faults.add("kill", self.name, self.main, begin=time.time(), note=self.post.setup.by)

    def kill_child(self, chance: random.Random) -> bool:
        """SIGKILL to a process of its pool. Returns False if it has none."""
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.main).children()
            if children:
                child = chance.choice(children)
                child.kill()
                self._faults.add("kill child", self.name, self.main, begin=time.time(), note=str(child.pid))
                return True
        return False

    def terminate(self) -> None:
        """SIGTERM to its first process: a warm shutdown."""
        if self.ending_since is None and self.process.poll() is None:
            self.process.terminate()
            self.ending_since = time.time()

    def stop(self) -> None:
        """SIGSTOP to all of its processes."""
        if self.stopped_at is None:
            self.stopped_at = time.time()
            self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT, if it is stopped."""
        if self.stopped_at is not None:
            self._signal(signal.SIGCONT)
            self._note_stop()

    def look(self, *, start_again: bool = True) -> None:
        """Notes that the process has ended, and starts another; kills one whose warm shutdown takes too long."""
        code = self.process.poll()
        if code is None:
            if self.ending_since and self.stopped_at is None and time.time() - self.ending_since > WARM_S:
                self._signal(signal.SIGKILL)
                self.process.wait(10)
                self._faults.add("slow shutdown", self.name, self.main, begin=self.ending_since, end=time.time())
            return
        if not self._end_noted:
            self._note_end(code)
        if start_again:
            self.process = self._start()

    def _note_stop(self) -> None:
        if self.stopped_at is not None:
            self._faults.add("stop", self.name, self.main, begin=self.stopped_at, end=time.time())
            self.stopped_at = None

    def _note_end(self, code: int) -> None:
        now = time.time()
        if self.ending_since is not None:
            self._faults.add("term", self.name, self.main, begin=self.ending_since, end=now, note=f"exit code {code}")
        elif code != -signal.SIGKILL:
            self._faults.add("crash", self.name, self.main, begin=now, note=f"exit code {code}: {self._last_words()}")
        self._end_noted = True

    def close(self) -> None:
        """Ends its processes, whatever state they are in."""
        self._signal(signal.SIGKILL)
        self.process.wait(10)

    def _start(self) -> subprocess.Popen[bytes]:
        setup = replace(self.post.setup, incarnation=self._starts)
        self._starts += 1
        self._end_noted = False
        self.stopped_at = self.ending_since = None
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *self.post.args],
                cwd=ROOT,
                env={**os.environ, **setup.environment(), "PYTHONWARNINGS": "ignore"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.main, number)

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return lines[-1][-200:] if lines else ""


class Fleet:
    """All members.

    Args:
        posts: The posts.
        faults: Gets the ends of processes.
        logs: Directory for a log file of each member.
    """

    def __init__(self, posts: list[Post], faults: FaultLog, logs: Path) -> None:
        self.members = [Member(post, faults, logs) for post in posts]

    def of_role(self, *roles: str) -> list[Member]:
        """Returns the members of some roles."""
        return [member for member in self.members if member.post.role in roles]

    def running(self) -> Iterator[Member]:
        """Yields the members that run, are not stopped and were not asked to end."""
        for member in self.members:
            if member.process.poll() is None and member.stopped_at is None and member.ending_since is None:
                yield member

    def look(self) -> None:
        """Starts again what has ended."""
        for member in self.members:
            member.look()

    def retire(self, *roles: str) -> bool:
        """Asks members to end, and starts none again. Returns whether all have ended."""
        for member in self.of_role(*roles):
            member.go_on()
            member.terminate()
            member.look(start_again=False)
        return all(member.process.poll() is not None for member in self.of_role(*roles))

    def close(self) -> None:
        """Ends all processes."""
        for member in self.members:
            member.close()
