"""The dead letters of an app: listed, found, replayed and dropped."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from celery_ext.connection import as_operational_errors, open_store
from celery_ext.dead_letters import letters as letters_of
from celery_ext.dead_letters import routes
from celery_ext.dead_letters.choice import Choice
from celery_ext.dead_letters.letter_list import LETTERS_PAGE
from celery_ext.dead_letters.letters import Cursor, DeadLetter, LetterAction
from kombu_delayq.audit import ids_named

if TYPE_CHECKING:
    from celery import Celery

    from kombu_delayq.store import DelayStore


#: How long ago a letter was buried, a timedelta or s; None for any time.
Age: TypeAlias = timedelta | float | None


class DeadLetters:
    """The dead letters of an app's broker.

    The conditions of its methods are these; a letter has to meet all of them:

    - ``queue``: name of a queue of dead letters; None for all that Redis knows or a task of the app names.
    - ``task``: name of a task, or a pattern with ``*``, ``?`` and ``[…]``.
    - ``error``: text in the last error, in whatever case.
    - ``older_than``, ``newer_than``: how long ago the letter was buried, a timedelta or s.

    Args:
        app: Any app on the broker.
    """

    def __init__(self, app: "Celery[Any]") -> None:
        self._app = app

    def queues(self) -> dict[str, int]:
        """Returns the queues of dead letters with the number of their letters.

        Raises:
            kombu.exceptions.OperationalError: Redis does not answer.
        """
        with self._opened() as store:
            return {queue: letters_of.count(store, queue) for queue in self._queues(store, None)}

    def list(
        self,
        queue: str | None = None,
        *,
        limit: int | None = None,
        task: str | None = None,
        error: str | None = None,
        older_than: Age = None,
        newer_than: Age = None,
    ) -> Iterator[DeadLetter]:
        """Yields dead letters, of each queue and priority the oldest first. It reads a page at a time, no snapshot.

        Args:
            queue: See the class.
            limit: Most letters to yield; None for all.
            task: See the class, as for the others.
            error: Text in the error.
            older_than: Least age.
            newer_than: Greatest age.

        Raises:
            kombu.exceptions.OperationalError: Redis does not answer.
        """
        choice, left = _choice(None, task, error, older_than, newer_than), limit
        with self._opened() as store:
            queues = self._queues(store, queue)
        for name in queues:
            cursor: Cursor | None = None
            while left != 0:
                count = LETTERS_PAGE if left is None else min(left, LETTERS_PAGE)
                with self._opened() as store:  # open for one page only: the caller may need the pool's connections
                    found, cursor = letters_of.page_from(store, name, cursor, count, choice)
                yield from found
                left = None if left is None else left - len(found)
                if cursor is None:
                    break

    def get(self, task_id: str) -> DeadLetter | None:
        """Returns the dead letter of a task; None if it is not among the latest 2,000 of a queue.

        Raises:
            kombu.exceptions.OperationalError: Redis does not answer.
        """
        with self._opened() as store:
            found = letters_of.latest(store, routes.named_by(self._app))
            return next((letter for letter in found if letter.id == task_id), None)

    def replay(
        self,
        ids: str | Iterable[str] | None = None,
        *,
        queue: str | None = None,
        to_queue: str | None = None,
        rate: float | None = None,
        task: str | None = None,
        error: str | None = None,
        older_than: Age = None,
        newer_than: Age = None,
    ) -> dict[str, int]:
        """Sends dead letters to the queues from which they came, to be run again with all their retries.

        Args:
            ids: A task id, or several; None for all that meet the conditions.
            queue: See the class.
            to_queue: Sends the letters to this queue instead.
            rate: Most letters a second, 0.1 or more; None for no limit. The call lasts as long as that takes.
            task: See the class, as for the others.
            error: Text in the error.
            older_than: Least age.
            newer_than: Greatest age.

        Returns:
            How many were ``replayed``; and how many stay as ``unroutable``, for nobody knows their queue.

        Raises:
            ValueError: No id, queue or condition says which letters, or ``rate`` is too low or has no end.
            kombu.exceptions.OperationalError: Redis does not answer.
        """
        rate = None if rate is None else letters_of.rate_of(rate)
        with self._connected() as connection:
            send = routes.sending(connection.default_channel, self._app, to_queue)
            choice = _choice(ids, task, error, older_than, newer_than)
            done = self._change(open_store(connection), "replay", send, choice, queue, rate)
        return {"replayed": done["replayed"], "unroutable": done["unroutable"]}

    def drop(
        self,
        ids: str | Iterable[str] | None = None,
        *,
        queue: str | None = None,
        task: str | None = None,
        error: str | None = None,
        older_than: Age = None,
        newer_than: Age = None,
    ) -> int:
        """Removes dead letters: they will never run. Returns how many.

        Args:
            ids: A task id, or several; None for all that meet the conditions.
            queue: See the class.
            task: See the class, as for the others.
            error: Text in the error.
            older_than: Least age.
            newer_than: Greatest age.

        Raises:
            ValueError: No id, queue or condition says which letters.
            kombu.exceptions.OperationalError: Redis does not answer.
        """
        with self._opened() as store:
            choice = _choice(ids, task, error, older_than, newer_than)
            return self._change(store, "drop", letters_of.away, choice, queue)["dropped"]

    def _change(
        self,
        store: "DelayStore",
        name: str,
        action: LetterAction,
        choice: Choice,
        queue: str | None,
        rate: float | None = None,
    ) -> Counter[str]:
        if not choice.narrow and queue is None:
            raise ValueError("which dead letters? Name ids, a condition, or a queue for all of its letters")
        counts, what = Counter[str](), ids_named(sorted(choice.ids)) if choice.ids else {}
        for one in self._queues(store, queue):
            done, _ = letters_of.change(store, one, choice, action, name, what, rate=rate)
            counts.update(done)
        return counts

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        with as_operational_errors(), self._app.pool.acquire(block=True) as connection:
            open_store(connection, retry_policy=self._app.conf.task_publish_retry_policy or {})
            yield connection

    @contextmanager
    def _opened(self) -> Iterator["DelayStore"]:
        with self._connected() as connection:
            yield open_store(connection)

    def _queues(self, store: "DelayStore", queue: str | None) -> Sequence[str]:
        return sorted({*letters_of.queues(store), *routes.named_by(self._app)}) if queue is None else [queue]


def _choice(
    ids: str | Iterable[str] | None, task: str | None, error: str | None, older_than: Age, newer_than: Age
) -> Choice:
    named = (ids,) if isinstance(ids, str) else ids
    return Choice(named, () if task is None else (task,), error, _seconds(older_than), _seconds(newer_than))


def _seconds(given: Age) -> float | None:
    return given.total_seconds() if isinstance(given, timedelta) else given
