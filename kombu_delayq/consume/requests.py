"""What a fetcher asks Redis for over its own connection, and what becomes of a request whose reply does not come."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kombu.log import get_logger
from redis.exceptions import NoScriptError, RedisError

from kombu_delayq.consume.acks import Acks
from kombu_delayq.options import Options

if TYPE_CHECKING:
    from kombu_delayq.consume.consumer import Consumer
    from kombu_delayq.consume.pipelined import PipelinedConnection
    from kombu_delayq.redis import Command
    from kombu_delayq.store import DelayStore, Request

logger = get_logger(__name__)


class Requests:
    """Requests for messages, one at a time, and acknowledgements, which go with the next request or alone.

    A request ends in one of three ways. Its reply is read. Its connection is lost, and nobody knows whether Redis has
    run it. Or the thread that would read the reply is busy, and another one gives the request up. In the last two, what
    Redis has fetched for it goes back to its queue.

    Args:
        connection: The connection.
        consumer: The consumer in whose name messages are fetched.
        group: Name of the slot group of their queues.

    Attributes:
        acks: The acknowledgements.
        are_unsure: Whether Redis may have fetched messages of which nobody knows.
    """

    def __init__(self, connection: "PipelinedConnection", consumer: "Consumer", group: str) -> None:
        self.connection = connection
        self.acks = Acks(consumer.held, group)
        self.are_unsure = False
        self._consumer = consumer
        self._group = group
        self._unclaimed: dict[int, Request] = {}  # at most one, by its first number
        self._by_text = False

    @property
    def current(self) -> "Request | None":
        """The request on its way, unless it is given up."""
        return next(iter(self._unclaimed.copy().values()), None) if self._unclaimed else None

    @property
    def asked(self) -> int:
        """How many messages may come in reply to it; 0 for a late one, which nobody waits for."""
        return 0 if (request := self.current) is None or self.connection.is_late else request.most

    def ask(
        self,
        store: "DelayStore",
        before: Sequence["Command"],
        request: "Request",
        on_before: Callable[[list[Any]], None],
        on_reply: Callable[["Request", Any], None],
    ) -> None:
        """Sends a request, with acknowledgements.

        Args:
            store: The store of the broker.
            before: Commands to send before.
            request: The request.
            on_before: Called with the replies to these.
            on_reply: Called with the request and its reply, which may be an error; None in place of the reply if the
                request was given up, and Redis has run it.
        """
        acks, on_acked = self.acks.commands(store)
        fetch = store.fetching.fetch_command(request, by_text=self._by_text)

        def on_replies(replies: list[Any]) -> None:
            on_before(replies[: len(before)])
            on_acked(replies[len(before) : -1])
            reply = replies[-1]
            if self._claim(request):
                self._by_text = isinstance(reply, NoScriptError)
                on_reply(request, reply)
                return
            self._consumer.lost.answered(request)
            self.are_unsure = True
            if not isinstance(reply, Exception):
                on_reply(request, None)

        self._unclaimed[request.first] = request  # Redis may run it even if sending it fails
        self.connection.send([*before, *acks, fetch], on_replies)

    def send_acks(self, store: "DelayStore") -> None:
        """Sends acknowledgements, if there are any."""
        if self.acks:
            commands, on_acked = self.acks.commands(store)
            if commands:
                self.connection.send(commands, on_acked)

    def check(self) -> bool:
        """Returns whether the reply to the request may still come; raises an error when it is overdue."""
        self.connection.check()
        return not self._unclaimed or self.connection.is_open

    def read_last(self) -> bool:
        """Reads the reply, if the connection brings it soon. Returns False if it has not."""
        if self._unclaimed:
            try:
                self.connection.read_within(Options.answer_s)
            except (RedisError, OSError) as error:
                logger.info("the reply to the last request for messages is lost: %s", error)
        return not self._unclaimed

    def lose(self) -> None:
        """Gives up the replies that a lost connection would have brought."""
        request = self.current
        if request is not None and self._claim(request) and request.most:
            self._consumer.lost.add(request)
            self.are_unsure = True
        self.acks.repeat()

    def give_up(self, store: "DelayStore", request: "Request") -> None:
        """Puts back what a request on its way brings, because the thread that would read its reply is busy."""
        if self._claim(request):
            self._consumer.lost.add(request)
            self._consumer.lost.recover(store, self._group)

    def recover(self, store: "DelayStore") -> None:
        """Puts back what Redis has fetched for requests whose replies do not come."""
        self._consumer.lost.recover(store, self._group)
        self.are_unsure = False

    def _claim(self, request: "Request") -> bool:
        """Ends a request on its way. Returns whether the caller sees to what it brings, and no other thread."""
        return self._unclaimed.pop(request.first, None) is not None
