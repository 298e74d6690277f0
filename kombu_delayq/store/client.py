"""The common part of all parts of the store: scripts, keys and options."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError

from kombu_delayq.options import Options
from kombu_delayq.redis import pools, scripts
from kombu_delayq.redis.commands import RedisCommands
from kombu_delayq.redis.errors import is_of_node
from kombu_delayq.redis.replies import Command
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.text import as_text

#: Operations whose second run answers differently, because the first has removed the messages. If the reply is lost,
#: redis-py must not repeat them: a wrong answer would hide the error.
NEVER_REPEATED = frozenset(("cancel", "run_now", "replay", "fetch", "discard"))

#: Of how many queues a part of the store remembers something, such as the names of their keys.
MOST_QUEUES = 1000

#: KEYS and ARGV of a script, and the layout that it works on.
ScriptCall = tuple[list[str], list[Any], str]


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

    @property
    def partial_errors(self) -> tuple[type[Exception], ...]:
        """What Redis raises where it has a part of an answer only.

        It may refuse something, such as for a missing right, and in a cluster a node may be away.
        """
        return (RedisError, OSError) if self.keys.slots else (ResponseError,)

    def script(self, operation: str, layout: str | None = None) -> scripts.Script:
        """Returns an operation's script for a layout, by default the store's own."""
        return scripts.load(operation, layout or self.layout)

    def run(self, operation: str, keys: list[str], args: list[Any], layout: str | None = None) -> Any:
        """Runs a script; one round trip. Returns its reply."""
        act = self.ask_once if operation in NEVER_REPEATED else self.ask
        try:
            return act(*self.evalsha_command(operation, keys, args, layout))
        except NoScriptError:
            return act(*self.eval_command(operation, keys, args, layout))

    def run_directly(self, operation: str, keys: list[str], args: list[Any], *rest: Any) -> Any:
        """Runs a script as ``run`` does, in less time: for operations of single calls, whose time publishers feel.

        Args:
            operation: The operation, none of ``NEVER_REPEATED``.
            keys: KEYS.
            args: The first of ARGV, the same in many calls: texts, bytes and integers.
            *rest: The others.
        """
        try:
            return self.ask_directly(self.evalsha_command(operation, keys, args), *rest)
        except NoScriptError:
            return self.ask(*self.eval_command(operation, keys, [*args, *rest]))

    def run_each(
        self, operation: str, calls: Iterable[ScriptCall], around: Sequence[Command] = (), *, again: bool = True
    ) -> tuple[list[Any], list[tuple[Any, Any]]]:
        """Runs one script several times in one round trip, with commands ``around`` it: before, and ``again`` after.

        Returns:
            The replies of the script, and for each command of ``around`` both replies, the second one None if it was
            not sent again; errors of Redis are among them.
        """
        calls = list(calls)
        once = operation in NEVER_REPEATED
        runs = [self.evalsha_command(operation, *call) for call in calls]
        behind = around if again else ()
        found = self.replies([*around, *runs, *behind], once=once)
        before, replies, after = (
            found[: len(around)],
            found[len(around) :][: len(calls)],
            found[len(around) + len(calls) :],
        )
        unknown = [at for at, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            evals = [self.eval_command(operation, *calls[at]) for at in unknown]
            more = self.replies([*evals, *behind], once=once)  # ``behind`` again: it has to follow all runs
            for at, reply in zip(unknown, more, strict=False):
                replies[at] = reply
            after = more[len(evals) :]
        return replies, list(zip_longest(before, after))

    def evalsha_command(self, operation: str, keys: list[str], args: list[Any], layout: str | None = None) -> Command:
        """Returns the command that runs a script by its SHA. It fails if Redis does not know the script."""
        return ("EVALSHA", self.script(operation, layout).sha, len(keys), *keys, *args)

    def eval_command(self, operation: str, keys: list[str], args: list[Any], layout: str | None = None) -> Command:
        """Returns the command that runs a script from its text.

        A command that is sent with others has no SHA: if Redis has flushed its script cache, it would fail.
        """
        return ("EVAL", self.script(operation, layout).text, len(keys), *keys, *args)

    def count_dead(self, queue: str, number: int) -> Command:
        """Returns the command that counts messages which a queue gets as dead letters, to be sent beside others."""
        return self.eval_command("count_minute", [self.keys.counts(queue)], ["dead", number])

    def stored(self, queue: str, layout: str | None = None) -> list[str]:
        """Returns the four keys of a queue's delayed messages, by default in the store's own layout."""
        return self.keys.stored(queue, layout or self.layout)

    def due(self, queue: str, layout: str | None = None) -> str:
        """Returns the ZSET of a queue's due times, by default in the store's own layout."""
        return LAYOUT_OF[layout or self.layout].due(self.keys, queue)

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
                found.setdefault(id(pools.node_of(self.redis.connection_pool, key)), queue)
        return list(found.values())

    def aside(self) -> "StoreClient":
        """Returns a client over the same connections that waits for no node of a cluster for long."""
        pool = self.redis.connection_pool
        if not pools.has_nodes(pool):
            return self
        return StoreClient(pools.client_of(pools.aside(pool)), self.keys, self._priority_steps, self.options)

    def is_of_one_node(self, error: Exception) -> bool:
        """Whether an error says only that a node of a cluster is away at the moment, while others may answer."""
        return self.keys.slots and is_of_node(error)

    def slot_groups(self) -> list[str]:
        """Returns the names of all slot groups: one, or in a cluster one for each queue that has or had consumers."""
        if not self.keys.slots:
            return [""]
        return sorted(map(as_text, self.redis.smembers(self.keys.consumed_queues)))

    def wake(self, queue: str, layout: str | None = None) -> str:
        """Returns the channel that announces a queue's new heads, by default in the store's own layout."""
        return LAYOUT_OF[layout or self.layout].channel(self.keys, queue)
