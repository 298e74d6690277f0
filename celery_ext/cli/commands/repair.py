"""``delayq repair``."""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import click
from redis.exceptions import ResponseError

from celery_ext.cli.broker import CliBroker, broker_in_words
from celery_ext.cli.options import confirm, json_option, queues_argument, yes_option
from celery_ext.cli.output import escaped, json_line, number_of, print_stderr
from celery_ext.cli.progress import with_progress
from kombu_delayq.audit import audited
from kombu_delayq.message.due import eta_of
from kombu_delayq.message.fields import fault_of, read
from kombu_delayq.message.pages import pages
from kombu_delayq.message.unacked import read_note
from kombu_delayq.store import DelayStore
from kombu_delayq.store.hash_layout import body_of, id_of
from kombu_delayq.store.redisson_layout import mark_of, own_id
from kombu_delayq.store.types import PAGE, InFlight, Request, Requeued
from kombu_delayq.text import as_bytes, as_text


@dataclass
class Strays:
    """What consumers that are gone have of one queue.

    Attributes:
        in_flight: In-flight lists, with the number of messages that each has.
        tags: Delivery tags of messages in hand, those first that a consumer took first.
    """

    in_flight: dict[InFlight, int] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)


@dataclass
class Search:
    """What a search has found.

    Attributes:
        strays: By queue.
        unread: Delivery tags whose notes do not tell the queue.
        ended: By slot group, names of consumers whose lease has ended, where no transfer worker leads, which would give
            back what they held.
    """

    strays: dict[str, Strays]
    unread: list[str] = field(default_factory=list)
    ended: dict[str, list[str]] = field(default_factory=dict)


def find_strays(store: DelayStore) -> Search:
    """Searches the whole database for what consumers have that nobody knows, or whose lease has ended for good."""
    found: defaultdict[str, Strays] = defaultdict(Strays)
    search = Search(found)
    # A consumer is known before it takes messages: left out are those known now, and those known at first.
    in_flight = {at: count for page in store.repair.in_flight_pages() for at, count in page}
    is_led = store.leases.leader() is not None
    group_of = store.keys.slot_group
    for group in sorted({*store.consumers.slot_groups(), *(group_of(at.queue) for at in in_flight)}):
        holders = set(store.consumers.counts(group)) - {""}
        leases = store.consumers.in_group(group)
        ended = [] if is_led else [lease.name for lease in leases if lease.left_ms <= 0]
        if ended:
            search.ended[group] = ended
        known = {lease.name for lease in leases}.difference(ended)
        for at, count in in_flight.items():
            if group_of(at.queue) == group and at.consumer not in known:
                found[at.queue].in_flight[at] = count
        for tags in store.consumers.tags_of(holders - known, group).values():
            for page in pages(tags, PAGE):
                for held in store.consumers.notes(page, group):
                    note = read_note(as_bytes(held.note))
                    if note is None or note.exchange:
                        search.unread.append(held.tag)
                    else:
                        found[note.routing_key].tags.append(held.tag)
    return search


def forget_strays(store: DelayStore, ended: Mapping[str, Iterable[str]]) -> None:
    """Forgets those consumers whose lease has ended, by slot group, and that hold nothing any more."""
    for group, names in ended.items():
        fenced = store.consumers.fence([*names], group)
        counts = store.consumers.counts(group)
        for name in fenced:
            if not counts[name]:
                store.consumers.leave(name, group)


def put_back(store: DelayStore, queue: str, strays: Strays) -> Iterator[int]:
    """Puts the strays of a queue back to where they are consumed next. Yields the number of messages of each call."""
    for page in pages(reversed(strays.tags), PAGE):
        notes = ((held.tag, read_note(as_bytes(held.note))) for held in store.consumers.notes(page, queue))
        rows = [Requeued(tag, note.routing_key, note.priority, note.given_back()) for tag, note in notes if note]
        store.fetching.requeue(rows, "next", redelivers=True)
        yield len(page)
    for at, count in strays.in_flight.items():
        if at.step >= store.fetching.steps(at.queue):
            key = store.keys.in_flight(*at)
            raise ResponseError(f"key {key} belongs to a list that the option priority_steps does not have here")
        store.fetching.fetch(Request("", 0, 0, (), in_flight=[at]))
        yield count


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
    try:
        if store.repair.is_kept(findings.queue):
            # Without entries, this call only checks the types of all keys of the queue. Its error names the key.
            store.repair.repair_index(findings.queue, [], mend=False)
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
    found = True
    while found:  # once more, because others may have moved entries past the search meanwhile
        before = findings.unindexed
        for page in store.repair.list_pages(findings.queue, mend=mend):
            findings.unindexed += len(page.unindexed)
            yield page.entries
        found = mend and findings.unindexed > before


def _check_index(store: DelayStore, findings: Findings, unnamed: set[bytes], *, mend: bool) -> Iterator[int]:
    for members in store.repair.index_pages(findings.queue):
        states = store.repair.repair_index(findings.queue, members, mend=mend)
        for member, state in zip(members, states, strict=True):
            identity = id_of(member) if store.layout == "hash" else own_id(mark_of(member), b"")
            if state == "lost":
                findings.note("lost", identity)
            elif state == "unnamed":
                findings.unnamed += 1
                if len(unnamed) < UNNAMED_KNOWN:
                    unnamed.add(identity)
            findings.delayed += state in ("sound", "unnamed")
        yield len(members)


def _check_bodies(store: DelayStore, findings: Findings, unnamed: set[bytes], *, mend: bool) -> Iterator[int]:
    for bodies in store.repair.body_pages(findings.queue):
        ids = list(bodies)
        without_due = [(identity, None) for identity in ids]
        states = store.repair.repair_bodies(findings.queue, without_due, mend=mend) if ids else []
        dues: list[tuple[bytes, float | None]] = []
        now_ms = store.now_ms()
        for identity, state in zip(ids, states, strict=True):
            if state == "unindexed" and (mend or identity not in unnamed):
                dues.append((identity, _due_ms(findings, now_ms, identity, bodies[identity])))
            findings.unnamed += state == "unnamed" and identity not in unnamed
        if dues and mend:  # a body with None for its due time stays as it is
            store.repair.repair_bodies(findings.queue, dues, mend=True)
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


#: By kind of damage: the words for one, those for many, and what a repair does about it.
WORDS = {
    "lost": (
        "index entry without a body: this message is lost",
        "index entries without a body: these messages are lost",
        "removed",
    ),
    "unindexed": (
        "body without an index entry, which would never be delivered",
        "bodies without an index entry, which would never be delivered",
        "indexed by the due time that is kept, or by the eta",
    ),
    "undated": ("of these has no eta", "of these have no eta", "due now"),
    "unnamed": ("message that cannot be found by its id", "messages that cannot be found by their ids", "mended"),
    "landed": (
        "message on its way to a consumer that is gone",
        "messages on their way to consumers that are gone",
        "next in the queue",
    ),
    "held": (
        "message in the hands of a consumer that is gone",
        "messages in the hands of consumers that are gone",
        "next in the queue",
    ),
    "unreadable": (
        "body without an index entry that is no message",
        "bodies without an index entry that are no messages",
        "left alone",
    ),
}


@click.command()
@queues_argument()
@click.option("--dry-run", is_flag=True, help="Change nothing. Exit code 1 means that there is something to mend.")
@yes_option
@json_option()
@click.pass_obj
def repair(broker: CliBroker, queues: tuple[str, ...], dry_run: bool, yes: bool, as_json: bool) -> None:
    """Find and mend what a lost or damaged key leaves of messages.

    Run it with --dry-run first. Without QUEUE, it looks at all queues, even those that no transfer worker knows. It
    finds index entries without a body, bodies without an index entry, and messages that cannot be found by their ids.
    And it finds what consumers hold that nobody knows and, where no transfer worker leads, those whose lease has ended.
    It may run while the queues are in use, and run again.

    Exit code 0 means that all is sound by now, 1 that something is left: a body that is no message, a key of another
    type, or with --dry-run whatever was found.
    """
    with broker.store() as (connection, store):
        work = _Repair(store, queues)
        found = work.run(mend=yes and not dry_run)
        work.report_unknown(found)
        ask = not (dry_run or yes) and any(findings.mendable for findings in found)
        if ask:
            _print_findings(found, queues, mended=False, as_json=as_json)
            confirm(f"Mend this on {broker_in_words(connection)}?", yes=False)
            found = work.run(mend=True, queues=[findings.queue for findings in found])
        _print_findings(found, queues, mended=not dry_run, as_json=as_json)
    left = work.failed or any(findings.beyond_repair or (dry_run and findings.mendable) for findings in found)
    raise SystemExit(int(left))


class _Repair:
    def __init__(self, store: DelayStore, queues: Iterable[str]) -> None:
        self.failed = False
        self._store = store
        self._given = list(dict.fromkeys(queues))
        self._complaints: set[str] = set()

    def run(self, *, mend: bool, queues: Iterable[str] | None = None) -> list[Findings]:
        """Checks the queues, by default all or those given."""
        known, search = self._known(), self._search()
        # Without a name given, the whole database is searched, also for queues that no transfer worker knows.
        names = queues or self._given or sorted({*known.union(*self._store.repair.queue_pages()), *search.strays})
        found = [Findings(name) for name in names]
        steps = (
            step
            for findings in found
            for step in check(self._store, findings, known, mend=mend, strays=search.strays.get(findings.queue))
        )
        total = sum(map(self._size, names))
        try:
            for _ in with_progress(steps, "mending" if mend else "checking", total, size=int):
                pass
        finally:
            if mend:
                self._note(found)
        if mend and search.ended:
            forget_strays(self._store, search.ended)
        return found

    def _note(self, found: Iterable[Findings]) -> None:
        for findings in found:
            mended = {kind: count for kind in WORDS if kind != "unreadable" and (count := getattr(findings, kind))}
            error = {} if findings.error is None else {"error": findings.error}
            with audited("repair", {"queue": findings.queue, **error}, unchanged=("undated",)) as counts:
                counts.update(mended)

    def report_unknown(self, found: list[Findings]) -> None:
        """Names on stderr the given queues that are not known, and removes them from ``found``."""
        known = self._known() if self._given else set()
        for findings in list(found):
            queue = findings.queue
            if queue not in self._given or queue in known:
                continue
            if findings == Findings(queue) and not self._store.repair.is_kept(queue):
                self.failed = True
                found.remove(findings)
                print_stderr(f"queue {queue!r} holds no delayed messages, and is not known")

    def _search(self) -> Search:
        try:
            search = find_strays(self._store)
        except ResponseError as error:
            self._complain(f"what consumers hold cannot be searched: {error}")
            return Search({})
        if search.unread:
            notes = number_of(len(search.unread), "note")
            self._complain(f"{notes} of messages in hand cannot be read, such as {min(search.unread)}")
        return search

    def _complain(self, text: str) -> None:
        self.failed = True
        if text not in self._complaints:  # a repair searches twice
            self._complaints.add(text)
            print_stderr(text)

    def _known(self) -> set[str]:
        try:
            return set(self._store.queues.registered())
        except ResponseError as error:
            self._complain(f"key {self._store.keys.queues}: {error}")
            return set()

    def _size(self, queue: str) -> int:
        try:
            return 2 * self._store.queues.size(queue)
        except (ResponseError, UnicodeEncodeError):  # the check itself will report it
            return 0


def _print_findings(found: Sequence[Findings], given: Sequence[str], *, mended: bool, as_json: bool) -> None:
    for findings in found:
        if as_json:
            is_mended = mended and findings.mendable and findings.error is None
            click.echo(json_line({**asdict(findings), "mended": is_mended}))
        else:
            click.echo("\n".join(_lines(findings, mended=mended)))
    if not (found or given) and not as_json:
        click.echo("no queue holds delayed messages")


def _lines(findings: Findings, *, mended: bool) -> Iterator[str]:
    sound = not (findings.mendable or findings.beyond_repair)
    delayed = findings.delayed + (findings.unindexed if mended else 0)
    title = f"queue {escaped(findings.queue)}: {number_of(delayed, 'delayed message')}"
    yield f"{title}, all sound" if sound else title
    if findings.error is not None:
        yield f"  left: {escaped(findings.error)}"
    if findings.unknown:
        yield "  no transfer worker knows of it" + (": now they do" if mended else "")
    for kind, (one, many, done) in WORDS.items():
        count = getattr(findings, kind)
        if not count:
            continue
        ids = findings.examples.get(kind, [])
        more = ", …" if count > len(ids) else ""
        yield f"  {number_of(count, one, many)}" + (f": {done}" if mended else "")
        if ids:
            yield f"    {', '.join(map(escaped, ids))}{more}"
