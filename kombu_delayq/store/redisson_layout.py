"""Redisson's layout, and how its entries are read.

Source: ``lua/include/redisson/entry.lua`` and ``lua/include/redisson/names.lua``.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any

from kombu_delayq.message import headers_of, properties_of, read
from kombu_delayq.redis import Key, Stored, operation
from kombu_delayq.store.keys import KeyNames, Keys
from kombu_delayq.store.layout import Layout, ScriptRunner
from kombu_delayq.text import as_text

if TYPE_CHECKING:
    from kombu_delayq.redis import RedisCommands

_OURS, _LENGTH, _MARK, _PRIORITY = 7, 8, 9, 5
_NAMED = b"\0n"
#: Most entries that one call of ``index`` looks at, and about the most bytes.
INDEX_COUNT, INDEX_BYTES = 100, 300_000
_ID, _ID_VALUE = b'"id":', re.compile(rb' ?"([^"\\]+)"')


@operation(layout="redisson")
def index(*, keys: Stored, last: Key, last_due: Key, tail: Key, count: int, max_bytes: int) -> list[Any]: ...


class RedissonKeys(KeyNames):
    """Names of the keys of a queue in Redisson's layout, and beside them."""

    def timeout(self, queue: str) -> str:
        """ZSET of Redisson's layout: entry of each delayed message, with its due time in ms since the epoch."""
        return self._of_redisson("redisson_delay_queue_timeout", queue)

    def listed(self, queue: str) -> str:
        """LIST of Redisson's layout: the same entries, and some that have left the ZSET."""
        return self._of_redisson("redisson_delay_queue", queue)

    def channel(self, queue: str) -> str:
        """Channel of Redisson's layout: the due time of every new head, ms since the epoch."""
        return self._of_redisson("redisson_delay_queue_channel", queue)

    def notes(self, queue: str) -> str:
        """HASH beside Redisson's keys: count of marked messages, and notes on the state of the list."""
        return self._of.of_queue(queue, "notes")

    def ids(self, queue: str) -> str:
        """HASH beside Redisson's keys: id of each delayed message, with its due time and the mark of its entry."""
        return self._of.of_queue(queue, "ids")

    def _of_redisson(self, name: str, queue: str) -> str:
        # For Redisson, the name of a queue is the name of the list to which its messages go.
        # Source: RedissonObject.suffixName
        ready = self._of.prefix + queue
        return f"{name}:{ready}" if "{" in ready else f"{name}:{{{ready}}}"


def mark_of(entry: bytes) -> bytes:
    """Returns the first bytes of an entry, which no other entry of its queue has."""
    return entry[:_MARK]


def cursor_of(entry: bytes) -> bytes:
    """Returns a stand-in for an entry at the end of a page or a part, which sorts directly behind the entry.

    A member that is no entry stands for itself, because other members may begin with any bytes.
    """
    return entry if message_of(entry) is None else mark_of(entry) + b"\xff" * _LENGTH


def message_of(entry: bytes) -> bytes | None:
    """Returns the message in an entry; None if there is none."""
    for start in ((entry[0] if entry else 0) + 1 + _LENGTH, 2 * _LENGTH):
        length = int.from_bytes(entry[start - _LENGTH : start], "little")
        if len(entry) >= start and length == len(entry) - start:
            return entry[start:]
    return None


def is_ours(mark: bytes) -> bool:
    """Whether kombu-delayq, and not Redisson, made the entry with this mark."""
    return mark[:1] == bytes((_OURS,)) and mark[_OURS : _OURS + 1] == b"\0"


def priority_of(mark: bytes, message: bytes) -> int:
    """Returns the priority, 0 to 9, of a message in an entry with this mark."""
    priority = 0.0
    if is_ours(mark):
        priority = mark[_PRIORITY]
    elif b'"priority"' in message:
        value = properties_of(read(message)).get("priority")
        with suppress(ValueError):
            priority = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else 0.0
    return int(min(priority, 9)) if priority > 0 else 0  # so that NaN is 0 too


def whole_ms(due_ms: float) -> float:
    """Returns a due time as Redisson's layout keeps it."""
    return ceil(due_ms) if isfinite(due_ms) else due_ms


def named_field(mark: bytes) -> bytes:
    """Returns the field of the index of ids that has the id of a message which contains none, or another."""
    return _NAMED + mark


def own_id(mark: bytes, message: bytes) -> bytes:
    """Returns the id in a message, or one made from the mark of its entry if it has none."""
    if is_ours(mark):
        at = message.find(_ID)
        found = _ID_VALUE.match(message, at + len(_ID)) if at >= 0 else None
        if found is not None:
            return found[1]
    fields = read(message)
    headers, properties = headers_of(fields), properties_of(fields)
    task_id = headers.get("id") if headers.get("task", False) is not False else None
    for identity in (task_id, properties.get("delivery_tag")):
        if isinstance(identity, str) and identity:
            with suppress(UnicodeEncodeError):
                return identity.encode(errors="surrogateescape")
    return b"entry-" + mark[:_LENGTH].hex().encode()


def _names(client: "RedisCommands", keys: Keys, queue: str, members: Sequence[bytes]) -> list[bytes]:
    marks = list(map(mark_of, members))
    named = client.ask("HMGET", RedissonKeys(keys).ids(queue), *map(named_field, marks))
    return [
        name if name is not None else own_id(mark, message_of(member) or b"")
        for name, mark, member in zip(named, marks, members, strict=True)
    ]


def _keys(keys: Keys, queue: str) -> list[str]:
    names = RedissonKeys(keys)
    return [names.timeout(queue), names.listed(queue), names.notes(queue), names.ids(queue)]


def _index(client: ScriptRunner, queue: str) -> int:
    found, after, keys = 0, ["", "", ""], _keys(client.keys, queue)
    while True:
        last, last_due, tail = after
        call = index(keys=keys, last=last, last_due=last_due, tail=tail, count=INDEX_COUNT, max_bytes=INDEX_BYTES)
        word, added, *after = client.run(call)
        found += int(added)
        if as_text(word) == "end":
            return found


REDISSON = Layout(
    is_shared=True,
    read_a_call=250,  # the index has the bodies
    changes_a_call=30,  # each change costs Redis a few times more
    batch_share=2,  # an entry costs Redis more: to remove it, Redis also reads other entries
    bytes_share=16,
    keys=_keys,
    due=lambda keys, queue: RedissonKeys(keys).timeout(queue),
    channel=lambda keys, queue: RedissonKeys(keys).channel(queue),
    index_others=_index,
    kept_ms=whole_ms,
    cursor=cursor_of,
    bodies=lambda _client, _keys, _queue, members: [message_of(member) or b"" for member in members],
    ids=_names,
    id_in=lambda member: own_id(mark_of(member), b""),
    kept=mark_of,
    priority=priority_of,
    length=lambda _, length: length,
    body=bytes,
)
