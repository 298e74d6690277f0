"""What the store is told of rows of a journal, and what it answers."""

from typing import NamedTuple, Protocol

from kombu_delayq.store.types import hidden


class Row(NamedTuple):
    """A row of a journal that is to come into the store.

    Attributes:
        seq: Its number, which no other row of the journal ever has.
        queue: The queue to which the message goes when it is due.
        id: The id under which the store keeps the message.
        due_ms: Due time, ms since the epoch.
        priority: 0 to 9.
        body: The message as it will be pushed to its queue.
        expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.
    """

    seq: int
    queue: str
    id: str | bytes
    due_ms: float
    priority: int
    body: str | bytes
    expire_ms: int = 0

    def __repr__(self) -> str:
        return f"Row(seq={self.seq}, queue={self.queue!r}, id={self.id!r}, body={hidden(self.body)})"


class RowNumber(NamedTuple):
    """Which row of a journal.

    Attributes:
        queue: Name of its queue.
        seq: Its number.
    """

    queue: str
    seq: int


class Numbered(Protocol):
    """Anything that says which row it is about."""

    @property
    def queue(self) -> str:
        """Name of the queue."""

    @property
    def seq(self) -> int:
        """Number of the row."""


class Election(NamedTuple):
    """Whether a promoter was elected.

    Attributes:
        word: ``elected`` if it is. Otherwise ``lost`` (Redis has no marker), ``other`` (Redis belongs to another
            journal), ``behind`` (Redis was set back to an older state), ``ahead`` (the journal was set back, or has
            gone on since it was read) or ``superseded`` (another promoter was faster).
        token: The fencing token; with another word than ``elected`` that of the marker, 0 without one.
        now_ms: With ``elected``: Redis's clock, ms since the epoch.
        epoch: With another word: the marker's epoch.
        heartbeat: With another word: the marker's heartbeat.
    """

    word: str
    token: int = 0
    now_ms: float = 0.0
    epoch: int = 0
    heartbeat: int = 0


class Heartbeat(NamedTuple):
    """What the marker says about Redis's data.

    Attributes:
        word: ``sound``, ``lost``, ``other``, ``superseded`` or ``behind``; as in ``Election``.
        token: The marker's token, 0 without a marker.
        now_ms: Redis's clock, ms since the epoch.
        server: What tells the server from others, if its data are to be compared with the journal, because it has
            started, or become the primary, since they were; else empty.
    """

    word: str
    token: int
    now_ms: float
    server: str = ""


class Promoted(NamedTuple):
    """The result of putting rows into the store.

    Attributes:
        word: ``promoted``; or ``lost``, ``other``, ``superseded`` or ``behind``, when the promoter did not lead:
            the rows that are not in ``words`` were left alone.
        words: By number of the row: ``promoted``, ``pushed`` (it was put there before) or ``claimed`` (it was taken out
            of the journal, and was not put there).
    """

    word: str
    words: dict[int, str]


class Marker(NamedTuple):
    """To which journal a Redis belongs.

    Attributes:
        id: Id of the journal.
        token: The fencing token of the promoter that leads.
        epoch: Number of the epoch.
        heartbeat: Grows about every second, together with a heartbeat in the journal.
    """

    id: str
    token: int
    epoch: int
    heartbeat: int
