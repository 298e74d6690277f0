"""Names, ids and bodies as text and as bytes. Any program may have written them, so any bytes are possible."""

from hashlib import sha1
from typing import Any


def as_text(reply: Any) -> str:
    """Returns a reply as text. Bytes that are not UTF-8 become surrogates, which ``as_bytes`` turns back."""
    return reply.decode(errors="surrogateescape") if isinstance(reply, bytes) else str(reply)


def as_bytes(given: str | bytes) -> bytes:
    """Returns the bytes that a text stands for in Redis."""
    if isinstance(given, bytes):
        return given
    try:
        return given.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # no publisher can have written such a text, so nothing is found under it
        return given.encode(errors="surrogatepass")


def is_utf8(text: str) -> bool:
    """Whether a text of ``as_text`` came from bytes that are UTF-8."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def readable(text: object) -> str:
    """Returns a text for a log, with bytes that are not UTF-8 escaped, such as those in the name of a key."""
    return str(text).encode(errors="backslashreplace").decode()


def digest(body: str | bytes) -> str:
    """Returns the SHA-1 of a message's body, by which scripts tell whether it is still the one that was read."""
    return sha1(as_bytes(body), usedforsecurity=False).hexdigest()
