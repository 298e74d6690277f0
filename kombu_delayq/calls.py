"""How the store's operations are called in Redis."""

from collections.abc import Iterable, Sequence
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError, ResponseError

from kombu_delayq import scripts
from kombu_delayq.keys import Keys
from kombu_delayq.options import BACKUPS, Options

#: KEYS and ARGV of a script, and for which form of backup it is.
Call = tuple[list[str], list[Any], str]


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

    @property
    def backup(self) -> str:
        """The form in which this store keeps messages."""
        return self.options.backup

    @property
    def other_backup(self) -> str:
        """The form in which other clients may keep messages of the same queues."""
        return next(each for each in BACKUPS if each != self.backup)

    def script(self, operation: str, backup: str | None = None) -> scripts.Script:
        """Returns an operation's script for a form of backup, by default the one in use."""
        return scripts.load(operation, backup or self.backup)

    def _run(self, operation: str, keys: list[str], args: list[Any], backup: str | None = None) -> Any:
        script = self.script(operation, backup)
        try:
            return self.client.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
        except NoScriptError:
            return self.client.execute_command("EVAL", script.text, len(keys), *keys, *args)

    def _run_each(self, operation: str, calls: Iterable[Call], *more: tuple[Any, ...]) -> list[Any]:
        """Runs one script several times, and some other commands, in one round trip.

        Returns the replies; errors of Redis are among them.
        """
        calls = list(calls)
        with self.client.pipeline(transaction=False) as pipe:
            for keys, args, backup in calls:
                sha = self.script(operation, backup).sha
                pipe.execute_command("EVALSHA", sha, len(keys), *keys, *args)
            for command in more:
                pipe.execute_command(*command)
            replies = pipe.execute(raise_on_error=False)
        for at, reply in enumerate(replies):
            if isinstance(reply, NoScriptError):
                try:
                    replies[at] = self._run(operation, *calls[at])
                except ResponseError as error:
                    replies[at] = error
        return replies

    def _stored(self, queue: str, backup: str | None = None) -> list[str]:
        return self.keys.stored(queue, backup or self.backup)

    def _due(self, queue: str, backup: str | None = None) -> str:
        return self._stored(queue, backup)[0]

    def _wake(self, queue: str, backup: str | None = None) -> str:
        """Returns the channel on which a queue's new heads are announced."""
        return self.keys.channel(queue) if (backup or self.backup) == "list" else self.keys.wake

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
