"""How the store's operations are called in Redis."""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from kombu.log import get_logger
from redis import Redis
from redis.exceptions import NoPermissionError, NoScriptError, ResponseError

from kombu_delayq import scripts
from kombu_delayq.connection.pools import OF_USE
from kombu_delayq.connection.text import Command, as_sent
from kombu_delayq.options import BACKUPS, Options
from kombu_delayq.store.keys import Keys

logger = get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound="Caller")

#: Operations that tell what they have done, and the second time something else. redis-py, where it is told to retry,
#: repeats a command whose reply was lost; these it may not, so that a lost reply is an error and no wrong answer.
TOLD_ONCE = frozenset(("cancel", "run_now", "replay"))

#: KEYS and ARGV of a script, and for which form of backup it is.
Call = tuple[list[str], list[Any], str]


class Caller:
    """Runs the scripts of one Redis database. Errors of the Redis client pass through as they are.

    Args:
        client: A plain Redis client; key names carry the prefix themselves.
        keys: Names of the keys.
        priority_steps: kombu's: which priorities share a list.
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
        self._list_of_priority = self.keys.lists_of_priorities(priority_steps)
        #: The forms in which messages are looked for, the store's own first; see ``in_each_form``.
        self._forms: tuple[str, ...] = (self.backup, self.other_backup)

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

    def send(self, commands: Iterable[Command]) -> list[Any]:
        """Sends commands in one round trip. Returns their replies; raises the first error among them."""
        commands = list(commands)
        # redis-py would write the command into the message of the error, with the bodies in it.
        replies = self.replies(commands)
        for (name, *args), reply in zip(commands, replies, strict=True):
            if isinstance(reply, Exception):
                if name not in ("EVAL", "EVALSHA"):  # a script names the key itself
                    reply.args = (f"{name} {args[0]}: {reply}",)
                raise reply
        return replies

    def ask(self, *command: Any) -> Any:
        """Sends one command. Returns its reply as the Redis client reads it."""
        return self.client.execute_command(*as_sent(command))

    def replies(self, commands: Sequence[Command], *, once: bool = False) -> list[Any]:
        """Sends commands in one round trip. Returns their replies, errors of Redis among them.

        Args:
            commands: Any.
            once: Whether they are in no case sent again by redis-py, whatever it is told to retry.
        """
        if once:
            return self._replies_once(commands)
        with self.client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*as_sent(command))
            return list(pipe.execute(raise_on_error=False))

    def _replies_once(self, commands: Sequence[Command]) -> list[Any]:
        pool = self.client.connection_pool
        connection = pool.get_connection(*OF_USE)

        def reply() -> Any:
            try:
                return connection.read_response()
            except ResponseError as error:
                return error

        try:
            connection.send_packed_command(connection.pack_commands(map(as_sent, commands)))
            return [reply() for _ in commands]
        except BaseException:
            connection.disconnect()  # what comes yet is nobody's
            raise
        finally:
            pool.release(connection)

    def _look_no_further(self, error: NoPermissionError) -> None:
        """Looks at the store's own form alone from now on, for that of others is forbidden."""
        if len(self._forms) > 1:
            self._forms = self._forms[:1]
            logger.info("delayed messages are looked for in the form %r only: %s", self.backup, error)

    def _run(self, operation: str, keys: list[str], args: list[Any], backup: str | None = None) -> Any:
        script = self.script(operation, backup)
        act = self._run_once if operation in TOLD_ONCE else self.ask
        try:
            return act("EVALSHA", script.sha, len(keys), *keys, *args)
        except NoScriptError:
            return act("EVAL", script.text, len(keys), *keys, *args)

    def _run_once(self, *command: Any) -> Any:
        [reply] = self.replies([command], once=True)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _run_known(
        self, operation: str, queue: str, keys: list[str], args: list[Any], backup: str | None = None
    ) -> Any:
        """Runs a script that brings messages into a queue, which transfer workers get to know; one round trip."""
        script = self.script(operation, backup)
        try:
            return self.send(self._known(queue, ("EVALSHA", script.sha, len(keys), *keys, *args)))[1]
        except NoScriptError:
            return self.send(self._known(queue, ("EVAL", script.text, len(keys), *keys, *args)))[1]

    def _known(self, queue: str, command: Command) -> list[Command]:
        """Returns a command that brings messages into a queue between two that make the queue known.

        Before, so that a publisher that dies between the two leaves no message in a queue that nobody knows; and after,
        for the name may have been forgotten between the two, while the queue was empty. The one after never fails: a
        Redis that the message has just filled would take a publish for failed that is done.
        """
        again = ("EVAL", self.script("know").text, 1, self.keys.queues, queue)
        return [("SADD", self.keys.queues, queue), command, again]

    def _run_each(
        self, operation: str, calls: Iterable[Call], around: Sequence[Command] = ()
    ) -> tuple[list[Any], list[tuple[Any, Any]]]:
        """Runs one script several times in one round trip, and some other commands before that and once more after it.

        Returns:
            The replies of the script, and both replies of each of the other commands; errors of Redis are among them.
        """
        calls = list(calls)
        runs = [
            ("EVALSHA", self.script(operation, backup).sha, len(keys), *keys, *args) for keys, args, backup in calls
        ]
        found = self.replies([*around, *runs, *around], once=operation in TOLD_ONCE)
        replies = found[len(around) : len(around) + len(calls)]
        for at, reply in enumerate(replies):
            if isinstance(reply, NoScriptError):
                try:
                    replies[at] = self._run(operation, *calls[at])
                except ResponseError as error:
                    replies[at] = error
        return replies, list(zip(found[: len(around)], found[len(around) + len(calls) :], strict=True))

    def _stored(self, queue: str, backup: str | None = None) -> list[str]:
        return self.keys.stored(queue, backup or self.backup)

    def _due(self, queue: str, backup: str | None = None) -> str:
        return self._stored(queue, backup)[0]

    def _wake(self, queue: str, backup: str | None = None) -> str:
        """Returns the channel on which a queue's new heads are announced."""
        return self.keys.channel(queue) if (backup or self.backup) == "list" else self.keys.wake

    def ready(self, queue: str) -> list[str]:
        """Returns the lists from which kombu consumes a queue, one a priority step."""
        return self.keys.ready(queue, self._priority_steps)


def in_each_form(method: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], T]:
    """Lets a method that looks for messages in all ``_forms`` do with the rights for one.

    Where the ACL forbids the keys of the other form, it is called again, and from then on the store looks at its own
    form alone.
    """

    @wraps(method)
    def call(self: C, /, *args: P.args, **kwargs: P.kwargs) -> T:
        forms = self._forms
        try:
            return method(self, *args, **kwargs)
        except NoPermissionError as error:
            if len(forms) == 1:
                raise
            self._forms = forms[:1]
            try:
                found = method(self, *args, **kwargs)
            finally:
                self._forms = forms
            self._look_no_further(error)
            return found

    return call
