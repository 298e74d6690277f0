"""Turns names, ids and commands into the bytes that Redis gets, and reads its replies."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import sha1
from typing import Any

#: Name and arguments of a command.
Command = tuple[Any, ...]


def as_sent(command: Command) -> Command:
    """Returns a command with all its texts as bytes.

    This is the only place where names become bytes. The Redis client would refuse names that are not UTF-8, and other
    clients may have put such names into the registry of queues or into an announcement.
    """
    name, *args = command
    return name, *[as_bytes(argument) if isinstance(argument, str) else argument for argument in args]


def packed(start: Command, rest: Command) -> bytes:
    """Returns a command as it goes over the wire, in less time than the Redis client where many have the same start.

    Args:
        start: Name and first arguments: texts, bytes and integers. Their bytes are kept for the next command.
        rest: The other arguments.

    Source: RESP, an array of bulk strings; https://redis.io/docs/latest/develop/reference/protocol-spec/
    """
    return b"".join((b"*%d\r\n" % (len(start) + len(rest)), _packed_start(start), *map(_packed, rest)))


@lru_cache(maxsize=1000)
def _packed_start(start: Command) -> bytes:
    return b"".join(map(_packed, start))


def _packed(argument: str | bytes | int) -> bytes:
    sent = b"%d" % argument if isinstance(argument, int) else as_bytes(argument)
    return b"$%d\r\n%b\r\n" % (len(sent), sent)


def as_text(reply: Any) -> str:
    """Returns a reply as text. Bytes that are not UTF-8 become surrogates, which ``as_bytes`` turns back."""
    return reply.decode(errors="surrogateescape") if isinstance(reply, bytes) else str(reply)


def readable(text: object) -> str:
    """Returns a text for a log, with bytes that are not UTF-8 escaped, such as those in the name of a key."""
    return str(text).encode(errors="backslashreplace").decode()


def is_utf8(text: str) -> bool:
    """Whether a text of ``as_text`` came from bytes that are UTF-8."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def digest(body: str | bytes) -> str:
    """Returns the SHA-1 of a message's body, by which scripts tell whether it is still the one that was read."""
    return sha1(as_bytes(body), usedforsecurity=False).hexdigest()


def as_bytes(given: str | bytes) -> bytes:
    """Returns the bytes that a text stands for in Redis."""
    if isinstance(given, bytes):
        return given
    try:
        return given.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # no publisher can have written such a text, so nothing is found under it
        return given.encode(errors="surrogatepass")


def checked(replies: Iterable[Any]) -> list[Any]:
    """Returns replies. Raises the first error among them."""
    found = list(replies)
    for reply in found:
        if isinstance(reply, Exception):
            raise reply
    return found


def time_ms(time: Sequence[Any]) -> float:
    """Returns a reply to ``TIME``, seconds and microseconds, in ms since the epoch."""
    seconds, microseconds = time
    return float(seconds) * 1000 + float(microseconds) / 1000
