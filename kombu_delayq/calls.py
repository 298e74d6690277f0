"""How the store's operations are called in Redis."""

from collections.abc import Iterable, Sequence
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError, ResponseError

from kombu_delayq import scripts
from kombu_delayq.keys import Keys
from kombu_delayq.options import Options

#: KEYS and ARGV of a script.
Call = tuple[list[str], list[Any]]


class Caller:
    """Runs the scripts of one Redis database. Errors of the Redis client pass through as they are.

    Args:
        client: A plain Redis client; key names carry the prefix themselves.
        keys: Names of the keys.
        priority_steps: kombu's, ascending: which priorities share a list.
        options: Transport options.
    """

    def __init__(
        self,
        client: Redis,
        keys: Keys | None = None,
        priority_steps: Sequence[int] = (0, 3, 6, 9),
        options: Options | None = None,
    ) -> None:
        self.client = client
        self.keys = keys or Keys()
        self.options = options or Options()
        self._priority_steps = priority_steps
        self._list_of_priority = [_step_index(priority_steps, n) for n in range(10)]

    def script(self, operation: str) -> scripts.Script:
        """Returns an operation's script for the backup in use."""
        return scripts.load(operation, self.options.backup)

    def _run(self, operation: str, keys: list[str], args: list[Any]) -> Any:
        script = self.script(operation)
        try:
            return self.client.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
        except NoScriptError:
            return self.client.execute_command("EVAL", script.text, len(keys), *keys, *args)

    def _run_each(self, operation: str, calls: Iterable[Call]) -> list[Any]:
        """Runs one script several times in one round trip. Returns the replies; errors of Redis are among them."""
        script, calls = self.script(operation), list(calls)
        with self.client.pipeline(transaction=False) as pipe:
            for keys, args in calls:
                pipe.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
            replies = pipe.execute(raise_on_error=False)
        for at, reply in enumerate(replies):
            if isinstance(reply, NoScriptError):
                try:
                    replies[at] = self._run(operation, *calls[at])
                except ResponseError as error:
                    replies[at] = error
        return replies

    def _stored(self, queue: str) -> list[str]:
        return [self.keys.due(queue), self.keys.backup(queue), self.keys.order(queue), self.keys.twins(queue)]

    def _found(self, queue: str) -> list[str]:
        return [self.keys.due(queue), self.keys.backup(queue), self.keys.twins(queue)]

    def _ready(self, queue: str) -> list[str]:
        return self.keys.ready(queue, self._priority_steps)


def _step_index(steps: Sequence[int], priority: int) -> int:
    """Returns which list a priority goes to. Source: kombu.transport.redis.Channel.priority."""
    return (sum(step <= priority for step in steps) - 1) % len(steps)


def as_text(reply: Any) -> str:
    """Returns a reply as text; bytes that are no UTF-8 are kept as surrogates, which go back as the same bytes."""
    return reply.decode(errors="surrogateescape") if isinstance(reply, bytes) else str(reply)


def as_bytes(given: str | bytes) -> bytes:
    """Returns the bytes that a text stands for in Redis."""
    if isinstance(given, bytes):
        return given
    try:
        return given.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # no publisher can have written such a text, so that nothing is found under it
        return given.encode(errors="surrogatepass")
