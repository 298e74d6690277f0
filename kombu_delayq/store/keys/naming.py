"""How the names of Redis keys are made.

All keys of ours for a queue share the hash slot of the queue's list, on every server. Names of kombu's own keys are
those of stock kombu, which reads them, as far as it can: stock kombu cannot use a cluster, and there keys that one
command touches have to share a slot. ``in_slot_of``, ``share`` and ``bindings`` are all that differs.
"""

from dataclasses import dataclass

from kombu_delayq.errors import InvalidQueueName
from kombu_delayq.redis import slots


@dataclass(frozen=True)
class Naming:
    """Makes names of keys for one Redis database.

    Attributes:
        prefix: kombu's ``global_keyprefix``, before every key and channel.
        db: Number of the database; pub/sub ignores databases, so channels carry it.
        separator: kombu's ``sep``, between a queue's name and its priority step.
        unacked_key: kombu's option of this name.
        unacked_index_key: kombu's option of this name.
        slots: Whether Redis keeps keys in the hash slots of Redis Cluster. Then kombu's lists of a queue share a slot,
            and what consumers hold is kept queue by queue.
    """

    prefix: str = ""
    db: int = 0
    separator: str = "\x06\x16"
    unacked_key: str = "unacked"
    unacked_index_key: str = "unacked_index"
    slots: bool = False

    def in_slot_of(self, queue: str, name: str) -> str:
        """Returns the name of one of a queue's lists without the prefix.

        Args:
            queue: Name of the queue.
            name: Name of the list as stock kombu has it. In a cluster, a list that is not the first one gets the hash
                tag of the queue.
        """
        if not self.slots or name == queue:
            return name
        return self._tagged(queue) + name.removeprefix(queue)

    def share(self, queue: str) -> str:
        """Returns what the keys of messages in hand are named after: nothing, or the queue in a cluster.

        kombu keeps what consumers hold in one pair of keys for all queues, which stock workers read; in a cluster each
        queue has its own pair, in its slot. The leases of consumers go with it. Queues of equal shares can be taken
        from, acknowledged and reclaimed in one call.
        """
        return queue if self.slots else ""

    def check_queue(self, queue: str) -> None:
        """Raises InvalidQueueName for a queue whose keys cannot be in the slot of its list."""
        if not self.has_slot(queue):
            reason = "has a brace, but no hash tag such as {a}" if self.prefix + queue else "is empty"
            raise InvalidQueueName(
                f"the queue {queue!r} cannot be used in Redis Cluster: its name, behind the prefix {self.prefix!r}, "
                f"{reason}"
            )

    def has_slot(self, queue: str) -> bool:
        """Returns whether the keys of a queue can be in the slot of its list; on a plain server any name will do."""
        if not self.slots or ((name := self.prefix + queue) and "{" not in name and "}" not in name):
            return True
        ours = self._of_queue(queue, "due"), self._of_redisson("redisson_delay_queue", queue)
        return all(slots.share_one(name, key) for key in ours)

    def _queue_in(self, tagged: str) -> str:
        """Returns the queue that a key of its own names; of another key, any text."""
        if tagged.startswith("tagged:"):
            return tagged.removeprefix("tagged:")
        return tagged[1:-1].removeprefix(self.prefix)

    def _of_all(self, what: str) -> str:
        return f"{self.prefix}{{delayq}}:{what}"

    def _of_job(self, what: str, name: str, queue: str | None) -> str:
        return self._of_all(f"{what}:{name}") if queue is None else self._of_queue(queue, f"{name}:{what}")

    def _of_share(self, name: str, share: str) -> str:
        if not share:
            return self.prefix + name
        return f"{self.prefix}{name}:{self._tagged(share)}"

    def _has_tag(self, queue: str) -> bool:
        """Whether the name of a queue's list has a hash tag, so that this alone says in which slot it is."""
        _, brace, rest = (self.prefix + queue).partition("{")
        return bool(brace) and rest.find("}") > 0

    def _tagged(self, queue: str) -> str:
        """Returns the name of a queue with the hash tag of its list; as it is, if it has one."""
        return queue if self._has_tag(queue) else f"{{{self.prefix}{queue}}}"

    def _of_queue(self, queue: str, what: str) -> str:
        # The hash tag puts a queue's keys into the cluster slot of its own list. The name of a queue that contains a
        # hash tag gets another layout, so that the queues "a" and "{a}" share no key.
        tagged = f"tagged:{queue}" if self._has_tag(queue) else self._tagged(queue)
        return f"{self.prefix}delayq:{tagged}:{what}"

    def _of_redisson(self, name: str, queue: str) -> str:
        # For Redisson, the name of a queue is the name of the list to which its messages go.
        # Source: RedissonObject.suffixName
        ready = self.prefix + queue
        return f"{name}:{ready}" if "{" in ready else f"{name}:{{{ready}}}"


def glob_escaped(text: str) -> str:
    """Returns the pattern that only this text matches, for commands such as SCAN."""
    return "".join(f"\\{char}" if char in "*?[]\\" else char for char in text)
