"""The default layout: marks that scripts put before ids and bodies, and suffixes behind ids.

Source: ``lua/include/hash/marks.lua``.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kombu_delayq.store.keys import Keys
from kombu_delayq.store.layout import Layout

if TYPE_CHECKING:
    from kombu_delayq.redis import RedisCommands

_MARK = b"\x7f"
#: Length of a mark with the order in it; in a body, the digit of the priority follows.
_ORDER_END = 9
_DUPLICATE_SUFFIX = 17


def id_of(member: bytes) -> bytes:
    """Returns the id of an index member."""
    return member[_ORDER_END:] if member.startswith(_MARK) else member


def body_of(value: bytes) -> bytes:
    """Returns the body in a value of the key `bodies`."""
    return value[_ORDER_END + 1 :] if value.startswith(_MARK) else value


def is_marked(text: bytes) -> bool:
    """Whether an index member, or a value of the key `bodies`, has a mark."""
    return text.startswith(_MARK)


def priority_of(value: bytes) -> int:
    """Returns the priority in a value of the key `bodies`; 0 for a damaged one."""
    digit = value[_ORDER_END : _ORDER_END + 1] if value.startswith(_MARK) else b"0"
    return int(digit) if digit.isdigit() else 0


def length_of(member: bytes, stored: int) -> int:
    """Returns the length of a body.

    Args:
        member: Index member, which has a mark when the value has one.
        stored: Length of the value.
    """
    return stored - _ORDER_END - 1 if member.startswith(_MARK) else stored


def may_be_duplicate(stored: bytes) -> bool:
    """Whether a message with this id may be stored beside another of the same id."""
    return stored[-_DUPLICATE_SUFFIX:][:1] == b"~" and len(stored) >= _DUPLICATE_SUFFIX


def without_suffix(stored: bytes) -> bytes:
    """Returns the id of a message that ``may_be_duplicate``, without its suffix."""
    return stored[:-_DUPLICATE_SUFFIX]


def shared_id(stored: str) -> str | None:
    """Returns the id without suffix of a message that is stored beside another of the same id; None for others."""
    return stored[:-_DUPLICATE_SUFFIX] if stored[-_DUPLICATE_SUFFIX:][:1] == "~" else None


def _values(client: "RedisCommands", keys: Keys, queue: str, members: Sequence[bytes]) -> list[bytes | None]:
    found: list[bytes | None] = client.ask("HMGET", keys.bodies(queue), *map(id_of, members))
    missing = [at for at, body in enumerate(found) if body is None]
    if missing:
        still = client.ask("ZMSCORE", keys.due(queue), *(members[at] for at in missing))
        for at, score in zip(missing, still, strict=True):
            found[at] = None if score is None else b""
    return found


HASH = Layout(
    is_shared=False,
    read_a_call=500,
    changes_a_call=100,
    batch_share=1,
    bytes_share=1,
    keys=lambda keys, queue: [keys.due(queue), keys.bodies(queue), keys.order(queue), keys.duplicates(queue)],
    due=Keys.due,
    channel=lambda keys, _: keys.wake,
    index_others=lambda _client, _queue: 0,
    kept_ms=float,
    cursor=bytes,
    bodies=_values,
    ids=lambda _client, _keys, _queue, members: list(map(id_of, members)),
    id_in=id_of,
    kept=bytes,
    priority=lambda _, value: priority_of(value),
    length=length_of,
    body=body_of,
)
