"""The registry of the queues that hold delayed messages."""

from functools import cached_property
from math import inf
from time import monotonic
from typing import Any

from kombu.log import get_logger
from redis.exceptions import NoScriptError, RedisError, ResponseError

from kombu_delayq.connection.text import Command, as_text
from kombu_delayq.store.client import StoreClient

logger = get_logger(__name__)

#: With several nodes, a process adds the name of a queue before a message only so often, in s; after the first message
#: of the queue it does so always.
NOTED_S = 60.0
#: What scripts answer that bring a message into a queue which held others, or bring none: see ``Offered.place``.
_NOT_FIRST = frozenset(("head", "behind", "due", "gone", "waits", "cancelled", "repeated"))


class QueueRegistry:
    """Registers the queues that hold delayed messages: transfer workers look only at these.

    An operation that brings a message into a queue registers its name in the same round trip. Apart from this class,
    only the scripts ``keep_alive``, ``note_use`` and ``forget``, and ``Queues.forget``, write the SET.

    In hash slots the names are in another slot than a queue. So a publisher adds the name together with the message, or
    before it where there are several nodes, unless it has done so lately. If its message was the first of the queue, it
    adds the name once more after that. ``Queues.forget`` removes the name first and looks then whether the queue is
    still empty. One of the two comes later, and leaves the name where it has to be. If a publisher dies in between and
    the queue is just being forgotten, the next message in the queue brings its name back, and so do its consumers.

    Of several nodes, that of the names may be away while that of the queue is there. Then the message is stored all the
    same: the leading transfer worker hears of it, and the name is added later, by this process or by that worker.
    """

    def __init__(self, client: StoreClient) -> None:
        self._client = client
        #: By queue: when a message last came while the queue held others, in s of ``monotonic``.
        self._held_others: dict[str, float] = {}
        #: With several nodes: when the name of a queue was last added, in s of ``monotonic``; those still to be added.
        self._noted: dict[str, float] = {}
        self._unnoted: set[str] = set()

    def around(self, queue: str, command: Command) -> list[Command]:
        """Returns a command that brings messages into a queue, between two commands that register the queue.

        Of several nodes, that of the names may be away. So there the queue is registered before this returns, and the
        command stands alone. In hash slots, the caller calls ``confirm`` when the commands have been answered.

        The command before it is there for a publisher that dies in between: it leaves no message in an unknown queue.
        The command after it is there because the name of an empty queue may be forgotten in between. It never fails:
        if the message has just filled Redis, an error would report a finished publish as failed.
        """
        self._client.keys.check_queue(queue)
        if self._has_nodes:
            self._add_apart(queue)
            return [command]
        names = self._client.keys.queues
        return [("SADD", names, queue), command, self._client.eval_command("know", [names], [queue])]

    def confirm(self, queue: str) -> None:
        """Registers a queue once more after the commands of ``around``, in a cluster; elsewhere it does nothing."""
        if self._client.keys.slots:
            self.know(queue)

    def run(self, operation: str, queue: str, keys: list[str], args: list[Any]) -> Any:
        """Runs a script that brings messages into a queue, and registers the queue; one round trip.

        In hash slots it takes two if the reply does not say that the queue held other messages; with several nodes one
        more, if the name was not added lately.
        """
        try:
            reply = self._run(queue, self._client.evalsha_command(operation, keys, args))
        except NoScriptError:
            reply = self._run(queue, self._client.eval_command(operation, keys, args))
        if _may_be_first(reply):
            self.confirm(queue)
        return reply

    def is_sure_of(self, queue: str) -> bool:
        """Whether a queue is registered, and held messages so lately that nobody can have forgotten it."""
        if queue in self._unnoted:
            return False
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
        self._held_others.pop(queue, None)
        if not registered:
            self.know(queue) if self._has_nodes else self.add(queue)

    def drop(self, queue: str) -> None:
        """Notes that a queue may be forgotten, such as after a purge."""
        self._held_others.pop(queue, None)
        self._noted.pop(queue, None)

    def add(self, queue: str) -> None:
        """Registers a queue."""
        self._client.ask("SADD", self._client.keys.queues, queue)

    def know(self, queue: str) -> bool:
        """Registers a queue, also in a full Redis that has room for the name. Returns whether it is registered.

        Of several nodes, it does not wait for that of the names if that is away; the name is added later.
        """
        try:
            known = as_text(self._names.run("know", [self._client.keys.queues], [queue])) == "known"
        except (RedisError, OSError) as error:
            self._put_off(queue, error)
            return False
        if known:
            self._unnoted.discard(queue)
            self._noted[queue] = monotonic()
        return known

    @cached_property
    def _names(self) -> StoreClient:
        """Sends the commands for the names."""
        return self._client.aside()

    @property
    def _has_nodes(self) -> bool:
        return self._names is not self._client

    def _run(self, queue: str, command: Command) -> Any:
        commands = self.around(queue, command)
        if self._client.keys.slots and not self._has_nodes:
            commands = commands[:2]  # the queue is registered once more only if the reply asks for it
        replies = self._client.send(commands)
        return replies[len(commands) // 2]

    def _add_apart(self, queue: str) -> None:
        """Adds the name of a queue, and those that could not be added before, if that was not done lately."""
        if monotonic() - self._noted.get(queue, -inf) < NOTED_S:
            return
        names = {queue, *list(self._unnoted)}
        try:
            self._names.ask("SADD", self._client.keys.queues, *sorted(names))
        except (RedisError, OSError) as error:
            self._put_off(queue, error)
            return
        self._unnoted.difference_update(names)
        self._noted |= dict.fromkeys(names, monotonic())

    def _put_off(self, queue: str, error: Exception) -> None:
        """Notes that the name of a queue is still to be added. Raises an error that does not concern one node alone.

        Args:
            queue: Its name.
            error: Why its name could not be added.
        """
        if not self._has_nodes or isinstance(error, ResponseError):
            raise error
        self._unnoted.add(queue)
        logger.debug("queue %r is not registered yet: %s", queue, error)


def _may_be_first(reply: Any) -> bool:
    """Whether a script may have brought the first message of a queue, by its reply or the beginning of it."""
    word = reply[0] if isinstance(reply, list) and reply else reply
    return not (isinstance(word, str | bytes) and as_text(word) in _NOT_FIRST)
