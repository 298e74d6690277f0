"""What the scripts put before ids and bodies, and behind ids. Source: ``lua/include/marks.lua``."""

_MARK = b"\x7f"
#: Length of a mark and the order in it; in a body, a digit of priority follows.
_ORDER_END = 9
_TWIN_SUFFIX = 17


def id_of(member: bytes) -> bytes:
    """Returns the id of an index member."""
    return member[_ORDER_END:] if member.startswith(_MARK) else member


def body_of(value: bytes) -> bytes:
    """Returns the body in a value of the backup."""
    return value[_ORDER_END + 1 :] if value.startswith(_MARK) else value


def shared_id(stored: str) -> str | None:
    """Returns the id that a message shares with another, of one that may be stored beside it; else None."""
    return stored[:-_TWIN_SUFFIX] if stored[-_TWIN_SUFFIX:][:1] == "~" else None
