"""The real Redisson, in a JVM of its own that runs ``java/Host.java``: its jars, and the commands that it takes."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
#: A version that packs an entry as "Bc0Lc0", as from 3.21.1 on, and one that packs it as "dLc0", as up to 3.21.0.
VERSION, OLD_VERSION = "3.45.0", "3.20.0"
#: How long Maven may take to load what it lacks, in s.
MAVEN_S = 90
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


def why_not() -> str | None:
    """Returns which tool is missing, or None."""
    missing = [name for name in ("mvn", "javac", "java") if shutil.which(name) is None]
    return f"no {missing[0]} on the PATH" if missing else None


class NoRedisson(Exception):
    """Maven has no Redisson, and reaches no repository that has it."""


def jars(version: str, cache: Path) -> Path:
    """Returns the directory with Redisson and its dependencies. Maven runs once, and loads only the jars that it lacks.

    Raises:
        NoRedisson: Maven cannot get them.
    """
    there = cache / f"redisson-{version}"
    if there.is_dir():
        return there
    with tempfile.TemporaryDirectory(dir=cache) as fresh:
        command = [
            *("mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), f"-Dredisson.version={version}"),
            *("dependency:copy-dependencies", f"-DoutputDirectory={fresh}/jars"),
        ]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=MAVEN_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise NoRedisson(f"Maven does not get Redisson {version} within {MAVEN_S} s") from None
        if done.returncode != 0:
            raise NoRedisson(f"Maven cannot get Redisson {version}: {done.stdout.strip().partition(chr(10))[0]}")
        if not there.is_dir():  # others may have been sooner
            os.replace(f"{fresh}/jars", there)
    return there


def compiled(libraries: Path, into: Path, directory: Path = HERE / "java") -> str:
    """Compiles the Java files of a directory. Returns the class path."""
    sources = sorted(directory.glob("*.java"))
    subprocess.run(["javac", "-Xlint:all", "-Werror", "-cp", f"{libraries}/*", "-d", into, *sources], check=True)
    return f"{into}{os.pathsep}{libraries}/*"


class Jvm:
    """A process with a Redisson client.

    Args:
        class_path: Result of ``compiled``.
        url: URL of the Redis server.
        log: File to which it writes its log.
    """

    def __init__(self, class_path: str, url: str, log: Path) -> None:
        self._log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                ["java", *QUICK, "-cp", class_path, "Host", url],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                encoding="utf-8",
            )
        assert self._line() == "ready"

    def tell(self, what: str, **arguments: Any) -> None:
        """Gives a command. The caller calls ``answer`` later."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **arguments}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Waits for the result of the last command, and returns it."""
        answer = json.loads(self._line())
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def ask(self, what: str, **arguments: Any) -> Any:
        """Gives a command, waits for its result, and returns it."""
        self.tell(what, **arguments)
        return self.answer()

    def message(self, queue: str, identity: str, *args: Any, task: str = "proj.record", priority: int = 0) -> str:
        """Makes a Celery message in Java."""
        command = {"queue": queue, "id": identity, "task": task, "args": args, "priority": priority}
        return str(self.ask("message", **command))

    def offer(self, queue: str, message: str, delay_s: float) -> None:
        """Offers a message with a delay."""
        assert self.ask("offer", queue=queue, message=message, delay_ms=round(delay_s * 1000))

    def offer_tasks(
        self, queue: str, ids: Sequence[str], delay_s: float, spread_s: float = 0.0, *, wait: bool = True
    ) -> None:
        """Offers a task for each id, due evenly over a time after the delay.

        Without ``wait`` the caller calls ``answer``.
        """
        what = {"queue": queue, "ids": ids, "task": "proj.record", "args": []}
        self.tell("offer_many", delay_ms=round(delay_s * 1000), spread_ms=round(spread_s * 1000), **what)
        if wait:
            assert self.answer() == len(ids)

    def poll(self, queue: str, timeout_s: float) -> str | None:
        """Takes a delivered message. Waits for one at most ``timeout_s``."""
        message = self.ask("poll", queue=queue, timeout_ms=round(timeout_s * 1000))
        return None if message is None else str(message)

    def close(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with self._process:
            try:
                self._process.wait(20)
            finally:
                self._process.kill()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the JVM ended:\n{self._log.read_text(errors='replace')[-4000:]}"
        return line.rstrip("\n")
