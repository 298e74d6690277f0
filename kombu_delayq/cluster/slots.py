"""The hash slots of Redis Cluster: which one a key is in, and the names of keys where Redis keeps them in slots."""

from collections.abc import Iterable, Sequence
from typing import Any

from redis.crc import key_slot

from kombu_delayq.errors import InvalidQueueName
from kombu_delayq.store import Keys, RedissonKeys
from kombu_delayq.text import as_bytes, as_text

#: How many hash slots every Redis Cluster has.
SLOTS = 16_384


def slot_of_key(key: str | bytes) -> int:
    """Returns the hash slot of a key."""
    return int(key_slot(as_bytes(key)))


class SlotKeys(Keys):
    """Names of keys for a server with hash slots. kombu's lists of a queue share a slot with our keys of the queue.

    Each queue is a slot group of its own: what consumers hold of it, and their leases, are in its slot, too.
    """

    nodes_part = "kombu_delayq.cluster:Nodes"

    def in_slot_of(self, queue: str, name: str) -> str:
        """Returns the name of a list of a queue; one that is not the first list gets the hash tag of the queue."""
        return name if name == queue else self._tagged(queue) + name.removeprefix(queue)

    def slot_group(self, queue: str) -> str:
        """Returns the queue itself."""
        return queue

    def guards(self, keys: Sequence[Any]) -> list[str]:
        """Returns a key in the slot of a script's keys that there never is; nothing for a script without keys.

        While a slot moves, a node runs a script if it has all keys that the script names, and stops it, after its first
        writes, at one that is gone since, or that it does not name. Because of the last key, the old node runs none.
        """
        return [f"{key if self._has_tag(key) else f'{{{key}}}'}:moves" for key in map(as_text, keys[:1])]

    def check_queue(self, queue: str) -> None:
        """Raises InvalidQueueName for a queue that ``is_usable`` does not let pass."""
        super().check_queue(queue)
        if not self._has_slot(queue):
            reason = "has a brace, but no hash tag such as {a}" if self.prefix + queue else "is empty"
            raise InvalidQueueName(
                f"the queue {queue!r} cannot be used in Redis Cluster: its name, behind the prefix {self.prefix!r}, "
                f"{reason}"
            )

    def is_usable(self, queue: str) -> bool:
        """Whether a queue may have this name, and its keys can be in the slot of its list."""
        return super().is_usable(queue) and self._has_slot(queue)

    def of_group(self, queue: str, what: str, of_all: str = "") -> str:
        """Returns the name of a key of a queue, or without one, of a key that all queues have together."""
        return self.of_queue(queue, what) if queue else super().of_group(queue, what, of_all)

    def shared(self, groups: Iterable[str], exchanges: Iterable[str]) -> dict[str, str]:
        """Returns the types of the keys that queues have together, by name."""
        return super().shared(groups, exchanges) | {self.consumed_queues: "set"}

    @property
    def groups(self) -> str:
        """Name of the key that has the names of the slot groups."""
        return self.consumed_queues

    @property
    def consumed_queues(self) -> str:
        """SET, in Redis Cluster only: names of the queues that have or had consumers, whose leases are by queue."""
        return self.of_all("consumed_queues")

    def bindings(self, exchange: str) -> str:
        """Returns the name of kombu's key of the queues that are bound to an exchange."""
        return f"{self.prefix}{{_kombu.binding}}.{exchange}"

    def _held(self, name: str, queue: str) -> str:
        return f"{self.prefix}{name}:{self._tagged(queue)}" if queue else super()._held(name, queue)

    def _has_slot(self, queue: str) -> bool:
        """Whether the keys of a queue can be in the slot of its list."""
        if (name := self.prefix + queue) and "{" not in name and "}" not in name:
            return True
        ours = self.of_queue(queue, "due"), RedissonKeys(self).listed(queue)
        return all(slot_of_key(name) == slot_of_key(key) for key in ours)
