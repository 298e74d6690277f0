"""A journal's marker in Redis, and rows to promote."""

from celery_ext.journal.keys import JournalKeys
from celery_ext.journal.promotion import ALL, Promotion, Row, RowNumber
from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import FUTURE_MS, KEYS

#: Id of the journal, and its keys in Redis: the marker of all, and the guard of the queue ``q``.
JOURNAL_ID = "7f3a"
MARKER = "{delayq}:journal"
GUARD = JournalKeys(KEYS).journal_guard("q")


def elected(store: DelayStore, epoch: int = 1, heartbeat: int = 5) -> int:
    """Begins an epoch, or is elected in the one that is there, also at ``q`` and ``p``. Returns the token."""
    marker = store.part(Promotion).marker()
    token = int(store.now_ms()) if marker is None else marker.token + 1
    if marker is not None:
        epoch, heartbeat = marker.epoch, marker.heartbeat
    groups = {ALL, *map(store.part(Promotion).group_of, "qp")}
    found = store.part(Promotion).elect(JOURNAL_ID, token, epoch, heartbeat, groups, anew=True)
    assert {one.word for one in found.values()} == {"elected"}
    return token


def numbers(*seqs: int) -> list[RowNumber]:
    """Names rows of the queue ``q`` by their numbers."""
    return [RowNumber("q", seq) for seq in seqs]


def row(seq: int, queue: str = "q", due_ms: float = FUTURE_MS, body: bytes = b"", priority: int = 0) -> Row:
    """Makes a row; its message has the id ``i<seq>``."""
    return Row(seq, queue, f"i{seq}", due_ms, priority, body or b"body of i%d" % seq)


def several_rows(count: int) -> list[Row]:
    """Makes rows with due times of their own."""
    return [row(n, due_ms=FUTURE_MS + n) for n in range(1, count + 1)]
