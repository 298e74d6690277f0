"""Redisson: its delayed queue and blocking queue, in a virtual machine of Java."""

import os
import re
import subprocess
from functools import cache
from pathlib import Path

from tests.bench.contender import Contender
from tests.support.jvm import redisson

#: Its programs, and where what Maven gets and they are compiled to is kept.
HERE = Path(__file__).parents[1] / "contenders" / "redisson"
BUILD = HERE / "build"
CLASSES, JARS = BUILD / "classes", BUILD / f"redisson-{redisson.VERSION}"


@cache
def why_not() -> str | None:
    """Gets Redisson and compiles the programs. Says what is missing, or returns None."""
    reason = redisson.why_not()
    if reason is not None:
        return reason
    CLASSES.mkdir(parents=True, exist_ok=True)
    try:
        redisson.compiled(redisson.jars(redisson.VERSION, BUILD), CLASSES, HERE)
    except redisson.NoRedisson as error:
        return str(error)
    except subprocess.CalledProcessError:
        return f"javac {_java()} does not compile its programs, which are for Java 17"
    return None


def _java() -> str:
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "([^"]+)"', told)
    return found[1] if found else "unknown"


def versions() -> dict[str, str]:
    """Returns the versions of Redisson and of Java."""
    return {"redisson": redisson.VERSION, "java": _java()}


def _command(*arguments: str) -> tuple[str, ...]:
    class_path = f"{CLASSES}{os.pathsep}{JARS}/*"
    return ("java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", class_path, "Bench", *arguments)


REDISSON = Contender(
    name="Redisson",
    versions=versions,
    producer=_command("producer"),
    worker=_command("worker"),
    consumers=_command("worker"),
    mover=_command("mover"),
    alone=_command("worker", "8"),
    alone_settings="eight threads that share a client",
    settings="an `RDelayedQueue` and a thread that takes from its `RBlockingQueue`, all with defaults; many idle "
    "threads share a client, with a connection for each; its bulk is `offerAsync`, as an `RBatch` has no delayed queue",
    why_not=why_not,
)
