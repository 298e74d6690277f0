"""Promoters in processes of their own, which stop where a test says, and which it may kill there."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from celery_ext.demo.private_redis import PrivateRedis

_PROGRAM = """
import json, sys
from celery_ext.journal.worker import JournalWorker
from celery_ext.journal.journal import Journal
from celery_ext.journal.recovery import restore
from celery_ext.journal.promotion import Promotion
from tests.support.journal.stores import journaled

port, options, what, hold = int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3], sys.argv[4]
when, _, name = hold.partition(" ")
owner = Journal if hasattr(Journal, name) else Promotion
real = getattr(owner, name, None)

def wait():
    print("held", flush=True)
    sys.stdin.readline()

def held(*args, **keywords):
    if when == "before":
        wait()
    found = real(*args, **keywords)
    if when == "after":
        wait()
    return found

if name != "nothing":
    setattr(owner, name, held)
connect = lambda: journaled(port, options)
if what == "restore":
    list(restore(connect()))
else:
    JournalWorker(connect).run()
"""


class Held:
    """A process that promotes or restores, and stops before or after an operation.

    Args:
        server: Its Redis.
        options: Its transport options.
        what: ``promote`` or ``restore``.
        hold: Where it stops, such as ``before mark``; each time it gets there.
    """

    def __init__(self, server: PrivateRedis, options: dict[str, Any], what: str, hold: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(server.port), json.dumps(options), what, hold],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def reached(self) -> "Held":
        """Waits until it stops there."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "held\n"
        return self

    def go_on(self) -> None:
        """Lets it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Kills it as the kernel's out-of-memory killer would."""
        self.process.kill()
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


#: Starts such a process, see ``Held``.
Hold = Callable[..., Held]


@pytest.fixture
def hold(redis_server: PrivateRedis, journal_url: str) -> Iterator[Hold]:
    started: list[Held] = []

    def start(what: str, where: str, server: PrivateRedis = redis_server, **options: Any) -> Held:
        given = {"journal_url": journal_url, "lease_ttl": 0.5, "poll_interval": 0.1, **options}
        started.append(Held(server, given, what, where))
        return started[-1]

    yield start
    for process in started:
        if process.process.poll() is None:
            process.kill()
