"""Names of Redis keys and channels. Those of a feature are in its own ``keys.py``; no other module makes one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from kombu.transport.redis import Channel

from kombu_delayq.errors import InvalidOptions, InvalidQueueName

#: For how long minutes are kept, in h: those of a day are whole.
MINUTES_KEPT_H = 25
#: How the names of our keys begin, and those of kombu's and Redisson's, behind the prefix: no list of a queue does.
_RESERVED = ("delayq:", "{delayq}:", "_kombu.binding", "{_kombu.binding}", "{unacked}")
#: Field of ``parked_keys`` with four numbers, of which the third is how many messages may go now.
PARKED = b"\0"
_OF_REDISSON = "redisson_delay_queue"


def glob_escaped(text: str) -> str:
    """Returns the pattern that only this text matches, for commands such as SCAN."""
    return "".join(f"\\{char}" if char in "*?[]\\" else char for char in text)


@dataclass(frozen=True)
class Keys:
    """Names of keys for one Redis database.

    Attributes:
        prefix: kombu's ``global_keyprefix``, before every key and channel.
        db: Number of the database; pub/sub ignores databases, so channels carry it.
        separator: kombu's ``sep``, between a queue's name and its priority step.
        unacked_key: kombu's option of this name.
        unacked_index_key: kombu's option of this name.
        unacked_mutex_key: kombu's option of this name.
    """

    prefix: str = ""
    db: int = 0
    separator: str = "\x06\x16"
    unacked_key: str = "unacked"
    unacked_index_key: str = "unacked_index"
    unacked_mutex_key: str = "unacked_mutex"
    #: Dotted path of the part of a store that looks at the nodes; empty on a server without hash slots.
    nodes_part: ClassVar[str] = ""

    def in_slot_of(self, queue: str, name: str) -> str:
        """Returns the name of one of a queue's lists, without the prefix, by the name that stock kombu has for it."""
        return name

    def slot_group(self, queue: str) -> str:
        """Returns the name of a queue's slot group: an empty text for all queues, or the queue itself.

        kombu keeps what consumers hold in one pair of keys for all queues, which stock workers read. Where Redis keeps
        keys in hash slots, each queue has its own pair, in its slot. The leases of consumers go with it. Messages of
        queues of one slot group can be fetched, acknowledged and reclaimed in one call. Methods that take a queue take
        the name of a slot group.
        """
        return ""

    @property
    def groups(self) -> str | None:
        """Name of the key that has the names of the slot groups; None where all queues are one group."""
        return None

    def guards(self, keys: Sequence[Any]) -> list[str]:
        """Returns what a script names behind its keys, where Redis could run it without some of them: nothing here."""
        return []

    def check_queue(self, queue: str) -> None:
        """Raises InvalidQueueName for a queue that ``is_usable`` does not let pass."""
        if self._is_taken(queue):
            raise InvalidQueueName(
                f"the queue {queue!r} cannot be used: the name of a list of it, behind the prefix {self.prefix!r}, is "
                "kept for keys of kombu-delayq, kombu and Redisson"
            )

    def is_usable(self, queue: str) -> bool:
        """Whether a queue may have this name.

        Its lists, of any priority, are no keys that mean something else to us, to kombu or to Redisson. Whoever may
        publish to any queue could stop all workers otherwise.
        """
        return not self._is_taken(queue)

    def _is_taken(self, queue: str) -> bool:
        names, beginnings = self._reserved
        return queue in names or (queue + self.separator).startswith(beginnings)

    @cached_property
    def _reserved(self) -> tuple[frozenset[str], tuple[str, ...]]:
        """Names that a list may not have, and beginnings of such names, behind the prefix."""
        names = [self.unacked_key, self.unacked_index_key, self.unacked_mutex_key]
        of_redisson = [_OF_REDISSON.removeprefix(self.prefix)] if _OF_REDISSON.startswith(self.prefix) else []
        of_queues = [f"{name}:" for name in names]
        return frozenset(names), (*_RESERVED, *of_redisson, *of_queues)

    def _queue_in(self, tagged: str) -> str:
        """Returns the queue that a key of its own names; of another key, any text."""
        if tagged.startswith("tagged:"):
            return tagged.removeprefix("tagged:")
        return tagged[1:-1].removeprefix(self.prefix)

    def of_all(self, what: str) -> str:
        """Returns the name of a key that all queues have together, in one slot with the others of these."""
        return f"{self.prefix}{{delayq}}:{what}"

    def of_group(self, queue: str, what: str, of_all: str = "") -> str:
        """Returns the name of a key of a queue's slot group, by what it is called where all queues are one group."""
        return self.of_all(of_all or what)

    def _held(self, name: str, queue: str) -> str:
        return self.prefix + name

    @staticmethod
    def _has_tag(key: str) -> bool:
        """Whether the name of a key has a hash tag, so that this alone says in which slot it is."""
        return key.partition("{")[2].find("}") > 0

    def _tagged(self, queue: str) -> str:
        """Returns the name of a queue with a hash tag that puts its keys into the cluster slot of its own list.

        One that has a hash tag of its own is marked, so that the queues "a" and "{a}" share no key.
        """
        return f"tagged:{queue}" if self._has_tag(self.prefix + queue) else f"{{{self.prefix}{queue}}}"

    def of_queue(self, queue: str, what: str) -> str:
        """Returns the name of a key of a queue, in the slot of its lists."""
        return f"{self.prefix}delayq:{self._tagged(queue)}:{what}"

    def shared(self, groups: Iterable[str], exchanges: Iterable[str]) -> dict[str, str]:
        """Returns the types of the keys that queues have together, by name: those without which no worker goes on.

        Args:
            groups: Names of slot groups that have consumers.
            exchanges: Names of exchanges of kombu's.
        """
        found = dict.fromkeys(self.leases, "string")
        found |= dict.fromkeys([self.queues, self.dead_letters], "set")
        found |= dict.fromkeys([self.cancelled, self.chains], "zset")
        found[self.paused()] = "hash"
        for group in groups:
            found |= dict.fromkeys([self.consumers(group), self.unacked_index(group)], "zset")
            found |= dict.fromkeys([self.consumed(group), self.unacked(group), self.places(group)], "hash")
            found[self.paused(group)] = "hash"
        return found | dict.fromkeys(map(self.bindings, exchanges), "set")

    def due(self, queue: str) -> str:
        """ZSET: id of each delayed message, with its due time in ms since the epoch; some have a mark before them."""
        return self.of_queue(queue, "due")

    def bodies(self, queue: str) -> str:
        """HASH: body of each delayed message by its id, the only copy of it; some bodies have a mark before them."""
        return self.of_queue(queue, "bodies")

    def order(self, queue: str) -> str:
        """STRING: count of marked messages. The count orders messages that are due in the same instant."""
        return self.of_queue(queue, "order")

    def duplicates(self, queue: str) -> str:
        """ZSET: ids of duplicates, and of tasks with a waiting key.

        A duplicate is stored beside another message of the same id; its own id has a suffix.
        """
        return self.of_queue(queue, "duplicates")

    def counts(self, queue: str) -> str:
        """HASH: what has happened to a queue's messages so far: how many were transferred, how late, and more."""
        return self.of_queue(queue, "counts")

    def minutes(self, queue: str, hour: int) -> str:
        """STRING with a TTL: what has happened to a queue's messages in each minute of an hour since the epoch."""
        return f"{self.counts(queue)}:{hour}"

    def bucket(self, queue: str) -> str:
        """HASH with a TTL: tokens of a queue with a ``transfer_rate``, and until when due messages are held back."""
        return self.of_queue(queue, "bucket")

    def ready(self, queue: str, priority_steps: Sequence[int]) -> list[str]:
        """LISTs of the messages that wait for a consumer, each once, in the order in which kombu serves them."""
        lists = _KombuLists(self.separator, priority_steps)
        # By the priority steps, as kombu's consumer does: it reads fewer lists if the steps are not ascending.
        names = dict.fromkeys(str(lists._q_for_pri(queue, step)) for step in priority_steps)
        return [self.prefix + self.in_slot_of(queue, name) for name in names]

    def lists_of_priorities(self, priority_steps: Sequence[int]) -> list[int]:
        """Returns, for each priority from 0 to 9, the index in ``ready`` of the list to which kombu pushes it.

        Raises:
            InvalidOptions: With these steps kombu can neither publish nor consume.
        """
        lists = _KombuLists(self.separator, priority_steps)
        try:
            ready = self.ready("", priority_steps)
            names = (str(lists._q_for_pri("", priority)) for priority in range(10))
            return [ready.index(self.prefix + self.in_slot_of("", name)) for name in names]
        except (TypeError, ValueError, LookupError):
            steps = f"priority_steps={priority_steps!r}"
            raise InvalidOptions(f"{steps} is not a list of numbers in ascending order, such as [0, 3, 6, 9]") from None

    @property
    def of_any_queue(self) -> str:
        """Pattern for SCAN that the keys of every queue match."""
        return glob_escaped(self.prefix) + "delayq:*:*"

    def queue_of(self, key: str) -> str | None:
        """Returns the queue of a key that holds delayed messages, or their index, or None."""
        if not key.startswith(f"{self.prefix}delayq:"):
            return None
        tagged, _, what = key.removeprefix(f"{self.prefix}delayq:").rpartition(":")
        queue = self._queue_in(tagged)
        return queue if what in ("due", "bodies", "ids") and key == self.of_queue(queue, what) else None

    @property
    def queues(self) -> str:
        """SET: names of the queues in which delayed messages wait."""
        return self.of_all("queues")

    @staticmethod
    def prefix_of(key: str) -> str | None:
        """Returns the prefix of a key that is the ``queues`` of some database and prefix, or None."""
        end = "{delayq}:queues"
        return key.removesuffix(end) if key.endswith(end) else None

    @property
    def cancelled(self) -> str:
        """ZSET: ids of cancelled tasks whose delay chains take no step; end of that ban, ms since the epoch."""
        return self.of_all("cancelled")

    @property
    def chains(self) -> str:
        """ZSET: ids of delay chains with the due time of the latest step; an empty id where chains are in use."""
        return self.of_all("chains")

    @property
    def lease(self) -> str:
        """STRING with a TTL: name of the leading transfer worker."""
        return self.of_all("transfer")

    @property
    def standby(self) -> str:
        """STRING with a TTL: name of a transfer worker that leads next."""
        return self.of_all("standby")

    @property
    def second_standby(self) -> str:
        """STRING with a TTL: name of another standby."""
        return self.of_all("standby:2")

    @property
    def leases(self) -> list[str]:
        """The lease of the leading transfer worker, and those of its standbys."""
        return [self.lease, self.standby, self.second_standby]

    def unacked(self, queue: str) -> str:
        """HASH of kombu's: delivery tag of each message in hand, with the message, its exchange and routing key."""
        return self._held(self.unacked_key, queue)

    def unacked_index(self, queue: str) -> str:
        """ZSET of kombu's: delivery tag of each message in hand, with the time of its delivery, s since the epoch."""
        return self._held(self.unacked_index_key, queue)

    def places(self, queue: str) -> str:
        """HASH: delivery tag of each message that takes a place of a limit, with where; until its task has ended.

        A feature's other keys begin with this name, and those of a queue with ``base``.
        """
        return self.of_group(queue, "places")

    def base(self, queue: str) -> str:
        """Returns how the keys begin of what a queue has beside its lists."""
        return self.of_queue(queue, "places")

    def parked(self, queue: str) -> str:
        """ZSET: messages of a queue that wait in the sub-queues of limits, each behind its key and its order."""
        return f"{self.base(queue)}:parked"

    def parked_keys(self, queue: str) -> str:
        """HASH: keys of limits that have messages or take places, each with five numbers; NUL with those of all."""
        return f"{self.base(queue)}:known"

    def consumers(self, queue: str) -> str:
        """ZSET: names of the consumers, with the end of their leases, ms since the epoch; 0 while one is reclaimed."""
        return self.of_group(queue, "consumers")

    def consumed(self, queue: str) -> str:
        """HASH: names of the consumers, each with its own report, a JSON object.

        ``queues``: names of the queues that it consumes; ``subscribed``: whether it has subscribed to ``presence``;
        ``process``: then its process, so that others on its machine see whether that has ended;
        ``held``: number of messages in hand; ``held_s``: for how long it has had the oldest of them, in s;
        ``places``: whether it gets messages that wait in sub-queues of limits.
        """
        return self.of_group(queue, "consumed", "consumers:queues")

    def paused(self, queue: str = "") -> str:
        """HASH: queues that are paused, by their names as JSON, with the time of the pause, ms since the epoch.

        One key for all queues; in a cluster also one in the slot of each queue, for the script that fetches.
        """
        return self.of_group(queue, "paused")

    def bindings(self, exchange: str) -> str:
        """SET of kombu's: the queues bound to an exchange, each with routing key and pattern before its name."""
        return f"{self.prefix}_kombu.binding.{exchange}"

    def in_flight(self, queue: str, step: int, consumer: str) -> str:
        """LIST: message on its way from one of a queue's lists, by its number, into the hand of a consumer."""
        return self.of_queue(queue, f"landing:{step}:{consumer}")

    @property
    def of_any_in_flight(self) -> str:
        """Pattern for SCAN that every in-flight list matches."""
        return f"{glob_escaped(self.prefix)}delayq:*:landing:*"

    def in_flight_of(self, key: str) -> tuple[str, int, str] | None:
        """Returns queue, number of the list and consumer of an in-flight list, or None for another key."""
        tagged, _, rest = key.removeprefix(f"{self.prefix}delayq:").rpartition(":landing:")
        step, _, consumer = rest.partition(":")
        queue = self._queue_in(tagged)
        if step.isdecimal() and key == self.in_flight(queue, int(step), consumer):
            return queue, int(step), consumer
        return None

    @property
    def dead_letters(self) -> str:
        """SET: names of the queues into which dead letters were put."""
        return self.of_all("dead_letters")

    def sender(self, name: str, queue: str) -> str:
        """STRING with a TTL: number of the last page that a ``send_many`` has published, to recognize a repetition."""
        return self.of_queue(queue, f"sender:{name}")

    @property
    def wake(self) -> str:
        """Channel: ``<due ms> <queue>`` of every new head."""
        return f"{self.prefix}delayq:wake:{self.db}"

    @property
    def lists(self) -> str:
        """Channel: names of lists as JSON, and of ``unacked``, a blank, and for each 1 if it has messages, else 0.

        The leader publishes there.
        """
        return f"{self.prefix}delayq:lists:{self.db}"

    def presence(self, consumer: str) -> str:
        """Channel to which a consumer subscribes as long as its process lives. Nobody publishes there."""
        return f"{self.prefix}delayq:consumer:{consumer}"


class _KombuLists:
    """kombu's own functions that name the lists of a queue, without a channel."""

    priority: Any = Channel.priority
    _q_for_pri: Any = Channel._q_for_pri

    def __init__(self, separator: str, priority_steps: Sequence[int]) -> None:
        self.sep = separator
        self.priority_steps = priority_steps


class KeyNames:
    """Names of the keys of one feature, for one Redis database.

    As in ``Keys``, a member names a key if its docstring begins with a type, such as ``HASH``. The page of all keys is
    made from these docstrings.

    Args:
        keys: Names of the keys that all features use, made of ``Keys.of_all`` and ``Keys.of_queue`` as these are.
    """

    def __init__(self, keys: Keys) -> None:
        self._of = keys

    def shared(self) -> dict[str, str]:
        """Returns the types of the keys that queues have together, by name, as ``Keys.shared``."""
        return {}
