"""The common part of all parts of the store: scripts, keys and options."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError

from kombu_delayq.options import Options
from kombu_delayq.redis import (
    Call,
    Command,
    HashKey,
    Key,
    ListKeys,
    Priorities,
    RedisCommands,
    Rows,
    Stored,
    ZSetKey,
    operation,
    pool_of,
)
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.text import as_text

R = TypeVar("R")

#: Of how many queues a part of the store remembers something, such as the names of their keys.
MOST_QUEUES = 1000


class Into(NamedTuple):
    """What an operation gets of a queue into which it puts messages."""

    keys: Stored
    wake: Key
    queue: Key


class Lists(NamedTuple):
    """What an operation gets of a queue to whose lists it pushes messages."""

    ready: ListKeys
    list_of: Priorities


class HeldKeys(NamedTuple):
    """The keys of what consumers hold."""

    unacked_index: ZSetKey
    unacked: HashKey
    places: HashKey


@operation(layout="hash")
def count_minute(*, counters: HashKey, grown: Rows[tuple[str, int]]) -> Any: ...


class StoreClient(RedisCommands):
    """Runs the scripts of one Redis database. Errors of the Redis client pass through as they are.

    Args:
        redis: A plain Redis client; key names carry the prefix themselves.
        keys: Names of the keys.
        priority_steps: kombu's option ``priority_steps``, which says which priorities share a list.
        options: Transport options.

    Attributes:
        layout: The layout in which this store keeps messages.
        list_of_priority: For each priority from 0 to 9, the index of its list in ``ready``.
    """

    def __init__(
        self,
        redis: Redis,
        keys: Keys | None = None,
        priority_steps: Sequence[int] = (0, 3, 6, 9),
        options: Options | None = None,
    ) -> None:
        super().__init__(redis)
        self.keys = keys or Keys()
        self.options = options or Options()
        self.layout = self.options.layout
        self.list_of_priority = self.keys.lists_of_priorities(priority_steps)
        self._priority_steps = priority_steps

    def run(self, call: Call[R]) -> R:
        """Runs a script; one round trip. Returns what it replies."""
        act = self.ask_once if call.operation.once else self.ask
        try:
            reply = act(*self.command(call))
        except NoScriptError:
            reply = act(*self.command(call, by_text=True))
        return call.operation.read(reply)

    def run_directly(self, call: Call[R], *rest: Any) -> R:
        """Runs a script as ``run`` does, in less time: for operations of single calls, whose time publishers feel.

        Args:
            call: A call that is the same many times, of an operation that may be repeated. Its arguments are texts,
                bytes and integers.
            *rest: All further ARGV.
        """
        try:
            reply = self.ask_directly(self.command(call), *rest)
        except NoScriptError:
            reply = self.ask(*self.command(call, by_text=True), *rest)
        return call.operation.read(reply)

    def run_each(
        self, calls: Iterable[Call[Any]], around: Sequence[Command] = (), *, again: bool = True
    ) -> tuple[list[Any], list[tuple[Any, Any]]]:
        """Runs scripts in one round trip, with commands ``around`` them: before, and ``again`` after.

        Returns:
            The replies of the scripts, and for each command of ``around`` both replies, the second one None if it was
            not sent again; errors of Redis are among them.
        """
        calls = list(calls)
        once = any(call.operation.once for call in calls)
        behind = around if again else ()
        found = self.replies([*around, *map(self.command, calls), *behind], once=once)
        before, replies, after = (
            found[: len(around)],
            found[len(around) :][: len(calls)],
            found[len(around) + len(calls) :],
        )
        unknown = [at for at, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            evals = [self.command(calls[at], by_text=True) for at in unknown]
            more = self.replies([*evals, *behind], once=once)  # ``behind`` again: it has to follow all runs
            for at, reply in zip(unknown, more, strict=False):
                replies[at] = reply
            after = more[len(evals) :]
        read = [
            reply if isinstance(reply, Exception) else call.operation.read(reply)
            for call, reply in zip(calls, replies, strict=True)
        ]
        return read, list(zip_longest(before, after))

    def command(self, call: Call[Any], *, by_text: bool = False) -> Command:
        """Returns the command that runs a script by its SHA, which fails if Redis does not know the script.

        Args:
            call: The call.
            by_text: Whether the command carries the script: one that is sent with others would fail if Redis has
                flushed its script cache.
        """
        guards = self.keys.guards(call.keys)
        keys = [*call.keys, *guards]
        text, sha = call.operation.script(call.layout or self.layout, guarded=bool(guards))
        return ("EVAL" if by_text else "EVALSHA", text if by_text else sha, len(keys), *keys, *call.args)

    def count_dead(self, queue: str, number: int) -> Command:
        """Returns the command that counts messages which a queue gets as dead letters, to be sent beside others."""
        call = count_minute(counters=self.keys.counts(queue), grown=[("dead", number)])
        return self.command(call, by_text=True)

    def into(self, queue: str, layout: str | None = None) -> Into:
        """Returns what an operation gets of a queue into which it puts messages, and checks its name."""
        self.keys.check_queue(queue)
        return Into(self.stored(queue, layout), self.wake(queue, layout), queue)

    def lists(self, queue: str) -> Lists:
        """Returns what an operation gets of a queue to whose lists it pushes messages."""
        return Lists(self.ready(queue), self.list_of_priority)

    def stored(self, queue: str, layout: str | None = None) -> list[str]:
        """Returns the four keys of a queue's delayed messages, by default in the store's own layout."""
        return LAYOUT_OF[layout or self.layout].keys(self.keys, queue)

    def due(self, queue: str, layout: str | None = None) -> str:
        """Returns the ZSET of a queue's due times, by default in the store's own layout."""
        return LAYOUT_OF[layout or self.layout].due(self.keys, queue)

    def held(self, queue: str) -> HeldKeys:
        """Returns the keys of what consumers hold, in the slot group of a queue."""
        return HeldKeys(self.keys.unacked_index(queue), self.keys.unacked(queue), self.keys.places(queue))

    def ready(self, queue: str) -> list[str]:
        """Returns the lists from which kombu consumes a queue, one for each priority step."""
        return self.keys.ready(queue, self._priority_steps)

    def one_a_node(self, keys: Mapping[str, str]) -> list[str]:
        """Returns one queue for each node on which there are any, without asking.

        Args:
            keys: A key of each queue.
        """
        found: dict[int, str] = {}
        for queue, key in keys.items():
            with suppress(RedisConnectionError):  # a node that is away
                found.setdefault(id(self.pool.node_of(key)), queue)
        return list(found.values())

    def aside(self) -> "StoreClient":
        """Returns a client over the same connections that waits for no node of a cluster for long."""
        if not self.pool.several:
            return self
        return StoreClient(pool_of(self.pool.aside()).client(), self.keys, self._priority_steps, self.options)

    def slot_groups(self) -> list[str]:
        """Returns the names of all slot groups: one, or in a cluster one for each queue that has or had consumers."""
        noted = self.keys.groups
        return [""] if noted is None else sorted(map(as_text, self.redis.smembers(noted)))

    def wake(self, queue: str, layout: str | None = None) -> str:
        """Returns the channel that announces a queue's new heads, by default in the store's own layout."""
        return LAYOUT_OF[layout or self.layout].channel(self.keys, queue)
