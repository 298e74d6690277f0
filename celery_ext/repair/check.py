"""Searches a queue for damage, and mends it."""

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from redis.exceptions import ResponseError

from celery_ext.repair.store import RepairStore
from celery_ext.repair.strays import Strays, put_back
from kombu_delayq.message import eta_of, fault_of, read
from kombu_delayq.store import LAYOUT_OF, DelayStore, body_of
from kombu_delayq.text import as_text

#: How many ids of each kind of damage are kept as examples.
EXAMPLES = 10
#: How many ids of messages with a wrong index entry are remembered, so that their bodies are not counted, too.
UNNAMED_KNOWN = 100_000


@dataclass
class Findings:
    """What is wrong with one queue.

    Attributes:
        queue: Name of the queue.
        delayed: Number of index entries.
        unknown: Whether the transfer workers do not know the queue, so that none of its messages is delivered.
        lost: Number of index entries without a body: the messages are lost.
        unindexed: Number of bodies without an index entry, which would never be delivered.
        undated: Number of unindexed bodies without a due time, which become due now.
        unnamed: Number of messages that cannot be found by their ids.
        landed: Number of messages on their way to consumers that are gone.
        held: Number of messages in the hands of consumers that are gone.
        unreadable: Number of bodies without an index entry that no consumer could take; they are left alone.
        error: Why the queue could not be searched, in the words of Redis.
        examples: For ``lost``, ``undated`` and ``unreadable``, the first ``EXAMPLES`` ids of the kind.
    """

    queue: str
    delayed: int = 0
    unknown: bool = False
    lost: int = 0
    unindexed: int = 0
    undated: int = 0
    unnamed: int = 0
    landed: int = 0
    held: int = 0
    unreadable: int = 0
    error: str | None = None
    examples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def mendable(self) -> bool:
        """Whether there is damage that can be mended."""
        counts = self.lost, self.unindexed, self.unnamed, self.landed, self.held
        return self.unknown or any(counts)

    @property
    def beyond_repair(self) -> bool:
        """Whether there is damage that cannot be mended."""
        return self.error is not None or bool(self.unreadable)

    def note(self, kind: str, identity: bytes) -> None:
        """Adds one to the count of a kind, and keeps the id among the first ``EXAMPLES``."""
        setattr(self, kind, getattr(self, kind) + 1)
        ids = self.examples.setdefault(kind, [])
        if len(ids) < EXAMPLES:
            ids.append(as_text(identity))


def check(
    store: DelayStore, findings: Findings, known: Container[str], *, mend: bool, strays: Strays | None = None
) -> Iterator[int]:
    """Searches a queue, and with ``mend`` mends what it finds. May run while the queue is in use.

    Args:
        store: The broker's store.
        findings: Names the queue, and receives the counts.
        known: Names of the queues that the transfer workers know.
        mend: Whether to mend the damage.
        strays: What consumers that are gone have of the queue.

    Yields:
        How many more index entries, bodies and messages to put back are checked.
    """
    part = store.part(RepairStore)
    try:
        if part.is_kept(findings.queue):
            # Without entries, this call only checks the types of all keys of the queue. Its error names the key.
            part.repair_index(findings.queue, [], mend=False)
            unnamed: set[bytes] = set()
            yield from _check_index(store, findings, unnamed, mend=mend)
            if store.layout == "hash":
                yield from _check_bodies(store, findings, unnamed, mend=mend)
            else:
                yield from _check_list(store, findings, mend=mend)
        if findings.queue not in known and (findings.delayed or findings.unindexed):
            findings.unknown = findings.queue not in store.queues.registered()  # it may have become known meanwhile
        if findings.unknown and mend:
            store.queues.know(findings.queue)
        if strays is not None:
            findings.landed, findings.held = sum(strays.in_flight.values()), len(strays.tags)
            yield from put_back(store, findings.queue, strays) if mend else ()
    except (ResponseError, UnicodeEncodeError) as error:
        findings.error = str(error)


def _check_list(store: DelayStore, findings: Findings, *, mend: bool) -> Iterator[int]:
    part = store.part(RepairStore)
    found = True
    while found:  # once more, because others may have moved entries past the search meanwhile
        before = findings.unindexed
        for page in part.list_pages(findings.queue, mend=mend):
            findings.unindexed += len(page.unindexed)
            yield page.entries
        found = mend and findings.unindexed > before


def _check_index(store: DelayStore, findings: Findings, unnamed: set[bytes], *, mend: bool) -> Iterator[int]:
    part = store.part(RepairStore)
    for members in part.index_pages(findings.queue):
        states = part.repair_index(findings.queue, members, mend=mend)
        for member, state in zip(members, states, strict=True):
            identity = LAYOUT_OF[store.layout].id_in(member)
            if state == "lost":
                findings.note("lost", identity)
            elif state == "unnamed":
                findings.unnamed += 1
                if len(unnamed) < UNNAMED_KNOWN:
                    unnamed.add(identity)
            findings.delayed += state in ("sound", "unnamed")
        yield len(members)


def _check_bodies(store: DelayStore, findings: Findings, unnamed: set[bytes], *, mend: bool) -> Iterator[int]:
    part = store.part(RepairStore)
    for bodies in part.body_pages(findings.queue):
        ids = list(bodies)
        without_due = [(identity, None) for identity in ids]
        states = part.repair_bodies(findings.queue, without_due, mend=mend) if ids else []
        dues: list[tuple[bytes, float | None]] = []
        now_ms = store.now_ms()
        for identity, state in zip(ids, states, strict=True):
            if state == "unindexed" and (mend or identity not in unnamed):
                dues.append((identity, _due_ms(findings, now_ms, identity, bodies[identity])))
            findings.unnamed += state == "unnamed" and identity not in unnamed
        if dues and mend:  # a body with None for its due time stays as it is
            part.repair_bodies(findings.queue, dues, mend=True)
        yield len(ids)


def _due_ms(findings: Findings, now_ms: float, identity: bytes, value: bytes) -> float | None:
    """Returns the due time of a message without an index entry, else the current time; None if it is no message."""
    body = body_of(value)
    if fault_of(body) is not None:
        findings.note("unreadable", identity)
        return None
    findings.unindexed += 1
    due = eta_of(read(body))
    if due is not None:
        return due.ms
    findings.note("undated", identity)
    return now_ms
