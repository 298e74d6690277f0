"""Every Redis key and channel name that kombu-delayq uses. No other module builds one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kombu.transport.redis import Channel

from kombu_delayq.errors import InvalidOptions


@dataclass(frozen=True)
class Keys:
    """Names of keys for one Redis database.

    Attributes:
        prefix: kombu's ``global_keyprefix``, before every key and channel.
        db: Number of the database; pub/sub ignores databases, so channels carry it.
        separator: kombu's ``sep``, between a queue's name and its priority step.
        unacked_key: kombu's option of this name.
        unacked_index_key: kombu's option of this name.
    """

    prefix: str = ""
    db: int = 0
    separator: str = "\x06\x16"
    unacked_key: str = "unacked"
    unacked_index_key: str = "unacked_index"

    def due(self, queue: str) -> str:
        """ZSET: id of each delayed message, with its due time in ms since the epoch; some have a mark before them."""
        return self._of_queue(queue, "due")

    def backup(self, queue: str) -> str:
        """HASH: body of each delayed message by its id, the only copy of it; some bodies have a mark before them."""
        return self._of_queue(queue, "backup")

    def order(self, queue: str) -> str:
        """STRING: count of marked messages. The count orders messages that are due in the same instant."""
        return self._of_queue(queue, "order")

    def twins(self, queue: str) -> str:
        """ZSET: ids of twins. A twin is a message beside another one of the same id; its own id has a suffix."""
        return self._of_queue(queue, "twins")

    def timeout(self, queue: str) -> str:
        """ZSET of Redisson's form: entry of each delayed message, with its due time in ms since the epoch."""
        return self._of_redisson("redisson_delay_queue_timeout", queue)

    def listed(self, queue: str) -> str:
        """LIST of Redisson's form: the same entries, and some that have left the ZSET."""
        return self._of_redisson("redisson_delay_queue", queue)

    def channel(self, queue: str) -> str:
        """Channel of Redisson's form: the due time of every new head, ms since the epoch."""
        return self._of_redisson("redisson_delay_queue_channel", queue)

    def notes(self, queue: str) -> str:
        """HASH beside Redisson's keys: count of marked messages, and notes on the state of the list."""
        return self._of_queue(queue, "notes")

    def ids(self, queue: str) -> str:
        """HASH beside Redisson's keys: id of each delayed message, with its due time and the mark of its entry."""
        return self._of_queue(queue, "ids")

    def counts(self, queue: str) -> str:
        """HASH: what has happened to a queue's messages so far: how many were transferred, how late, and more."""
        return self._of_queue(queue, "counts")

    def bucket(self, queue: str) -> str:
        """HASH with a TTL: tokens of a queue with a ``transfer_rate``, and until when due messages are held back."""
        return self._of_queue(queue, "bucket")

    def urgent(self, queue: str, backup: str) -> str:
        """ZSET with a TTL: urgent ones of the due messages that are held back, with the numbers of their lists."""
        return self._of_queue(queue, "urgent" if backup == "hash" else "urgent:list")

    def stored(self, queue: str, backup: str) -> list[str]:
        """Names of the keys in which one form of backup keeps a queue's delayed messages.

        Returns:
            Four, in the order in which scripts take them. Scripts call them due, bodies, notes and ids.
        """
        kinds = {
            "hash": (self.due, self.backup, self.order, self.twins),
            "list": (self.timeout, self.listed, self.notes, self.ids),
        }
        return [key(queue) for key in kinds[backup]]

    def ready(self, queue: str, priority_steps: Sequence[int]) -> list[str]:
        """LISTs of the messages that wait for a consumer, each once, in the order in which kombu serves them."""
        lists = _KombuLists(self.separator, priority_steps)
        # By the priority steps, as kombu's consumer does: it reads fewer lists if the steps are not ascending.
        return list(dict.fromkeys(self.prefix + lists._q_for_pri(queue, step) for step in priority_steps))

    def lists_of_priorities(self, priority_steps: Sequence[int]) -> list[int]:
        """Returns, for each priority from 0 to 9, the index in ``ready`` of the list to which kombu pushes it.

        Raises:
            InvalidOptions: With these steps kombu can neither publish nor consume.
        """
        lists = _KombuLists(self.separator, priority_steps)
        try:
            ready = self.ready("", priority_steps)
            return [ready.index(self.prefix + lists._q_for_pri("", priority)) for priority in range(10)]
        except (TypeError, ValueError, LookupError):
            steps = f"priority_steps={priority_steps!r}"
            raise InvalidOptions(f"{steps} is not a list of numbers in ascending order, such as [0, 3, 6, 9]") from None

    @property
    def of_any_queue(self) -> str:
        """Pattern for SCAN that the keys of every queue match."""
        return glob_escaped(self.prefix) + "delayq:*:*"

    def queue_of(self, key: str) -> str | None:
        """Returns the queue of a key that holds the index or the bodies of delayed messages, or None."""
        if not key.startswith(f"{self.prefix}delayq:"):
            return None
        tagged, _, what = key.removeprefix(f"{self.prefix}delayq:").rpartition(":")
        queue = tagged.removeprefix("tagged:") if tagged.startswith("tagged:") else tagged[1:-1]
        return queue if what in ("due", "backup", "ids") and key == self._of_queue(queue, what) else None

    @property
    def queues(self) -> str:
        """SET: names of the queues that hold or held delayed messages."""
        return f"{self.prefix}delayq:queues"

    @staticmethod
    def prefix_of(key: str) -> str | None:
        """Returns the prefix of a key that is the ``queues`` of some database and prefix, or None."""
        return key.removesuffix("delayq:queues") if key.endswith("delayq:queues") else None

    @property
    def used(self) -> str:
        """ZSET: names of the queues in ``queues``, with the time of their last use, in ms since the epoch."""
        return f"{self.prefix}delayq:used"

    @property
    def cancelled(self) -> str:
        """ZSET: ids of cancelled tasks whose delay chains take no step; end of that ban, ms since the epoch."""
        return f"{self.prefix}delayq:cancelled"

    @property
    def chains(self) -> str:
        """ZSET: ids of delay chains with the due time of the latest step; an empty id where chains are in use."""
        return f"{self.prefix}delayq:chains"

    @property
    def lease(self) -> str:
        """STRING with a TTL: name of the leading transfer worker."""
        return f"{self.prefix}delayq:transfer"

    @property
    def deputy(self) -> str:
        """STRING with a TTL: name of a transfer worker that leads next."""
        return f"{self.prefix}delayq:deputy"

    @property
    def second_deputy(self) -> str:
        """STRING with a TTL: name of another deputy."""
        return f"{self.prefix}delayq:deputy:2"

    @property
    def leases(self) -> list[str]:
        """The lease of the leading transfer worker, and those of its deputies."""
        return [self.lease, self.deputy, self.second_deputy]

    @property
    def unacked(self) -> str:
        """HASH of kombu's: delivery tag of each message in hand, with the message, its exchange and routing key."""
        return self.prefix + self.unacked_key

    @property
    def unacked_index(self) -> str:
        """ZSET of kombu's: delivery tag of each message in hand, with the time of its delivery, s since the epoch."""
        return self.prefix + self.unacked_index_key

    @property
    def consumers(self) -> str:
        """ZSET: names of the consumers, with the end of their leases, ms since the epoch; 0 while one is reclaimed."""
        return f"{self.prefix}delayq:consumers"

    @property
    def consumed(self) -> str:
        """HASH: names of the consumers, with the names of the queues that each consumes, a JSON list."""
        return f"{self.prefix}delayq:consumers:queues"

    def bindings(self, exchange: str) -> str:
        """SET of kombu's: the queues bound to an exchange, each with routing key and pattern before its name."""
        return f"{self.prefix}_kombu.binding.{exchange}"

    def landing(self, queue: str, step: int, consumer: str) -> str:
        """LIST: message on its way from one of a queue's lists, by its number, into the hand of a consumer."""
        return self._of_queue(queue, f"landing:{step}:{consumer}")

    @property
    def of_any_landing(self) -> str:
        """Pattern for SCAN that every landing list matches."""
        return f"{glob_escaped(self.prefix)}delayq:*:landing:*"

    def landing_of(self, key: str) -> tuple[str, int, str] | None:
        """Returns queue, number of the list and consumer of a landing list, or None for another key."""
        tagged, _, rest = key.removeprefix(f"{self.prefix}delayq:").rpartition(":landing:")
        step, _, consumer = rest.partition(":")
        queue = tagged.removeprefix("tagged:") if tagged.startswith("tagged:") else tagged[1:-1]
        if step.isdecimal() and key == self.landing(queue, int(step), consumer):
            return queue, int(step), consumer
        return None

    @property
    def dead_letters(self) -> str:
        """SET: names of the queues into which dead letters were put."""
        return f"{self.prefix}delayq:dead_letters"

    @property
    def audit(self) -> str:
        """STREAM: the latest of who did what to waiting messages, through ``delayq serve``."""
        return f"{self.prefix}delayq:audit"

    @property
    def journal(self) -> str:
        """HASH: marker of the journal that this Redis belongs to: its id, and term, epoch and beat of its promoter."""
        return f"{self.prefix}delayq:journal"

    @property
    def journal_guard(self) -> str:
        """HASH: number of each row of the journal that is being promoted or taken out, with its state and the time."""
        return f"{self.prefix}delayq:journal:guard"

    @property
    def journal_lease(self) -> str:
        """STRING with a TTL: token of the process that promotes rows of the journal."""
        return f"{self.prefix}delayq:journal:lease"

    def answer(self, key: str) -> str:
        """HASH with a TTL: a request of the HTTP API with an idempotency key, and the first answer to it."""
        return f"{self.prefix}delayq:answer:{key}"

    def replaying(self, queue: str) -> str:
        """STRING with a TTL: name of the one caller that goes through a queue of dead letters."""
        return f"{self.prefix}delayq:replaying:{queue}"

    def sender(self, name: str) -> str:
        """STRING with a TTL: number of the last page that a ``send_many`` has published, to recognize a repetition."""
        return f"{self.prefix}delayq:sender:{name}"

    @property
    def runs(self) -> str:
        """STRING: count of the runs of bulk jobs."""
        return f"{self.prefix}delayq:runs"

    def job(self, name: str) -> str:
        """HASH with a TTL: state of a bulk job, so that its tasks cannot write after its end."""
        return f"{self.prefix}delayq:job:{name}"

    def guard(self, name: str) -> str:
        """SET with a TTL: ids that a bulk job has sent so far, until it is committed."""
        return f"{self.prefix}delayq:guard:{name}"

    def staged(self, name: str) -> str:
        """LIST with a TTL: messages that a bulk job sends when it is committed, five entries each."""
        return f"{self.prefix}delayq:staged:{name}"

    def stream(self, name: str) -> str:
        """STRING with a TTL: name of the bulk job that a stream works on."""
        return f"{self.prefix}delayq:stream:{name}"

    @property
    def wake(self) -> str:
        """Channel: ``<due ms> <queue>`` of every new head."""
        return f"{self.prefix}delayq:wake:{self.db}"

    def _of_queue(self, queue: str, what: str) -> str:
        # The hash tag puts a queue's keys into the cluster slot of its own list. The name of a queue that contains a
        # hash tag gets another form, so that the queues "a" and "{a}" share no key.
        tagged = f"tagged:{queue}" if "{" in queue else f"{{{queue}}}"
        return f"{self.prefix}delayq:{tagged}:{what}"

    def _of_redisson(self, name: str, queue: str) -> str:
        # For Redisson, the name of a queue is the name of the list to which its messages go.
        # Source: RedissonObject.suffixName
        ready = self.prefix + queue
        return f"{name}:{ready}" if "{" in ready else f"{name}:{{{ready}}}"


def glob_escaped(text: str) -> str:
    """Returns the pattern that only this text matches, for commands such as SCAN."""
    return "".join(f"\\{char}" if char in "*?[]\\" else char for char in text)


class _KombuLists:
    """kombu's own functions that name the lists of a queue, without a channel."""

    priority: Any = Channel.priority
    _q_for_pri: Any = Channel._q_for_pri

    def __init__(self, separator: str, priority_steps: Sequence[int]) -> None:
        self.sep = separator
        self.priority_steps = priority_steps
