"""Which dead letters are meant: by id, task, error and age."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase

from celery_ext.dead_letters.letters import DeadLetter


class Choice:
    """Chooses dead letters that meet all conditions, and remembers which ids it has met.

    A letter without a time, which kombu-delayq did not bury, has no age: it is not chosen where an age is asked for.

    Args:
        ids: Task ids; None for any.
        tasks: Task names, or patterns of such; none for any.
        error: Text in the error, in whatever case; None for any error.
        older_than_s: Only letters that were buried longer ago than this, in s.
        newer_than_s: Only letters that were buried at most so long ago, in s.
        until: Only letters that were buried before this, and those without a time; ages count from then. None for any
            letter, and ages from now.
    """

    def __init__(
        self,
        ids: Iterable[str] | None = None,
        tasks: Sequence[str] = (),
        error: str | None = None,
        older_than_s: float | None = None,
        newer_than_s: float | None = None,
        until: datetime | None = None,
    ) -> None:
        self.ids, self._by_id = frozenset(ids or ()), ids is not None
        self.met: set[str] = set()
        self._tasks = tasks
        self._error = None if error is None else error.casefold()
        now = until or datetime.now(UTC)
        self._until = None if older_than_s is None else now - timedelta(seconds=older_than_s)
        self._since = None if newer_than_s is None else now - timedelta(seconds=newer_than_s)
        self._known_by = until

    @property
    def narrow(self) -> bool:
        """Whether only some letters are chosen, not all."""
        return bool(self._by_id or self._tasks or self._error or self._until or self._since)

    def __call__(self, letter: DeadLetter) -> bool:
        """Whether a letter is chosen."""
        chosen = (
            (not self._by_id or letter.id in self.ids)
            and self._is_of_task(letter.name)
            and (self._error is None or self._error in (letter.error or "").casefold())
            and self._is_of_age(letter.at)
            and (self._known_by is None or letter.at is None or letter.at < self._known_by)
        )
        if chosen and self.ids:
            self.met.add(letter.id)
        return chosen

    def _is_of_task(self, name: str | None) -> bool:
        tasks = self._tasks
        return not tasks or (name is not None and any(name == task or fnmatchcase(name, task) for task in tasks))

    def _is_of_age(self, at: datetime | None) -> bool:
        if at is None:
            return self._until is None and self._since is None
        return (self._until is None or at < self._until) and (self._since is None or at >= self._since)
