"""Arms the next runs of each entry, and follows what people and other processes want."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from math import inf
from operator import attrgetter
from time import monotonic
from typing import Any, NamedTuple

from kombu.log import get_logger

from celery_ext.periodic.entries import Entries, Entry, Source
from celery_ext.periodic.messages import Caught, RunMessages
from celery_ext.periodic.store import (
    CHANGED,
    OTHER_SCHEDULE,
    PAUSED,
    STOCK_BEAT,
    ArmedNote,
    PeriodicStore,
    Run,
    Superseded,
    Wishes,
)
from celery_ext.periodic.times import MOST_MISSED, missed_runs, run_before, runs_after
from celery_ext.periodic.words import in_words
from kombu_delayq.message import pages
from kombu_delayq.publish_batch import MAX_BYTES, MAX_OFFERS
from kombu_delayq.redis import AWAY
from kombu_delayq.store import DelayStore, PageId

logger = get_logger(__name__)

#: How often a process looks at what is wanted, in s.
LOOK_S = 1.0
#: For how long nobody arms before a process with another schedule does, in s: a restart is over by then, and with the
#: end of a lease before it what is armed still lasts.
RESTART_S = 30.0
#: How far ahead runs are armed, in ms, and how much farther each time, so that frequent runs are armed a few at once.
AHEAD_MS, MORE_MS = 60_000, 10_000
#: How often this process tells a source which runs have begun, in s. Notes of runs last longer.
_NOTE_S = 5.0
#: How often at most what is seen of others is noted and logged, in s.
_SIGHTING_S = 300.0
#: Most runs of an entry that are armed at once.
_MOST_RUNS = 1000
#: How long entries are armed at a time, in s; the lease lasts longer.
_BUSY_S = 2.0
#: Pause before the next attempt with an entry that cannot be sent, in s.
_RETRY_S = 30.0
#: What the noted schedule is called where entries come from a database, which all processes read.
_DATABASE = "database"


class _Due(NamedTuple):
    """A run that is to be armed."""

    entry: Entry
    at_ms: int
    messages: list[Caught]


class _Ahead(NamedTuple):
    """What is known of an entry that was armed by a clock that was ahead: its latest run, and those that were sent."""

    run_ms: int
    sent: set[int]


class Arming:
    """Arms entries while this process holds the lease, and else looks whether it is free.

    Args:
        app: The app.
        source: Where its entries come from.
        name: Name of this process; no other has the same.

    Attributes:
        stock_beat: Name of a task that a stock beat has sent to this process since the last look; else empty.
    """

    def __init__(self, app: Any, source: Source, name: str) -> None:
        self._app, self._source, self._name = app, source, name
        self._found = Entries({}, {}, {})
        self._schedule: str | None = None
        self._began_ms = 0
        self._token: int | None = None
        self._beyond = 0
        self._paused: frozenset[str] = frozenset()
        self._latest: dict[str, float] = {}  # time of the latest run of each entry, armed or begun, ms since the epoch
        self._queues: dict[str, list[str]] = {}  # where each entry is written down to be armed
        self._rows: dict[str, tuple[Any, int]] = {}  # row of each name, and after which run its own begin
        self._gone: dict[str, list[str]] = {}  # entries that are to be forgotten, and their queues
        self._unwritten: set[str] = set()  # entries whose record is not as they are
        self._unstarted: set[str] = set()  # entries whose first run, at their start, is not armed
        self._ahead: dict[str, _Ahead] = {}  # entries to arm anew that were armed by a clock that was ahead
        self._failures: dict[str, tuple[str, float]] = {}  # why an entry cannot be sent, and when to try again
        self._other = ""  # the schedule to which this process leaves arming
        self._free_since: float | None = None  # since when nobody with that arms
        self._sighted_until = self._noted_until = 0.0
        self.stock_beat = ""

    @property
    def leads(self) -> bool:
        """Whether this process arms."""
        return self._token is not None

    def begin(self, store: DelayStore, messages: RunMessages) -> None:
        """Goes on with a new connection."""
        self._store, self._messages, self._token = store, messages, None
        self._periodic = store.part(PeriodicStore)

    def end(self) -> None:
        """Gives the lease back."""
        if self._token is not None:
            self._token = None
            self._periodic.end_lease(self._name)

    def step(self) -> float:
        """Looks once, and arms what is to be armed. Returns the time until the next look, in s."""
        periodic, is_new = self._periodic, not self._source.changes and self._read()
        wishes = periodic.wishes()
        if not self._holds(wishes):
            self.end()
            return LOOK_S
        self._note_stock_beat()
        if not periodic.take_lease(self._name):
            self._token, self._rows = None, {}  # others note runs now
            return LOOK_S
        is_new = (self._source.changes and self._read()) or is_new
        now_ms = self._store.now_ms()  # later, so that a run that begins meanwhile is noted
        is_new = is_new or self._token is None or _is_back(wishes, now_ms)
        try:
            if is_new or (wishes.token, wishes.paused) != (self._token, self._paused):
                self._note_runs(now_ms, at_once=True)  # ``_load`` forgets the runs that it disarms
                self._load(int(now_ms), wishes)
            for run, name in wishes.requests.items():
                self._run_now(run, name, int(now_ms))
            is_done = self._arm(int(now_ms))
            if is_done and self._gone:  # not before: a row that has another name now goes on from these runs
                self._note_runs(now_ms, at_once=True)
                periodic.forget(self._gone)
                self._gone = {}
            self._note_runs(now_ms)
        except Superseded as error:
            self._token, self._beyond = None, error.token
            return 0.0
        return LOOK_S if is_done else 0.0

    def _read(self) -> bool:
        """Reads the entries, if they may have changed. Returns whether they have."""
        found = self._source.read()
        if found is None:
            return False
        for text, now, before in (
            ("periodic entry %r does not run: %s", found.wrong, self._found.wrong),
            ("periodic entry %r: %s", found.doubtful, self._found.doubtful),
        ):
            for name, why in sorted(now.items() - before.items()):
                logger.warning(text, name, why)
        self._found, self._failures = found, {}
        return True

    def _note_runs(self, now_ms: float, *, at_once: bool = False) -> None:
        """Tells the source which runs have begun, if it wants to know, and not too often."""
        if not self._source.changes or not (at_once or monotonic() > self._noted_until):
            return
        self._noted_until = monotonic() + _NOTE_S
        begun = defaultdict[Any, set[int]](set)
        for notes in self._periodic.notes({queue for queues in self._queues.values() for queue in queues}).values():
            for name, note in notes.items():
                row, since_ms = self._rows.get(name, (None, 0))
                times = {at_ms for at_ms, _ in note.runs if at_ms <= now_ms} | {note.last_ms}
                begun[row] |= {at_ms for at_ms in times if at_ms > since_ms}
        self._source.note({row: sorted(times) for row, times in begun.items()}, now_ms)

    def _note_stock_beat(self) -> None:
        """Notes and logs that a stock beat sends tasks, if a worker of this process has got one."""
        if self.stock_beat and self._note_sighting(STOCK_BEAT):
            logger.warning("a stock beat sends periodic tasks beside the workers, such as %s", self.stock_beat)
        self.stock_beat = ""

    def _note_sighting(self, what: str) -> bool:
        """Notes what is seen of others, unless that was just done. Returns whether it has."""
        if monotonic() <= self._sighted_until:
            return False
        self._sighted_until = monotonic() + _SIGHTING_S
        self._periodic.note_sighting(what, self._store.now_ms())
        return True

    def _holds(self, wishes: Wishes) -> bool:
        """Whether the schedule of this process holds: that of the process that started last, of those that live."""
        if self._schedule is None:
            self._schedule = _DATABASE if self._source.changes else self._found.digest
            self._began_ms = max(int(self._store.now_ms()), wishes.began_ms + 1)
        elif wishes.schedule == self._schedule:
            return True
        elif wishes.schedule is None:  # Redis has lost its data
            self._token = None
        elif self._began_ms <= wishes.began_ms and not self._is_left_by(wishes.schedule):
            return False
        self._periodic.note_schedule(self._schedule, self._began_ms)
        return True

    def _is_left_by(self, schedule: str) -> bool:
        """Whether all processes with another schedule, which was noted later, have ended; they arm until then."""
        self._note_sighting(OTHER_SCHEDULE)
        if self._other != schedule:
            self._other, self._free_since = schedule, None
            logger.warning(
                "a process that started later has another periodic schedule (%s) than this one (%s), and arms alone",
                schedule,
                self._schedule,
            )
        if self._periodic.leader() is not None:
            self._free_since = None
        elif self._free_since is None:
            self._free_since = monotonic()
        elif monotonic() - self._free_since > RESTART_S:
            self._other = ""
            logger.warning(
                "no process with the periodic schedule %s arms any more: this one arms its own (%s), "
                "with entries that differ: %s",
                schedule,
                self._schedule,
                ", ".join(self._found.unlike(self._periodic.records())),
            )
            return True
        return False

    def _load(self, now_ms: int, wishes: Wishes) -> None:
        """Compares the entries with what is armed, and disarms what has to go."""
        periodic, paused = self._periodic, wishes.paused
        token = periodic.new_token(now_ms, self._beyond)
        records = {name: json.loads(record) for name, record in periodic.records().items()}
        entries = {name: entry for name, entry in self._found.entries.items() if entry.is_on and name not in paused}
        self._ahead = self._turn_back(token, records, now_ms) if _is_back(wishes, now_ms) else {}
        self._disarm(token, entries, records, {*paused, *self._found.entries} - entries.keys())
        notes = periodic.notes(sorted({queue for record in records.values() for queue in record["queues"]}))
        known = {
            name: [notes[queue][name] for queue in record["queues"] if name in notes[queue]]
            for name, record in records.items()
        }
        self._note_rows(records, known)
        self._latest, self._unwritten, self._unstarted = {}, set(), set()
        self._queues = {name: record["queues"] for name, record in records.items()}
        gone = records.keys() - self._found.entries.keys() - self._found.wrong.keys()
        self._gone = {name: records[name]["queues"] for name in gone}
        renamed = defaultdict[Any, list[ArmedNote]](list)  # by row, what is known of it under another name
        for name in gone:
            renamed[records[name].get("row")] += [note for note in known[name] if note.latest_ms]
        for name, entry in entries.items():
            record = records.get(name, {"digest": ""})
            before = [] if entry.row is None else renamed[entry.row]
            self._latest[name] = self._begin(entry, [*known.get(name, ()), *before], now_ms)
            if name in self._ahead and name not in self._unstarted:
                self._latest[name] = self._after_early(entry, self._latest[name], now_ms)
            if (record["digest"], record.get("row")) != (entry.digest, entry.row):
                self._unwritten.add(name)
        self._write_idle(records, entries)
        self._token, self._paused = token, paused

    def _turn_back(self, token: int, records: Mapping[str, Any], now_ms: int) -> dict[str, _Ahead]:
        """Disarms what was armed by a clock that has gone back. Returns by entry what was known of it."""
        store, found = self._store, dict[str, _Ahead]()
        logger.warning("the clock of Redis has gone back: the runs of periodic entries that are to come are armed anew")
        noted = self._periodic.notes(sorted({queue for record in records.values() for queue in record["queues"]}))
        for queue, notes in noted.items():
            ahead = {name: note for name, note in notes.items() if note.latest_ms > now_ms}
            ids = [identity for note in ahead.values() for at_ms, identity in note.runs if at_ms > now_ms]
            waiting = store.lookup.get([queue], ids) if ids else {}
            for name, note in ahead.items():
                known = found.setdefault(name, _Ahead(note.latest_ms, set()))  # in any of its queues
                sent = [note.last_ms, *(at_ms for at_ms, identity in note.runs if identity not in waiting)]
                known.sent.update(at_ms for at_ms in sent if at_ms > now_ms)
            for part in pages(ahead, MAX_OFFERS):
                self._periodic.disarm(queue, part, token, "purged")
        self._periodic.note_armed(now_ms)
        return found

    def _after_early(self, entry: Entry, latest: float, now_ms: int) -> float:
        """Returns after which time to arm an entry anew, some of whose runs to come were sent already."""
        run_ms, sent = self._ahead[entry.name]
        if latest == inf or (sent and entry.ends_with(max(sent))):
            return inf
        zone, of = self._app.timezone, entry.schedule
        # What was armed before the clock went ahead was sent with the latest of it, which alone may be noted.
        until_ms = entry.after(run_before(of, run_ms, now_ms + AHEAD_MS + MORE_MS), zone) or 0
        latest = max([min(latest, run_before(of, run_ms, now_ms)), *(at_ms for at_ms in sent if at_ms <= until_ms)])
        while (at_ms := entry.after(int(latest), zone)) is not None and at_ms in sent:
            latest = at_ms
        return latest

    def _disarm(self, token: int, entries: Mapping[str, Entry], records: Mapping[str, Any], off: Iterable[str]) -> None:
        """Removes the waiting runs of entries that are changed, paused or gone."""
        by_queue = defaultdict[tuple[str, Any], list[str]](list)
        off = set(off)
        for name, record in records.items():
            if record["digest"] and not (name in entries and _is_as_armed(record, entries[name])):
                for queue in record["queues"]:
                    by_queue[queue, PAUSED if name in off else CHANGED].append(name)
        for (queue, state), names in by_queue.items():
            for part in pages(names, MAX_OFFERS):
                self._periodic.disarm(queue, part, token, state)

    def _note_rows(self, records: Mapping[str, Any], known: Mapping[str, list[ArmedNote]]) -> None:
        """Notes which row each name is, and which runs under the name are none of its own."""
        before = self._rows
        self._rows = {name: (record.get("row"), record.get("since", 0)) for name, record in records.items()}
        for name, entry in self._found.entries.items():
            since_ms = self._rows.get(name, (None, 0))[1]
            # The runs of an entry that is off were noted by the process that saw it go off.
            is_noted = not entry.is_on and before.get(name, (None, 0))[0] != entry.row
            if is_noted or _is_another(records.get(name, {}), entry):
                since_ms = max((note.latest_ms for note in known.get(name, ())), default=0)
            self._rows[name] = entry.row, since_ms

    def _begin(self, entry: Entry, known: list[ArmedNote], now_ms: int) -> float:
        """Returns after which time an entry has to be armed."""
        since_ms = self._rows[entry.name][1]
        for note in known:
            if note.latest_ms > since_ms and note.digest != PAUSED and entry.ends_with(note.latest_ms):
                return inf
        # The notes of queues that the entry has left stay as they were: the latest one says how it is.
        note = max(known, key=attrgetter("latest_ms"), default=ArmedNote())
        if note.latest_ms and note.digest != PAUSED and not entry.one_off:
            return note.latest_ms
        # A run that was missed while the entry was paused, or unknown, is none.
        if entry.start_ms is not None and entry.last_ms is None and note.latest_ms <= since_ms:
            self._unstarted.add(entry.name)
            return max(entry.start_ms, since_ms + 1)
        return max(now_ms, since_ms) if known or entry.last_ms is None else min(entry.last_ms, now_ms)

    def _write_idle(self, records: Mapping[str, Any], entries: Mapping[str, Entry]) -> None:
        """Writes down entries of which nothing is armed, so that they are listed."""
        idle: dict[str, dict[str, Any]] = {}
        for name, entry in self._found.entries.items():
            if name not in entries:
                idle[name] = {**self._record(entry), "queues": records.get(name, {}).get("queues", [])}
                idle[name] |= {"digest": "", "is_on": entry.is_on}
        for name, why in self._found.wrong.items():
            idle[name] = {"queues": records.get(name, {}).get("queues", []), "digest": "", "error": why}
        changed = {name: record for name, record in idle.items() if records.get(name) != record}
        if changed:
            self._periodic.write(changed)

    def _arm(self, now_ms: int) -> bool:
        """Arms each entry that has fewer runs ahead than it should have. Returns whether none is left.

        Of many entries it leaves some to the next step, so that the lease does not end meanwhile.
        """
        until_s = monotonic() + _BUSY_S
        for number, part in enumerate(pages(self._due(now_ms), MAX_OFFERS)):
            if not number:
                self._periodic.note_armed(now_ms)
            self._write(part)
            by_queue = defaultdict[str, list[tuple[Run, int]]](list)
            for entry, at_ms, messages in part:
                for queue, offer, expire_ms in messages:
                    by_queue[queue].append((Run(entry.name, entry.digest, at_ms, offer), expire_ms))
            for queue, runs in by_queue.items():
                for page in pages(runs, MAX_OFFERS, MAX_BYTES, lambda run: run[0].offer.size):
                    self._arm_page(queue, page)
            for entry, at_ms, _ in part:
                self._latest[entry.name] = inf if entry.one_off else at_ms
                self._unstarted.discard(entry.name)
                self._ahead.pop(entry.name, None)
            if monotonic() > until_s:
                return False
        return True

    def _arm_page(self, queue: str, page: list[tuple[Run, int]]) -> None:
        token = self._token or 0
        words = self._periodic.arm(queue, token, [run for run, _ in page], page[0][1])
        if "changed" in words:  # such as after an attempt that ended before its record was written
            names = {run.entry for (run, _), word in zip(page, words, strict=True) if word == "changed"}
            self._periodic.disarm(queue, names, token)
            raise Superseded(token)

    def _due(self, now_ms: int) -> Iterator[_Due]:
        """Yields the runs that are to be armed, those of an entry in order."""
        known: dict[Any, list[tuple[int, int | None]]] = {}
        for name, latest in list(self._latest.items()):
            is_new = name in self._unstarted or name in self._ahead
            is_armed = latest == inf or (latest > now_ms + AHEAD_MS and not is_new)
            if is_armed or self._failures.get(name, ("", 0.0))[1] > monotonic():
                continue
            entry = self._found.entries[name]
            try:
                alike = entry.timing and (*entry.timing, latest, name in self._unstarted, name in self._ahead)
                times = known[alike] if alike in known else self._times(entry, int(latest), now_ms)
                if alike:
                    known[alike] = times
                made = [_Due(entry, at_ms, self._messages.of(entry, at_ms, after)) for at_ms, after in times]
            except AWAY:  # no entry is to blame
                raise
            except Exception as error:  # of the entry's arguments, its routers or its class of schedules
                self._note_failure(name, error)
                continue
            if not made:
                self._latest[name] = inf
            yield from made

    def _times(self, entry: Entry, latest: int, now_ms: int) -> list[tuple[int, int | None]]:
        """Returns the times of the runs to arm, each with that of the run after it, if the message expires then."""
        zone = self._app.timezone
        times: list[int] = []
        if entry.name in self._unstarted:  # the first run is at the start, as with beat
            times.append(latest)
        if latest < now_ms:
            most = MOST_MISSED if entry.missed == "all" else 1
            times += missed_runs(entry.schedule, latest, now_ms, zone, most)
            latest = times[-1] if times else latest
            times = [] if entry.missed == "skip" else times[-most:]
        if latest <= now_ms + AHEAD_MS or entry.name in self._ahead:
            until_ms = now_ms + AHEAD_MS + MORE_MS
            for at_ms in islice(runs_after(entry.schedule, latest, zone), _MOST_RUNS):
                times.append(at_ms)
                if at_ms > until_ms:
                    break
        times = [at_ms for at_ms in times if (entry.start_ms or 0) <= at_ms < (entry.end_ms or inf)]
        times = times[:1] if entry.one_off else times
        if entry.options.get("expires") != "next":
            return [(at_ms, None) for at_ms in times]
        return [(at_ms, entry.after(at_ms, self._app.timezone)) for at_ms in times]

    def _note_failure(self, name: str, error: Exception) -> None:
        said = f"{type(error).__name__}: {error}"
        if self._failures.get(name, ("", 0.0))[0] != said:
            logger.error("periodic entry %r cannot be sent: %s", name, said)
            record = {**self._record(self._found.entries[name]), "queues": self._queues.get(name, []), "error": said}
            self._periodic.write({name: record})
            self._unwritten.add(name)
        self._failures[name] = said, monotonic() + _RETRY_S

    def _write(self, due: Iterable[_Due]) -> None:
        """Writes down the queues of entries before it arms them, where the removal of an entry looks for its runs."""
        records: dict[str, dict[str, Any]] = {}
        for entry, _, messages in due:
            queues = sorted({message.queue for message in messages} | set(self._queues.get(entry.name, [])))
            if entry.name in self._unwritten or queues != self._queues.get(entry.name):
                records[entry.name] = {**self._record(entry), "queues": queues}
        if records:
            self._periodic.write(records)
            self._unwritten -= records.keys()
            self._queues |= {name: record["queues"] for name, record in records.items()}

    def _run_now(self, run: str, name: str, now_ms: int) -> None:
        """Sends a run that somebody wants now."""
        entry = self._found.entries.get(name)
        if entry is None:
            logger.warning("periodic entry %r is to run now, but the schedule has none of this name", name)
        else:
            try:
                for queue, offer, expire_ms in self._messages.of(entry, now_ms, None, run):
                    page = [offer._replace(due="")]
                    self._store.delivery.put(queue, PageId(run, 1), page, expire_ms)
            except AWAY:  # no entry is to blame
                raise
            except Exception as error:  # as in ``_due``
                logger.error("periodic entry %r cannot run now: %s: %s", name, type(error).__name__, error)
        self._periodic.end_request(run)

    def _record(self, entry: Entry) -> dict[str, Any]:
        """Returns what is written down of an entry, for lists; no arguments, which may be secret."""
        row, since_ms = self._rows[entry.name]
        return {
            "digest": entry.digest,
            "task": entry.task,
            "schedule": in_words(entry.schedule),
            "missed": entry.missed,
            "is_on": True,
            **({} if row is None else {"row": row, "since": since_ms}),
        }


def _is_back(wishes: Wishes, now_ms: float) -> bool:
    """Whether Redis's clock has gone back since something was armed, by more than is armed ahead."""
    return wishes.armed_ms > now_ms + AHEAD_MS


def _is_as_armed(record: Mapping[str, Any], entry: Entry) -> bool:
    return bool(record["digest"] == entry.digest) and not _is_another(record, entry)


def _is_another(record: Mapping[str, Any], entry: Entry) -> bool:
    """Whether an entry is another row than that which had its name before."""
    return None not in (record.get("row"), entry.row) and record["row"] != entry.row
