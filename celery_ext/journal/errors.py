"""The errors of the journal. None has a statement, a message or a password in it."""

from kombu_delayq.errors import DelayqError, StoreUnavailable


class UnsupportedJournal(DelayqError):
    """The tables of the journal are of another release of kombu-delayq."""


class JournalRefused(StoreUnavailable):
    """The database of the journal refuses what it is asked, such as for a right that is missing."""

    feature = "journal"


class JournalUnavailable(JournalRefused, ConnectionError):
    """The database of the journal does not take a message, or another Redis has the journal.

    It is a ``ConnectionError``, so that kombu tries once more and then raises its own ``OperationalError``, as when the
    broker does not answer.
    """


class DatabaseUnavailable(JournalUnavailable):
    """The journal's database does not answer, or cannot do now what it is asked, such as while it restarts.

    Args:
        said: What its driver said.
    """

    def __init__(self, said: str) -> None:
        super().__init__(f"the journal's database: {said}")
        self._said = said

    @property
    def said(self) -> str:
        """What the driver said."""
        return self._said
