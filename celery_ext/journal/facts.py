"""Facts about a journal: its id, its epoch, its heartbeat, its totals, and up to where messages have left Redis."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from time import time
from typing import Any, NamedTuple
from uuid import uuid4

from sqlalchemy import Connection, Integer, Text, cast, delete, func, insert, select, update

from celery_ext.journal import schema
from celery_ext.journal.database import Database
from celery_ext.journal.schema import GAP, is_postgres, last_number, next_numbers, number_from

#: The queue in the table of watermarks, and in those of an epoch, that stands for all that have none of their own.
OTHERS = ""

#: Name of the fact that has the queues with markers of their own.
MARKED = "marked"

_facts = schema.facts


@dataclass(frozen=True)
class Watermarks:
    """Up to where messages have left Redis: all messages that are due before it, by queue.

    Attributes:
        moved_to_ms: The watermark of queues without one of their own, ms since the epoch; 0 if nobody has noted one.
        lagging: The watermarks of queues whose next message was overdue.
    """

    moved_to_ms: float = 0.0
    lagging: Mapping[str, float] = field(default_factory=dict)

    def of(self, queue: str) -> float:
        """Returns the watermark of a queue, ms since the epoch."""
        return self.lagging.get(queue, self.moved_to_ms)

    def dump(self) -> str:
        """Returns the watermarks as JSON."""
        return json.dumps({**self.lagging, OTHERS: self.moved_to_ms})

    @classmethod
    def load(cls, text: str) -> "Watermarks":
        """Reads what ``dump`` wrote."""
        found = json.loads(text)
        return cls(float(found.pop(OTHERS, 0.0)), {queue: float(ms) for queue, ms in found.items()})


#: For how long a promoter counts as alive that sends no heartbeat, in s. Nobody leads with another Redis meanwhile.
ALIVE_S = 30.0


class LeadingPromoter(NamedTuple):
    """The promoter that leads, or led last, as the journal knows it.

    Attributes:
        token: Its fencing token.
        name: Its name, which no other has; empty once it has ended by itself.
        redis: Id of Redis's data behind which it leads; see ``Marker.redis``.
        server: Their server; see ``Promotion.server``.
        place: Where that is, for people; see ``Promotion.place``.
        silent_s: How long ago it was heard last, by the clock of the journal's database, in s.
    """

    token: int
    name: str
    redis: str
    server: str
    place: str
    silent_s: float = 0.0

    def __str__(self) -> str:
        return (
            f"this journal is led from another Redis, or with another key prefix: {self.place}, by "
            f"{self.name or 'a process that has ended'}, heard {self.silent_s:.0f} s ago. Each needs a journal of its "
            "own: correct journal_url or the broker. If that one is gone, this one takes its place "
            f"{ALIVE_S:.0f} s after its end"
        )

    @property
    def is_alive(self) -> bool:
        """Whether it was heard lately. A clock that was set back says so for a second at most."""
        return abs(self.silent_s) < ALIVE_S

    def has_place_of(self, other: "LeadingPromoter") -> bool:
        """Whether it is at the Redis of another, which may have lost its data since.

        That is so on the same server; and if the server is another one, at the same address for the same process, or
        after that has ended by itself.
        """
        is_same = self.place == other.place and other.name in ("", self.name)
        return is_same or (bool(self.server) and self.server == other.server)


class Facts:
    """Reads and writes facts. SQLite does not sync heartbeats and watermarks: they need not survive a loss of power."""

    _database: Database

    @property
    def id(self) -> str:
        """Id of this journal, which no other has."""
        return self._database.read(lambda connection: facts_in(connection)["id"])

    def epoch(self) -> int:
        """Returns the number of the current epoch, from 1 on. A loss of Redis ends an epoch."""
        return self._database.read(epoch_in)

    def heartbeat(self) -> int:
        """Returns the number of the latest heartbeat, 0 before the first."""
        return self._database.read(lambda connection: int(facts_in(connection)["heartbeat"]))

    def leader(self) -> LeadingPromoter | None:
        """Returns the promoter that leads, or led last; None if nobody has yet."""
        return self._database.read(_leader_in)

    def lead(self, leader: LeadingPromoter, after: LeadingPromoter | None) -> bool:
        """Notes a new leader. Returns False, and notes nothing, if another was faster.

        Args:
            leader: The new one.
            after: The latest leader that the caller knows.
        """

        def work(connection: Connection) -> bool:
            found = _leader_in(connection, lock=True)
            is_next = (found and found.token) == (after and after.token)
            if is_next:
                _note_leader(connection, leader)
            return is_next

        return self._database.write(work, durable=False)

    def next_heartbeat(self, token: int, heartbeat: int) -> int | None:
        """Raises the heartbeat by one, and notes that its promoter is alive.

        Args:
            token: The promoter's token.
            heartbeat: The latest heartbeat that it knows.

        Returns:
            The heartbeat, by then; None if another leads, or the database was set back.
        """

        def work(connection: Connection) -> int | None:
            leader = _leader_in(connection, lock=True)
            if leader is None or leader.token != token or int(facts_in(connection)["heartbeat"]) != heartbeat:
                return None
            _note_leader(connection, leader)
            return raise_fact(connection, "heartbeat", 1)

        return self._database.write(work, durable=False)

    def resign(self, token: int) -> None:
        """Notes that a promoter has ended by itself, if it leads."""

        def work(connection: Connection) -> None:
            leader = _leader_in(connection, lock=True)
            if leader is not None and leader.token == token:
                _note_leader(connection, leader._replace(name=""))

        self._database.write(work, durable=False)

    def next_token(self, least: int) -> int:
        """Returns the fencing token of a new leader, higher than each before.

        Args:
            least: Its least value. With Redis's clock in ms it is higher than those that a database knew which was set
                back since.
        """

        def work(connection: Connection) -> int:
            token = max(int(facts_in(connection, lock="token")["token"]) + 1, least)
            set_fact(connection, "token", str(token))
            return token

        return self._database.write(work, durable=False)

    @property
    def guard(self) -> str:
        """Id of the numbers that rows have. It changes when the database may give numbers out a second time."""
        return self._database.read(lambda connection: facts_in(connection)["guard"])

    def catch_up(self, heartbeat: int) -> None:
        """Goes on at a later heartbeat, as an older copy of the database was put in its place.

        Redis may have noted numbers of rows that the copy does not know. So rows get numbers that are far greater, and
        these have a new id.
        """

        def work(connection: Connection) -> None:
            set_fact(connection, "heartbeat", str(heartbeat))
            set_fact(connection, "guard", uuid4().hex)
            number_from(connection, next_numbers(connection, 1)[0] + GAP)

        self._database.write(work)

    def last_number(self) -> int:
        """Returns the greatest number that a row was given, 0 before the first."""
        return self._database.read(last_number)

    def written_before(self) -> int:
        """Returns up to which number Redis had the messages of rows for sure, at the latest heartbeat.

        It is that of the heartbeat before, so that a caller that had written a row then has given Redis its message
        since.
        """
        return self._database.read(lambda connection: int(facts_in(connection)["written"].split()[0]))

    def marked(self) -> set[str]:
        """Returns the queues that have markers of their own, where Redis has hash slots."""
        return self._database.read(lambda connection: set(json.loads(facts_in(connection).get(MARKED, "[]"))))

    def note_marked(self, queues: Collection[str]) -> None:
        """Notes queues that have markers of their own by now."""

        def work(connection: Connection) -> None:
            found = facts_in(connection, lock="id") and facts_in(connection).get(MARKED)
            value = json.dumps(sorted({*json.loads(found or "[]"), *queues}))
            if found is None:
                connection.execute(insert(_facts).values(name=MARKED, value=value))
            else:
                set_fact(connection, MARKED, value)

        self._database.write(work)

    def watermarks(self) -> Watermarks:
        """Returns up to where messages have left Redis."""
        return self._database.read(watermarks_in)

    def set_watermarks(self, moved_to_ms: float, lagging: Mapping[str, float], *, sound: bool = True) -> None:
        """Replaces all watermarks, and notes which numbers rows have by now.

        Args:
            moved_to_ms: That of all queues that ``lagging`` does not have, ms since the epoch.
            lagging: By queue, the due time of its first message, where that is overdue.
            sound: Whether Redis has what it was given; otherwise the numbers of before stay.
        """

        def work(connection: Connection) -> None:
            _replace_watermarks(connection, Watermarks(moved_to_ms, lagging))
            if sound:
                before = facts_in(connection)["written"].split()[1]
                set_fact(connection, "written", f"{before} {last_number(connection)}")

        self._database.write(work, durable=False)

    def raise_watermarks(self, token: int, marks: Watermarks) -> None:
        """Replaces all watermarks by later ones, which a promoter has read while the database was away.

        Args:
            token: The promoter's token; nothing changes if another has led since.
            marks: The watermarks.
        """

        def work(connection: Connection) -> None:
            leader = _leader_in(connection, lock=True)
            is_later = marks.moved_to_ms > watermarks_in(connection, lock=True).moved_to_ms
            if leader is not None and leader.token == token and is_later:
                _replace_watermarks(connection, marks)

        self._database.write(work, durable=False)

    def lower_watermarks(self, dues: Mapping[str, float]) -> None:
        """Lowers the watermarks of queues that are given messages which are due before them.

        Args:
            dues: By queue, the least due time of these messages, ms since the epoch.
        """

        def work(connection: Connection) -> None:
            kept = watermarks_in(connection, lock=True)
            lower = {queue: ms for queue, ms in dues.items() if ms < kept.of(queue)}
            if lower:
                _replace_watermarks(connection, Watermarks(kept.moved_to_ms, {**kept.lagging, **lower}))

        self._database.write(work, durable=False)


def facts_in(connection: Connection, lock: str | None = None) -> dict[str, str]:
    """Returns all facts by name; or one, which nobody else changes until the transaction ends."""
    found = select(_facts.c.name, _facts.c.value)
    if lock is not None:
        found = found.where(_facts.c.name == lock).with_for_update()
    return {row.name: row.value for row in connection.execute(found)}


def _leader_in(connection: Connection, *, lock: bool = False) -> LeadingPromoter | None:
    found = json.loads(facts_in(connection, lock="leader" if lock else None)["leader"])
    return LeadingPromoter._make([*found[:-1], _now_s(connection) - found[-1]]) if found else None


def _note_leader(connection: Connection, leader: LeadingPromoter) -> None:
    set_fact(connection, "leader", json.dumps([*leader[:-1], _now_s(connection)]))


def _now_s(connection: Connection) -> float:
    """Returns the time of the database, in s: that of one machine, for all callers."""
    if not is_postgres(connection):
        return time()
    return float(connection.scalar(select(func.extract("epoch", func.clock_timestamp()))) or 0.0)


def epoch_in(connection: Connection) -> int:
    """Returns the number of the current epoch."""
    return int(connection.scalars(select(_facts.c.value).where(_facts.c.name == "epoch")).one())


def lock_epoch(connection: Connection, *, to_change: bool = False) -> int:
    """Returns the number of the current epoch, which does not end until the transaction does.

    Without this a row could come into an epoch that is ended and restored, and no restore would look at it.
    """
    fact = select(_facts.c.value).where(_facts.c.name == "epoch")
    return int(connection.scalars(fact.with_for_update(read=not to_change)).one())


def watermarks_in(connection: Connection, *, lock: bool = False) -> Watermarks:
    """Returns up to where messages have left Redis; with ``lock``, as nobody changes it until the transaction ends."""
    if lock:
        facts_in(connection, lock="id")  # there is no row of watermarks to lock before the first
    table = schema.watermarks
    rows = connection.execute(select(table.c.queue, table.c.moved_to_ms))
    found = {row.queue: row.moved_to_ms for row in rows}
    return Watermarks(found.pop(OTHERS, 0.0), found)


def _replace_watermarks(connection: Connection, marks: Watermarks) -> None:
    facts_in(connection, lock="id")
    rows = [{"queue": queue, "moved_to_ms": ms} for queue, ms in {**marks.lagging, OTHERS: marks.moved_to_ms}.items()]
    connection.execute(delete(schema.watermarks))
    connection.execute(insert(schema.watermarks), rows)


def set_fact(connection: Connection, name: str, value: str) -> None:
    """Gives a fact another value."""
    connection.execute(update(_facts).where(_facts.c.name == name).values(value=value))


def raise_fact(connection: Connection, name: str, by: int) -> int:
    """Adds to a fact that is a whole number. Returns the sum."""
    total: Any = cast(cast(_facts.c.value, Integer) + by, Text)
    raised = update(_facts).where(_facts.c.name == name).values(value=total)
    return int(connection.scalars(raised.returning(_facts.c.value)).one())
