"""Acknowledgements that are gathered while an event loop turns, and sent together."""

from collections import deque
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from math import inf
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any

from kombu.log import get_logger
from redis.exceptions import NoScriptError

from kombu_delayq.redis import PASSING_S, Command, clears
from kombu_delayq.store import PAGE

if TYPE_CHECKING:
    from kombu_delayq.store import DelayStore

logger = get_logger(__name__)


class EarlyTag(str):
    """The delivery tag of a message whose task goes on, and keeps its place."""

    __slots__ = ()


class EndedTag(str):
    """The delivery tag of a message that was acknowledged early, and whose task has ended."""

    __slots__ = ()


class Acks:
    """Delivery tags of messages that are to be removed from Redis. Any thread may use it.

    A message stays among those in hand until Redis has confirmed that it is removed, and its task does not go on.

    Args:
        held: Messages in hand by their tags.
        group: Name of the slot group of their queues.
    """

    def __init__(self, held: MutableMapping[str, str], group: str) -> None:
        self._held = held
        self._group = group
        self._tags: deque[str] = deque()
        self._sent: deque[str] = deque()
        self._repeated: set[str] = set()
        self._by_text = True  # a busy thread may read only later that Redis does not know the script
        self._sending = Lock()
        self._resumes_at = -inf  # after an error that passes

    def __len__(self) -> int:
        """Returns how many have not been sent."""
        return len(self._tags)

    def add(self, tag: str) -> None:
        """Notes a message as acknowledged."""
        self._tags.append(tag)

    def excuse(self, tag: str) -> None:
        """Notes that a script has removed a message whose early acknowledgement may be under way."""
        if tag in self._tags or tag in self._sent:
            self._repeated.add(tag)

    def commands(self, store: "DelayStore") -> tuple[list[Command], Callable[[list[Any]], None]]:
        """Returns the commands that remove the messages, none or one, and what takes their replies."""
        tags = drained(self._tags, PAGE) if monotonic() >= self._resumes_at else []
        if not tags:
            return [], lambda _: None
        self._sent.extend(tags)
        in_order, going_on = _early_first(tags)
        command = store.fetching.ack_command(in_order, self._group, going_on, by_text=self._by_text)
        return [command], partial(self._on_acked, store, tags)

    def repeat(self) -> None:
        """Sends again what has had no answer, because the connection was lost."""
        tags = drained(self._sent)
        self._repeated.update(tags)
        self._tags.extendleft(reversed(tags))

    def send(self, store: "DelayStore") -> None:
        """Sends all tags now; one round trip. Keeps them if they cannot be sent, which is no error if that passes.

        One thread or greenlet sends at a time, and sends the tags of all others with its own. So they need one
        connection, where kombu's pool has ten.
        """
        with self._sending:
            if tags := drained(self._tags):
                try:
                    in_order, going_on = _early_first(tags)
                    missing = store.fetching.ack(in_order, self._group, going_on)
                except BaseException as error:
                    self._repeated.update(tags)
                    self._tags.extendleft(reversed(tags))
                    if clears(error):
                        return
                    raise
                self._confirm(tags, missing)

    def _on_acked(self, store: "DelayStore", tags: list[str], replies: list[Any]) -> None:
        [reply] = replies
        for _ in tags:
            self._sent.popleft()
        self._by_text = isinstance(reply, NoScriptError)
        if self._by_text:
            self._tags.extendleft(reversed(tags))
        elif isinstance(reply, Exception):
            self._tags.extendleft(reversed(tags))
            if not clears(reply):
                raise reply
            self._resumes_at = monotonic() + PASSING_S
        else:
            self._confirm(tags, store.fetching.missing(reply))

    def _confirm(self, tags: Sequence[str], missing: Sequence[str]) -> None:
        for tag in tags:
            if type(tag) is not EarlyTag:
                self._held.pop(tag, None)
        if missing:
            # The first attempt may have removed what the second has not found. Of an ended task nothing is left.
            known = self._repeated.union(tag for tag in tags if type(tag) is EndedTag)
            _report([tag for tag in missing if tag not in known])
        self._repeated.difference_update(tags)


def _early_first(tags: list[str]) -> tuple[list[str], int]:
    """Returns delivery tags in the order of ``Fetching.ack``, and how many of them are those of tasks that go on."""
    early = [tag for tag in tags if type(tag) is EarlyTag]
    return ([*early, *(tag for tag in tags if type(tag) is not EarlyTag)] if early else tags), len(early)


def _report(missing: Sequence[str]) -> None:
    """Logs which messages a consumer held no more when it acknowledged them."""
    if missing:
        logger.warning(
            "%d messages were acknowledged that this consumer no longer held: others had or have them, too. The first "
            "has the delivery tag %s",
            len(missing),
            missing[0],
        )


def drained(items: deque[Any], most: float = inf) -> list[Any]:
    """Takes up to ``most`` items from a deque that other threads use, too."""
    found: list[Any] = []
    while items and len(found) < most:
        try:
            found.append(items.popleft())
        except IndexError:
            break
    return found
