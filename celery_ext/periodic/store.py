"""The store's operations on periodic entries: who arms their runs, what is armed, and what people want of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple

from celery_ext.periodic.keys import PeriodicKeys
from kombu_delayq.message import to_json
from kombu_delayq.redis import Args, HashKey, Key, Rows, Stored, checked, operation
from kombu_delayq.store import Into, Offer, QueueRegistry, StoreClient, StorePart, lead, release
from kombu_delayq.text import as_bytes, as_text

#: For how long a process that arms keeps its lease without renewing it, in ms. Meanwhile nobody is missed: the runs of
#: the next minute are armed.
LEASE_MS = 10_000
#: Digests of entries without armed runs.
CHANGED, PAUSED = "changed", "paused"

#: What processes see of others, beside ``schedule`` and ``token`` in the same HASH.
OTHER_SCHEDULE, STOCK_BEAT = "other_schedule", "stock_beat"


class Superseded(Exception):
    """Another process arms now, or somebody has paused an entry: what is known of the entries is out of date.

    Attributes:
        token: The token that Redis has.
    """

    def __init__(self, token: int) -> None:
        super().__init__(f"superseded by {token}")
        self.token = token


class Run(NamedTuple):
    """A run of an entry, with its message.

    Attributes:
        entry: Name of the entry.
        digest: Of what the entry says.
        at_ms: Time of the run, whole ms since the epoch.
        offer: The message.
    """

    entry: str
    digest: str
    at_ms: int
    offer: Offer


@dataclass(frozen=True)
class ArmedNote:
    """What is armed of an entry in one queue.

    Attributes:
        digest: Of what the entry said when it was armed, or ``CHANGED`` or ``PAUSED``.
        last_ms: Time of the last run that is not armed any more, ms since the epoch; 0 for none.
        runs: Time and id of each armed run, in order; some may have begun in the last minute.
    """

    digest: str = CHANGED
    last_ms: int = 0
    runs: tuple[tuple[int, str], ...] = ()

    @classmethod
    def read(cls, raw: bytes | str) -> "ArmedNote":
        """Reads a note as the scripts write it."""
        digest, last, *runs = as_text(raw).split(" ")
        return cls(digest, int(last), tuple(zip(map(int, runs[::2]), runs[1::2], strict=True)))

    @property
    def latest_ms(self) -> int:
        """Time of the latest run, armed or begun; 0 for none."""
        return self.runs[-1][0] if self.runs else self.last_ms


class Wishes(NamedTuple):
    """What people and other processes want of the process that arms.

    Attributes:
        schedule: Hash of the schedule that was noted last; None for none.
        began_ms: When the process began that has noted it, ms since the epoch; higher with each that begins.
        armed_ms: When something was armed last, by Redis's clock, ms since the epoch.
        token: Token of the process that armed last; None since somebody wants that all is looked at anew.
        paused: Names of the entries that are paused.
        requests: Entries that are to run now, by the ids of their runs.
    """

    schedule: str | None
    began_ms: int
    armed_ms: int
    token: int | None
    paused: frozenset[str]
    requests: Mapping[str, str]


@operation()
def arm(
    *, periodic: HashKey, into: Into, expire: int, token: int, runs: Rows[tuple[str, str, int, Key, str, int, Key]]
) -> list[str]: ...
@operation()
def disarm(
    *, periodic: HashKey, keys: Stored, counts: Key, token: int | None, state: str, entries: Args[str]
) -> tuple[str, int]: ...


class PeriodicStore(StorePart):
    """Arms periodic entries. Of each entry, each run is stored once."""

    def __init__(self, client: StoreClient, registry: QueueRegistry) -> None:
        super().__init__(client, registry)
        self._own = PeriodicKeys(client.keys)

    def note_schedule(self, schedule: str, began_ms: int) -> None:
        """Notes the hash of a process's schedule, and when it began. One with another hash leaves arming to it."""
        self._client.ask("HSET", self._own.state, "schedule", schedule, "began", began_ms)

    def note_armed(self, now_ms: int) -> None:
        """Notes by which time of Redis's clock something is armed."""
        self._client.ask("HSET", self._own.state, "armed", now_ms)

    def wishes(self) -> Wishes:
        """Returns what is wanted of the process that arms; one round trip."""
        keys = self._own
        commands: list[tuple[Any, ...]] = [("HMGET", keys.state, "schedule", "began", "armed", "token")]
        commands += [("SMEMBERS", keys.paused), ("HGETALL", keys.requests)]
        (schedule, began, armed, token), paused, requests = checked(self._client.replies(commands))
        return Wishes(
            None if schedule is None else as_text(schedule),
            int(began or 0),
            int(armed or 0),
            None if token is None else int(token),
            frozenset(map(as_text, paused)),
            _texts(requests),
        )

    def note_sighting(self, what: str, now_ms: float) -> None:
        """Notes that a process has seen ``OTHER_SCHEDULE`` or ``STOCK_BEAT``."""
        self._client.ask("HSET", self._own.state, what, int(now_ms))

    def sightings(self) -> dict[str, int]:
        """Returns when ``OTHER_SCHEDULE`` and ``STOCK_BEAT`` were last seen, ms since the epoch."""
        found = _texts(self._client.ask("HGETALL", self._own.state))
        return {what: int(found[what]) for what in (OTHER_SCHEDULE, STOCK_BEAT) if what in found}

    def take_lease(self, name: str) -> bool:
        """Takes or renews the lease of the process that arms, if it is free. Returns whether the caller holds it."""
        leases = [self._own.lease]
        _, rank, _ = self._client.run(lead(queues=self._keys.queues, leases=leases, name=name, ttl=LEASE_MS))
        return rank == 1

    def end_lease(self, name: str) -> None:
        """Gives the lease back, if it is held under this name."""
        self._client.run(release(leases=[self._own.lease], name=name))

    def leader(self) -> str | None:
        """Returns the name of the process that arms."""
        name = self._client.ask("GET", self._own.lease)
        return None if name is None else as_text(name)

    def new_token(self, now_ms: float, beyond: int = 0) -> int:
        """Returns a token that is higher than each before it. Only who holds the lease calls it.

        Args:
            now_ms: Redis's clock. It keeps tokens growing when Redis has lost its data.
            beyond: A token that must be surpassed, too.
        """
        state = self._own.state
        before = int(self._client.ask("HGET", state, "token") or 0)
        token = max(before + 1, beyond + 1, int(now_ms))
        self._client.ask("HSET", state, "token", token)
        return token

    def arm(self, queue: str, token: int, runs: Sequence[Run], expire_ms: int = 0) -> list[str]:
        """Stores runs until they are due; one round trip, two if the queue held no message.

        Args:
            queue: The queue to which the messages go then.
            token: Token of the caller.
            runs: The runs, those of an entry in order. A few hundred at a time keep Redis responsive.
            expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.

        Returns:
            A word for each run: ``armed``; or, with nothing changed, ``repeated`` (a run that is as late or later was
            armed before) or ``changed`` (the entry is armed by another digest).

        Raises:
            Superseded: Nothing was stored.
        """
        periodic, into = self._own.notes(queue), self._client.into(queue)
        rows = ((run.entry, run.digest, run.at_ms, *run.offer) for run in runs)
        word, *words = self._client.run(arm(periodic=periodic, into=into, expire=expire_ms, token=token, runs=rows))
        if word == "superseded":
            raise Superseded(int(words[0]))
        self._registry.note(queue, word)
        return words

    def disarm(
        self,
        queue: str,
        entries: Iterable[str],
        token: int | None,
        state: Literal["changed", "paused", "purged"] = "changed",
    ) -> int:
        """Removes the waiting runs of entries from a queue; one round trip.

        Args:
            queue: The queue.
            entries: Names of the entries.
            token: Token of the caller; None for somebody who does not arm: the process that does looks anew.
            state: For the note, which says that nothing is armed. ``purged`` is ``changed`` after a purge of the queue,
                or when Redis's clock has gone back: no run to come was sent early, all are armed again.

        Returns:
            How many runs were removed. They will never come.

        Raises:
            Superseded: Nothing was removed.
        """
        periodic, keys, counts = self._own.notes(queue), self._client.stored(queue), self._keys.counts(queue)
        call = disarm(periodic=periodic, keys=keys, counts=counts, token=token, state=state, entries=entries)
        word, number = self._client.run(call)
        if word == "superseded":
            raise Superseded(number)
        return number

    def note_purge(self, queue: str) -> None:
        """Notes that a purge has removed the runs that were armed in a queue. The process that arms looks anew."""
        armed = [name for name, note in self.notes([queue])[queue].items() if note.runs]
        if armed:
            self.disarm(queue, armed, None, "purged")
            self._client.ask("HDEL", self._own.state, "token")  # also a full Redis does that

    def notes(self, queues: Iterable[str]) -> dict[str, dict[str, ArmedNote]]:
        """Returns by queue and entry what is armed; one round trip."""
        queues = list(queues)
        found = checked(self._client.replies([("HGETALL", self._own.notes(queue)) for queue in queues]))
        return {
            queue: {name: ArmedNote.read(note) for name, note in _texts(notes).items() if name}
            for queue, notes in zip(queues, found, strict=True)
        }

    def forget(self, entries: Mapping[str, Iterable[str]]) -> None:
        """Forgets entries that are disarmed.

        Args:
            entries: By name, the queues in which they were armed.
        """
        commands: list[tuple[Any, ...]] = [
            ("HDEL", self._own.notes(queue), name) for name, queues in entries.items() for queue in queues
        ]
        of_all = self._own.entries, self._own.outcomes
        self._client.send([*commands, *(("HDEL", key, name) for key in of_all for name in entries)])

    def write(self, records: Mapping[str, Mapping[str, Any]]) -> None:
        """Writes down entries, so that everybody can list them, and can find what is armed of them."""
        pairs = chain.from_iterable((name, to_json(record)) for name, record in records.items())
        self._client.ask("HSET", self._own.entries, *pairs)

    def records(self) -> dict[str, bytes]:
        """Returns the entries that are written down, by name, each as JSON."""
        found = self._client.ask("HGETALL", self._own.entries)
        return {as_text(name): as_bytes(record) for name, record in found.items()}

    def note_outcomes(self, outcomes: Mapping[str, str]) -> None:
        """Notes what became of the latest runs of entries, such as ``SUCCESS``: the state of Celery's results."""
        self._client.ask("HSET", self._own.outcomes, *chain.from_iterable(outcomes.items()))

    def outcomes(self) -> dict[str, str]:
        """Returns what became of the latest runs that have ended, by entry."""
        return _texts(self._client.ask("HGETALL", self._own.outcomes))

    def paused(self) -> frozenset[str]:
        """Returns the names of the entries that are paused."""
        return frozenset(map(as_text, self._client.ask("SMEMBERS", self._own.paused)))

    def pause(self, entries: Iterable[str]) -> None:
        """Notes that entries are paused."""
        self._client.ask("SADD", self._own.paused, *entries)

    def resume(self, entries: Iterable[str]) -> int:
        """Notes that entries are not paused any more. Returns how many were."""
        return int(self._client.ask("SREM", self._own.paused, *entries))

    def request(self, run: str, entry: str) -> None:
        """Asks for a run of an entry now.

        Args:
            run: Id of the run, such as a random UUID.
            entry: Name of the entry.
        """
        self._client.ask("HSET", self._own.requests, run, entry)

    def end_request(self, run: str) -> None:
        """Notes that a run that was asked for is on its way."""
        self._client.ask("HDEL", self._own.requests, run)


def _texts(found: Mapping[Any, Any]) -> dict[str, str]:
    return {as_text(name): as_text(value) for name, value in found.items()}


def note_purge(client: StoreClient, registry: QueueRegistry, queue: str, with_ready: bool) -> int:
    """Is the hook ``purged``; see ``PeriodicStore.note_purge``."""
    PeriodicStore(client, registry).note_purge(queue)
    return 0
