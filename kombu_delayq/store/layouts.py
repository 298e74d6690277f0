"""What differs between the two layouts in which Redis keeps delayed messages, beside the includes of the scripts."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kombu_delayq.store.hash_layout import id_of
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.redisson_layout import cursor_of, mark_of, message_of, named_field, own_id, whole_ms

if TYPE_CHECKING:
    from kombu_delayq.redis.commands import RedisCommands


class Layout(NamedTuple):
    """How messages are kept, and how they are read.

    Attributes:
        is_shared: Whether services in other languages publish in it, too. They register no queue, and make no message
            findable by its id. Each queue has a channel of its own, and others may take its last message.
        batch_share: One call transfers ``transfer_batch`` messages divided by this number,
        bytes_share: and ``transfer_batch_bytes`` divided by this one.
        due: Returns the ZSET of a queue's due times.
        channel: Returns the channel that announces a queue's new heads.
        kept_ms: Returns a due time, ms since the epoch, as it is kept.
        cursor: Returns what stands for an index member at the end of a page: as little of it as Redis needs.
        bodies: Reads what is stored of messages, by their index members; see ``Scan.bodies``.
        ids: Returns the ids under which messages are stored, by their index members; see ``Scan.ids``.
    """

    is_shared: bool
    batch_share: int
    bytes_share: int
    due: Callable[[Keys, str], str]
    channel: Callable[[Keys, str], str]
    kept_ms: Callable[[float], float]
    cursor: Callable[[bytes], bytes]
    bodies: Callable[["RedisCommands", Keys, str, Sequence[bytes]], list[bytes | None]]
    ids: Callable[["RedisCommands", Keys, str, Sequence[bytes]], list[bytes]]


def _values(client: "RedisCommands", keys: Keys, queue: str, members: Sequence[bytes]) -> list[bytes | None]:
    found: list[bytes | None] = client.ask("HMGET", keys.bodies(queue), *map(id_of, members))
    missing = [at for at, body in enumerate(found) if body is None]
    if missing:
        still = client.ask("ZMSCORE", keys.due(queue), *(members[at] for at in missing))
        for at, score in zip(missing, still, strict=True):
            found[at] = None if score is None else b""
    return found


def _names(client: "RedisCommands", keys: Keys, queue: str, members: Sequence[bytes]) -> list[bytes]:
    marks = list(map(mark_of, members))
    named = client.ask("HMGET", keys.ids(queue), *map(named_field, marks))
    return [
        name if name is not None else own_id(mark, message_of(member) or b"")
        for name, mark, member in zip(named, marks, members, strict=True)
    ]


#: The layouts by the names that the transport option ``layout`` has for them.
LAYOUT_OF: dict[str, Layout] = {
    "hash": Layout(
        is_shared=False,
        batch_share=1,
        bytes_share=1,
        due=Keys.due,
        channel=lambda keys, _: keys.wake,
        kept_ms=float,
        cursor=bytes,
        bodies=_values,
        ids=lambda _client, _keys, _queue, members: list(map(id_of, members)),
    ),
    "redisson": Layout(
        is_shared=True,
        batch_share=2,  # an entry costs Redis more: to remove it, Redis also reads other entries
        bytes_share=16,
        due=Keys.timeout,
        channel=Keys.channel,
        kept_ms=whole_ms,
        cursor=cursor_of,
        bodies=lambda _client, _keys, _queue, members: [message_of(member) or b"" for member in members],
        ids=_names,
    ),
}
