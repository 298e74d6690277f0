"""What differs between the layouts in which Redis keeps delayed messages, beside the includes of the scripts."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from kombu_delayq.store.keys import Keys

if TYPE_CHECKING:
    from kombu_delayq.redis import Call, RedisCommands


R = TypeVar("R")


class ScriptRunner(Protocol):
    """What runs scripts; a store's client."""

    keys: Keys

    def run(self, call: "Call[R]") -> R:
        """Runs a script, and returns what it replies."""
        ...


class Layout(NamedTuple):
    """How messages are kept, and how they are read.

    Attributes:
        is_shared: Whether services in other languages publish in it, too. They register no queue, and make no message
            findable by its id. Each queue has a channel of its own, and others may take its last message.
        read_a_call: How many messages one call reads without their bodies.
        changes_a_call: How many messages one call changes at most.
        batch_share: One call transfers ``transfer_batch`` messages divided by this number,
        bytes_share: and ``transfer_batch_bytes`` divided by this one.
        keys: Returns the keys in which a queue's delayed messages are kept: four, in the order in which scripts take
            them, which call them due, bodies, notes and ids.
        due: Returns the first of them, the ZSET of a queue's due times.
        channel: Returns the channel that announces a queue's new heads.
        index_others: Makes messages that others have offered findable by their ids. Returns how many.
        kept_ms: Returns a due time, ms since the epoch, as it is kept.
        cursor: Returns what stands for an index member at the end of a page: as little of it as Redis needs.
        bodies: Reads what is stored of messages, by their index members; see ``Scan.bodies``.
        ids: Returns the ids under which messages are stored, by their index members; see ``Scan.ids``.
        id_in: Returns the id in an index member, or one made from it, for a message that may be lost.
        kept: Returns as much of an index member as ``priority`` and ``length`` need, which may be kept in any number.
        priority: Returns the priority, 0 to 9, of a member and what ``bodies`` says of it.
        length: Returns the length of a body, of a member and the length that ``Scan.scan`` says of it.
        body: Returns the body in what ``bodies`` says of a message.
    """

    is_shared: bool
    read_a_call: int
    changes_a_call: int
    batch_share: int
    bytes_share: int
    keys: Callable[[Keys, str], list[str]]
    due: Callable[[Keys, str], str]
    channel: Callable[[Keys, str], str]
    index_others: Callable[[ScriptRunner, str], int]
    kept_ms: Callable[[float], float]
    cursor: Callable[[bytes], bytes]
    bodies: Callable[["RedisCommands", Keys, str, Sequence[bytes]], list[bytes | None]]
    ids: Callable[["RedisCommands", Keys, str, Sequence[bytes]], list[bytes]]
    id_in: Callable[[bytes], bytes]
    kept: Callable[[bytes], bytes]
    priority: Callable[[bytes, bytes], int]
    length: Callable[[bytes, int], int]
    body: Callable[[bytes], bytes]
