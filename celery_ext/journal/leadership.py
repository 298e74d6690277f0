"""Which promoter leads: a fencing token of the journal, heartbeats, and the notice of a loss of Redis."""

import logging
from collections.abc import Collection, Iterable, Mapping
from time import monotonic
from uuid import uuid4

from kombu.log import get_logger

from celery_ext.journal.facts import LeadingPromoter, Watermarks
from celery_ext.journal.promotion import ALL, Election
from celery_ext.journal.store import JournaledStore
from kombu_delayq.text import as_text

logger = get_logger(__name__)

#: Words for data that are lost: the marker is gone, or is of an older state of Redis.
LOST = ("lost", "behind")
#: What the log says of it.
HOW = {"lost": "is empty", "behind": "was set back to an older state", "ahead": "had lost its data before"}
#: About how often the promoter heartbeats and notes the watermark, in s. It is less if ``lease_ttl`` is short.
HEARTBEAT_S = 1.0
#: How often the log says that a loss is still to be restored, in s.
REMIND_S = 300.0
#: How often a promoter tries to be elected while others change the markers, or the journal.
TRIES = 10


class NotLeading(Exception):
    """Another promoter was elected, or Redis is not what it was."""


class PromoterLeadership:
    """Elects this process as the promoter that leads, and sends its heartbeats.

    The lease in Redis says who may try. The journal gives each leader a fencing token, and Redis refuses what comes
    with an earlier one, because a process that stands still may go on after its lease has ended.

    A heartbeat is a number. The journal has it and the markers in Redis have it, and the leader raises both about once
    a second, the journal's first. If a marker is missing, or two heartbeats behind, Redis has lost the data beside it.
    Then the epoch ends, and its watermarks are kept. The markers of the next epoch are written first: if the leader
    dies in between, they are ahead of the journal, and the next leader ends the epoch.

    The journal knows who leads, and behind which data of Redis. Where these are, a later promoter goes on: also after a
    failover, as the marker is copied with them. With any other data it leads only if that Redis has lost its own, or
    once nobody else has been heard for ``ALIVE_S``: otherwise two Redis with one journal would end epochs in turn.

    On a plain server there is one marker, that of ``ALL``. In a cluster each queue has its own beside its data, and the
    journal knows which queues have one, so that a queue loses its data alone. A queue that got rows since the last
    heartbeat has none yet: it is lost if anything else is. So the marker of ``ALL`` is written last there.

    Args:
        store: The store, with connections of its own.
        name: Name of the process, which no other has.
        level: At which a loss is logged.

    Attributes:
        journal_id: Id of the journal.
        token: The fencing token.
        epoch: Number of the epoch.
        groups: Behind whose markers it leads: ``ALL``, and in a cluster queues.
        moved_to_ms: The latest watermark that is noted, ms since the epoch; 0 before the first heartbeat.
        seen: The latest watermarks, which may not be noted yet.
        unverified: By slot group, the server that has started, or become the primary, since its data were compared with
            the journal.
        written_until: Number of the last row when this was noticed.
    """

    def __init__(self, store: JournaledStore, name: str, level: int = logging.ERROR) -> None:
        self._store = store
        self._name = name
        self._level = level
        self._heartbeat = 0
        self._next_heartbeat = 0.0
        self._remind_at = 0.0
        self.heartbeat_s = min(HEARTBEAT_S, store.options.lease_ttl / 3)
        self.journal_id = ""
        self.token = 0
        self.epoch = 0
        self.groups: set[str] = set()
        self.moved_to_ms = 0.0
        self.seen = Watermarks()
        self.unverified: Mapping[str, str] = {}
        self.written_until = 0
        self._compared: dict[str, str] = {}

    @property
    def wait_s(self) -> float:
        """Time until the next heartbeat, s."""
        return max(self._next_heartbeat - monotonic(), 0.0)

    def begin(self) -> None:
        """Lets this process lead, and begins a new epoch if Redis has lost data.

        Raises:
            NotLeading: Redis belongs to another journal, the journal is led from another Redis, or other promoters are
                faster.
        """
        journal = self._store.journal
        self.journal_id = journal.id
        known, least, seen = journal.epoch(), int(self._store.now_ms()), dict[str, Election]()
        for _ in range(TRIES):
            self.token = journal.next_token(least)
            self.epoch, self._heartbeat, led = journal.epoch(), journal.heartbeat(), journal.leader()
            marked = journal.marked()
            self.groups = {ALL, *map(self._store.promotion.group_of, marked | self._offered())}
            found = self._elect(self.groups, self.epoch)
            least = max(one.token for one in found.values()) + 1
            ahead = {group: one for group, one in found.items() if one.word == "ahead"}
            may_lead = ahead == seen or not ahead  # else somebody has promoted since the journal was read
            own = self._take_lead(found, led) if may_lead else None
            if own and ahead:
                self._catch_up(ahead)
            elif own and self._begin_anew(found, marked) and journal.lead(own._replace(redis=self._data()), own):
                if new := self.groups - marked - {ALL}:
                    journal.note_marked(new)
                for queue in self.groups - {ALL}:  # the slot with their names may have been lost as well
                    self._store.queues.know(queue)
                self._next_heartbeat = 0.0
                if self.epoch != known:  # the log has just said so
                    self._remind_at = monotonic() + REMIND_S
                return
            seen = ahead
        raise NotLeading("superseded")

    def keep(self) -> None:
        """Sends a heartbeat, if it is time, and notes up to where Redis has delivered.

        Raises:
            NotLeading: This process leads no more.
        """
        if monotonic() < self._next_heartbeat:
            return
        store, journal = self._store, self._store.journal
        names, self.seen, unverified = self._look(store)
        self._note(unverified)
        heartbeat = journal.next_heartbeat(self.token, self._heartbeat)
        if heartbeat is None:
            raise NotLeading("superseded")
        journal.set_watermarks(self.seen.moved_to_ms, self.seen.lagging, sound=not self.unverified)
        self._heartbeat, self.moved_to_ms = heartbeat, self.seen.moved_to_ms
        self._next_heartbeat = monotonic() + self.heartbeat_s
        self._remind()
        if store.keeps_all:
            for name in names:  # publishers give Redis messages that nobody promotes
                self.enter(name)

    def look_on(self, store: JournaledStore) -> None:
        """Reads up to where Redis has delivered, while the database is away; see ``seen``.

        Raises:
            NotLeading: This process leads no more, or Redis has lost data.
        """
        _, seen, unverified = self._look(store)
        if not unverified:  # what that has lost and was due would count as delivered
            self.seen = seen

    def _look(self, store: JournaledStore) -> tuple[list[str], Watermarks, dict[str, str]]:
        """Sends a heartbeat to Redis. Returns the names of all queues, the watermarks, and servers to be compared."""
        # The heads are read before the markers: if these are sound then, they were those of a sound Redis.
        names = [as_text(name) for name in store.client.smembers(store.keys.queues)]
        heads = store.delivery.heads(names)
        found = store.promotion.journal_heartbeat(
            self.journal_id, self.token, self._heartbeat, sorted(self.groups), self._compared
        )
        _refuse({one.word for one in found.values()}, "other", "superseded", *LOST)
        lagging: dict[str, float] = {}
        for form, due_ms in heads.due_ms.items():
            if due_ms <= heads.now_ms:
                lagging[form.queue] = min(due_ms, lagging.get(form.queue, due_ms))
        return (
            names,
            Watermarks(heads.now_ms, lagging),
            {group: one.server for group, one in found.items() if one.server},
        )

    def compared(self, servers: Mapping[str, str]) -> None:
        """Notes that all messages of some servers were compared with the journal; the next heartbeat tells Redis.

        Args:
            servers: As ``unverified`` was when it began.
        """
        self._compared |= servers
        self._next_heartbeat = 0.0

    def enter(self, queue: str) -> bool:
        """Begins to lead at a queue, where that is needed. Returns whether its rows have to be read again.

        Rows of it that were read before may be claimed.

        Raises:
            NotLeading: This process leads no more, or the queue has lost its data.
        """
        group, journal = self._store.promotion.group_of(queue), self._store.journal
        if group in self.groups:
            return False
        word = self._elect([group], self.epoch)[group].word
        if word in LOST and group not in journal.marked():
            word = self._elect([group], self.epoch, anew=True)[group].word
        if word in ("elected", "ahead"):  # before anything is pushed, so that the next leader looks at it
            journal.note_marked([group])
        if word != "elected":
            raise NotLeading(word)
        self.groups.add(group)
        return True

    def _offered(self) -> set[str]:
        if self._store.keys.groups is None:  # all have one marker
            return set()
        return {queue for queue, size in self._store.journal.sizes().items() if size.offered}

    def _elect(self, groups: Iterable[str], epoch: int, *, anew: bool = False) -> dict[str, Election]:
        journal = self._store.journal
        found = self._store.promotion.elect(
            self.journal_id, self.token, epoch, self._heartbeat, sorted(groups), journal.guard, anew=anew
        )
        _refuse({one.word for one in found.values()}, "other")
        return found

    def _take_lead(self, found: Mapping[str, Election], led: LeadingPromoter | None) -> LeadingPromoter | None:
        """Notes that this process leads; None if another was faster.

        Raises NotLeading if that has other data of Redis.
        """
        if any(one.word == "superseded" for one in found.values()):
            return None
        promotion = self._store.promotion
        own = LeadingPromoter(self.token, self._name, self._data(), promotion.server(), promotion.place())
        goes_on = led is None or own.has_place_of(led) or (own.redis == led.redis and found[ALL].word not in LOST)
        if led is not None and led.is_alive and not goes_on:
            raise NotLeading("elsewhere")
        return own if self._store.journal.lead(own, led) else None

    def _data(self) -> str:
        marker = self._store.promotion.marker()
        return marker.redis if marker else ""

    def _begin_anew(self, found: Mapping[str, Election], marked: Collection[str]) -> bool:
        """Writes markers that are missing or behind, beside lost data for the next epoch. Returns whether it leads."""
        gone = {group for group, one in found.items() if one.word in LOST}
        if any(one.word != "elected" for group, one in found.items() if group not in gone):
            return False
        known = {*marked} if (self.epoch, self._heartbeat) == (1, 0) else {ALL, *marked}  # a new journal has no marker
        lost = set() if gone.isdisjoint(known) else self._beside_data(gone)
        if lost:
            if not self._is_elected_anew(lost, self.epoch + 1) or not self._end_epoch(lost, found[min(lost)].word):
                return False
            gone.add(ALL)  # in a cluster its marker is still of the epoch that has ended
        return self._is_elected_anew(gone - lost, self.epoch)

    def _is_elected_anew(self, groups: Collection[str], epoch: int) -> bool:
        return all(one.word == "elected" for one in self._elect(groups, epoch, anew=True).values())

    def _beside_data(self, groups: Collection[str]) -> set[str]:
        """Returns those that have messages beside their markers: where queues have their own, all but ``ALL``."""
        return set(groups) if self._store.keys.groups is None else set(groups) - {ALL}

    def _catch_up(self, ahead: Mapping[str, Election]) -> None:
        """Lets the journal go on where markers are."""
        ended = [group for group, one in ahead.items() if one.epoch > self.epoch]
        if ended:  # a leader noticed the loss, and died before it told the journal
            self._end_epoch(self._beside_data(ended) or {ALL}, "ahead")  # nobody knows which, so all are compared
            return
        heartbeat = max(one.heartbeat for one in ahead.values())
        logger.warning(
            "the journal's database was set back: its heartbeat is %d, that of Redis is %d. Messages that were "
            "added or cancelled in between may be missing, or come again",
            self._heartbeat,
            heartbeat,
        )
        self._store.journal.catch_up(heartbeat)

    def _end_epoch(self, lost: Collection[str], word: str) -> bool:
        """Ends the epoch, as data are lost beside markers. Returns False if another has, and gone on."""
        queues = None if ALL in lost else lost
        if self._store.journal.end_epoch(self._store.now_ms(), self.epoch, queues) != self.epoch + 1:
            return False
        self.epoch += 1
        what = f"{HOW[word]}, for {len(lost)} queues such as {min(lost)!r}" if queues else HOW[word]
        logger.log(
            self._level,
            "Redis has lost its data: it %s. `delayq journal restore` puts back %s",
            what,
            restorable(self._store),
        )
        return True

    def _note(self, unverified: Mapping[str, str]) -> None:
        if unverified and unverified != self.unverified:
            self.written_until = self._store.journal.last_number()
        self.unverified = unverified

    def _remind(self) -> None:
        if monotonic() < self._remind_at:
            return
        self._remind_at = monotonic() + REMIND_S
        if self._store.journal.has_lost():
            logger.warning("what Redis has lost is not restored yet: run `delayq journal restore`")


def restorable(store: JournaledStore) -> str:
    """Returns in words what of a lost Redis the journal has."""
    if store.keeps_all:
        return "what was due later"
    return "what it had from the journal; as journal is 'far', what was published into Redis alone is lost"


def notice(store: JournaledStore) -> None:
    """Notes that Redis has lost its data. A promoter that leads is elected anew after that.

    Raises:
        NotLeading: As of ``PromoterLeadership.begin``.
    """
    PromoterLeadership(store, f"restore {uuid4().hex[:8]}", logging.WARNING).begin()  # the caller restores it


def _refuse(words: Collection[str], *refused: str) -> None:
    """Raises NotLeading with the first of the refused words that a marker said."""
    for word in refused:
        if word in words:
            raise NotLeading(word)
