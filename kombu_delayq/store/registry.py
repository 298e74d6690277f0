"""The registry of the queues that hold delayed messages."""

from math import inf
from time import monotonic
from typing import Any

from redis.exceptions import NoScriptError

from kombu_delayq.connection.text import Command, as_text
from kombu_delayq.store.client import StoreClient

#: What scripts answer that bring a message into a queue which held others, or bring none: see ``Offered.place``.
_NOT_FIRST = frozenset(("head", "behind", "due", "gone", "waits", "cancelled", "repeated"))


class QueueRegistry:
    """Registers the queues that hold delayed messages: transfer workers look only at these.

    An operation that brings a message into a queue registers its name in the same round trip. Apart from this class,
    only the scripts ``keep_alive``, ``note_use`` and ``forget``, and ``Queues.forget``, write the SET.

    In a cluster the names are in another slot than a queue, maybe on another node. Commands in one round trip have no
    order there. So a publisher adds the name together with the message. If its message was the first of the queue, it
    adds the name once more after that. ``Queues.forget`` removes the name first and looks then whether the queue is
    still empty. One of the two comes later, and leaves the name where it has to be. If a publisher dies in between and
    the queue is just being forgotten, the next message in the queue brings its name back, and so do its consumers.
    """

    def __init__(self, client: StoreClient) -> None:
        self._client = client
        #: By queue: when a message last came while the queue held others, in s of ``monotonic``.
        self._held_others: dict[str, float] = {}

    def around(self, queue: str, command: Command) -> list[Command]:
        """Returns a command that brings messages into a queue, between two commands that register the queue.

        In a cluster, the caller calls ``confirm`` when they have been answered.

        The command before it is there for a publisher that dies in between: it leaves no message in an unknown queue.
        The command after it is there because the name of an empty queue may be forgotten in between. It never fails:
        if the message has just filled Redis, an error would report a finished publish as failed.
        """
        self._client.keys.check_queue(queue)
        return [
            ("SADD", self._client.keys.queues, queue),
            command,
            self._client.eval_command("know", [self._client.keys.queues], [queue]),
        ]

    def confirm(self, queue: str) -> None:
        """Registers a queue once more after the commands of ``around``, in a cluster; elsewhere it does nothing."""
        if self._client.keys.slots:
            self.know(queue)

    def run(self, operation: str, queue: str, keys: list[str], args: list[Any]) -> Any:
        """Runs a script that brings messages into a queue, and registers the queue; one round trip.

        In a cluster it takes two if the reply does not say that the queue held other messages.
        """
        commands = self._around_apart if self._client.keys.slots else self.around
        try:
            reply = self._client.send(commands(queue, self._client.evalsha_command(operation, keys, args)))[1]
        except NoScriptError:
            reply = self._client.send(commands(queue, self._client.eval_command(operation, keys, args)))[1]
        if self._client.keys.slots and _may_be_first(reply):
            self.know(queue)
        return reply

    def is_sure_of(self, queue: str) -> bool:
        """Whether a queue held messages so lately that nobody can have forgotten it."""
        forget_after = self._client.options.forget_after
        age_s = monotonic() - self._held_others.get(queue, -inf)
        return age_s < (inf if forget_after is None else forget_after / 2)

    def note(self, queue: str, place: str, *, registered: bool) -> None:
        """Notes where a new message stands in its queue; registers a queue that was empty, unless it is ``registered``.

        Args:
            queue: Name of the queue.
            place: As in ``Offered``; after ``first`` the queue may be forgotten.
            registered: Whether the queue was registered in the same round trip.
        """
        if place != "first":
            self._held_others[queue] = monotonic()
            return
        self.drop(queue)
        if not registered:
            self.add(queue)

    def drop(self, queue: str) -> None:
        """Notes that a queue may be forgotten, such as after a purge."""
        self._held_others.pop(queue, None)

    def add(self, queue: str) -> None:
        """Registers a queue."""
        self._client.ask("SADD", self._client.keys.queues, queue)

    def know(self, queue: str) -> bool:
        """Registers a queue, also in a full Redis that has room for the name. Returns whether it is registered."""
        return as_text(self._client.run("know", [self._client.keys.queues], [queue])) == "known"

    def _around_apart(self, queue: str, command: Command) -> list[Command]:
        self._client.keys.check_queue(queue)
        return [("SADD", self._client.keys.queues, queue), command]


def _may_be_first(reply: Any) -> bool:
    """Whether a script may have brought the first message of a queue, by its reply or the beginning of it."""
    word = reply[0] if isinstance(reply, list) and reply else reply
    return not (isinstance(word, str | bytes) and as_text(word) in _NOT_FIRST)
