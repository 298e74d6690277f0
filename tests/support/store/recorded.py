"""The commands of Redisson's RDelayedQueue as Redis saw them, and a recorder for such sessions.

The session: a transfer task starts on the queue "q"; five messages are offered with a delay of 13 s; they are
transferred; a sixth is offered and removed. p1, p2 and so on are the messages, m1, m2 the entries made of them.
"""

import ast
import re
import socket
from itertools import count
from typing import NamedTuple, Self

import redis

TIMEOUT, LISTED, CHANNEL = (f"redisson_delay_queue{what}:{{q}}" for what in ("_timeout", "", "_channel"))
DELAY_MS = 13_000
MESSAGES = [f"message {number}" for number in range(1, 7)]

#: A command as Redis saw it. Values that differ from session to session have names: p1, m1, due, now.
Command = tuple[str, ...]

_TAKE = ("ZRANGEBYSCORE", TIMEOUT, "0", "now", "LIMIT", "0", "100")
_NEXT = ("ZRANGE", TIMEOUT, "0", "0", "WITHSCORES")


def _offer(number: int, *, head: bool = False) -> list[Command]:
    entry = f"m{number}"
    stored = [("ZADD", TIMEOUT, "due", entry), ("RPUSH", LISTED, entry), ("ZRANGE", TIMEOUT, "0", "0")]
    return [*stored, ("PUBLISH", CHANNEL, "due")] if head else list(stored)


#: What Redisson did, by step. Source: a recorded session of a JVM with Redisson.
RECORDED: dict[str, list[Command]] = {
    "start": [("SUBSCRIBE", CHANNEL), _TAKE, _NEXT],
    **{f"offer {number}": _offer(number, head=number == 1) for number in range(1, 6)},
    "transfer": [
        _TAKE,
        *(command for n in range(1, 6) for command in (("RPUSH", "q", f"p{n}"), ("LREM", LISTED, "1", f"m{n}"))),
        ("ZREM", TIMEOUT, *(f"m{n}" for n in range(1, 6))),
        _NEXT,
    ],
    "offer 6": _offer(6, head=True),
    "remove": [("ZREM", TIMEOUT, "m6"), ("LREM", LISTED, "1", "m6")],
}

_LINE = re.compile(rb"^\+[\d.]+ \[\d+ (\S+)\] (.*)\r\n$")
_ARGUMENT = re.compile(rb'"(?:[^"\\]|\\.)*"')


class Seen(NamedTuple):
    """A command that a server has run.

    Attributes:
        in_script: Whether a script has called it.
        parts: Its name in capitals, and its arguments.
    """

    in_script: bool
    parts: list[bytes]


class Recorder:
    """Hears every command that a server runs, those in scripts too.

    Args:
        client: A client of it.
        port: Its port.
    """

    def __init__(self, client: redis.Redis, port: int) -> None:
        self._client = client
        self._ends = count()
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._file = self._socket.makefile("rb")
        self._socket.sendall(b"MONITOR\r\n")
        assert self._file.readline() == b"+OK\r\n"

    def heard(self) -> list[Seen]:
        """Returns the commands since the last call."""
        end = b"end %d" % next(self._ends)
        self._client.echo(end)
        heard: list[Seen] = []
        while True:
            line = _LINE.match(self._file.readline())
            assert line is not None
            name, *arguments = (
                ast.literal_eval("b" + quoted.decode("latin-1")) for quoted in _ARGUMENT.findall(line[2])
            )
            if arguments == [end]:
                return heard
            heard.append(Seen(line[1] == b"lua", [name.upper(), *arguments]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()


class Names:
    """Gives values that differ from session to session the names that they have in ``RECORDED``."""

    def __init__(self) -> None:
        self._of = {message.encode(): f"p{number}" for number, message in enumerate(MESSAGES, 1)}
        self._entries = 0

    def named(self, heard: list[Seen]) -> list[Command]:
        """Returns the commands on Redisson's keys, its channel and the queue's list, not those that run scripts."""
        wanted = {name.encode() for name in (TIMEOUT, LISTED, CHANNEL, "q")}
        parts = [seen.parts for seen in heard if seen.parts[0] not in (b"EVAL", b"EVALSHA")]
        return [self._command(command) for command in parts if command[1:2] and command[1] in wanted]

    def _command(self, parts: list[bytes]) -> Command:
        if parts[0] == b"ZADD":
            self._entries += 1
            self._of.update({parts[2]: "due", parts[3]: f"m{self._entries}"})
        if parts[0] == b"ZRANGEBYSCORE":
            self._of[parts[3]] = "now"
        return tuple(self._of.get(part, part.decode("latin-1")) for part in parts)
