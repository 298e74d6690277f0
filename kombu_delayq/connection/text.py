"""Texts and bytes: how names, ids and commands go to Redis, and how they come back."""

from typing import Any

#: Name and arguments of a command.
Command = tuple[Any, ...]


def as_sent(command: Command) -> Command:
    """Returns a command with all texts as the bytes that Redis is to have.

    The only place where names become bytes: the Redis client refuses those that are no UTF-8, which others may have
    put into the registry of queues or into an announcement.
    """
    name, *args = command
    return name, *(as_bytes(each) if isinstance(each, str) else each for each in args)


def as_text(reply: Any) -> str:
    """Returns a reply as text; bytes that are no UTF-8 are kept as surrogates, which go back as the same bytes."""
    return reply.decode(errors="surrogateescape") if isinstance(reply, bytes) else str(reply)


def readable(text: object) -> str:
    """Returns a text as a log can take it: bytes that are no UTF-8, such as in the name of a key, are escaped."""
    return str(text).encode(errors="backslashreplace").decode()


def is_utf8(text: str) -> bool:
    """Whether a text, as of ``as_text``, is bytes that are UTF-8."""
    return not any("\ud800" <= each <= "\udfff" for each in text)


def as_bytes(given: str | bytes) -> bytes:
    """Returns the bytes that a text stands for in Redis."""
    if isinstance(given, bytes):
        return given
    try:
        return given.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # no publisher can have written such a text, so that nothing is found under it
        return given.encode(errors="surrogatepass")
