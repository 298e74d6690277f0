"""The office of a promoter: taken for a term, kept by beats, and the place where a loss of Redis is noticed."""

import logging
from collections.abc import Mapping
from time import monotonic

from kombu.log import get_logger

from celery_ext.journal.promotion.at_queues import AtQueues, OutOfOffice, restorable
from celery_ext.journal.store import JournaledStore
from kombu_delayq.connection.text import as_text
from kombu_delayq.store.upkeep.promotion_types import Office as Answer

logger = get_logger(__name__)

#: About how often the promoter beats and notes the watermark, in s. It is less if ``lease_ttl`` is short.
BEAT_S = 1.0
#: Stands for all queues, where Redis has no hash slots.
ALL = ""
#: How often the log says that a loss is still to be restored, in s.
REMIND_S = 300.0


class Office:
    """Takes office in Redis and keeps it.

    The marker in Redis and the journal have a beat each, which rise together about every second, the journal's first.
    So a marker that is two beats behind, or missing, belongs to a Redis that has lost data: the epoch ends, and the
    watermarks of then stay with it. The marker is written first: a promoter that dies in between leaves a marker ahead
    of the journal, and the next one ends the epoch.

    Where Redis has hash slots, the marker of all has the term alone. Markers of the queues tell which have lost data.

    Args:
        store: The store, with connections of its own.
        level: At which a loss is logged.

    Attributes:
        term: Number of the term, as Redis knows it.
        epoch: Number of the epoch.
        moved_to_ms: The watermark that was noted last, ms since the epoch; 0 before the first beat.
        unsure: By queue, where Redis has hash slots, else for ``ALL``: the server that has started, or become the
            primary, since its data were compared with the journal.
        written_until: Number of the last row when this was noticed.
        at_queues: The office at single queues, where Redis has hash slots; else None.
    """

    def __init__(self, store: JournaledStore, level: int = logging.ERROR) -> None:
        self._store = store
        self._level = level
        self.at_queues = AtQueues(store, level) if store.keys.slots else None
        self._beat = 0
        self._next_beat = 0.0
        self._remind_at = 0.0
        self.beat_s = min(BEAT_S, store.options.lease_ttl / 3)
        self.term = 0
        self.epoch = 0
        self.moved_to_ms = 0.0
        self.unsure: Mapping[str, str] = {}
        self.written_until = 0
        self._compared: dict[str, str] = {}

    @property
    def wait_s(self) -> float:
        """Time until the next beat, s."""
        return max(self._next_beat - monotonic(), 0.0)

    def take(self) -> None:
        """Takes office, and begins a new epoch if Redis has lost data.

        Raises:
            OutOfOffice: Redis belongs to another journal, or other promoters are faster.
        """
        journal, promotion = self._store.journal, self._store.promotion
        seen: Answer | None = None
        for _ in range(10):
            epoch, beat = journal.epoch(), journal.beat()
            office = promotion.take_office(journal.id, epoch, beat, journal.guard)
            if office.word == "lost" and (epoch, beat) == (1, 0):  # a journal that nobody has promoted yet
                office = promotion.begin_epoch(journal.id, epoch, beat, guard=journal.guard)
            elif office.word in ("lost", "behind") and self.at_queues is not None:
                office, epoch = self._suspect(self.at_queues, epoch, beat, office)
            elif office.word in ("lost", "behind"):
                office = self._lose(epoch, beat, office)
                epoch += 1
            elif office.word == "other":
                raise OutOfOffice("other")
            elif office.word == "ahead" and office == seen:  # no promoter has gone on since the journal was read
                self._catch_up(epoch, beat, office)
            if office.word == "taken":
                if self.at_queues is not None:
                    epoch = self.at_queues.take(office.term, epoch, beat)
                self.term, self.epoch, self._beat, self._next_beat = office.term, epoch, beat, 0.0
                return
            seen = office
        raise OutOfOffice("superseded")

    def keep(self) -> None:
        """Beats, if it is time, and notes up to where Redis has delivered.

        Raises:
            OutOfOffice: This promoter is not in office any more.
        """
        if monotonic() < self._next_beat:
            return
        store, journal = self._store, self._store.journal
        # The heads are read before the marker: if the marker is sound then, they were those of a sound Redis.
        names = [as_text(name) for name in store.client.smembers(store.keys.queues)]
        heads = store.delivery.heads(names)
        pulse = store.promotion.pulse(journal.id, self.term, self._beat, self._compared.get(ALL, ""))
        if pulse.word != "sound":
            raise OutOfOffice(pulse.word)
        servers = {ALL: pulse.server}
        if self.at_queues is not None:
            servers = self.at_queues.keep(self.term, self._beat, self._compared)
        self._note({queue: server for queue, server in servers.items() if server})
        lagging: dict[str, float] = {}
        for form, due_ms in heads.due_ms.items():
            if due_ms <= heads.now_ms:
                lagging[form.queue] = min(due_ms, lagging.get(form.queue, due_ms))
        beat = journal.next_beat(self._beat)
        if beat is None:
            raise OutOfOffice("superseded")
        journal.set_watermarks(heads.now_ms, lagging, sound=not self.unsure)
        self._beat, self.moved_to_ms = beat, heads.now_ms
        self._next_beat = monotonic() + self.beat_s
        self._remind()
        if store.options.journal == "all":
            for name in names:  # publishers give Redis messages that no promoter brings
                self.enter(name)

    def compared(self, queues: Mapping[str, str]) -> None:
        """Notes queues of ``unsure`` whose messages were all compared with the journal, for the next beat to confirm.

        Args:
            queues: As ``unsure`` was when it began.
        """
        self._compared |= queues
        self._next_beat = 0.0

    def _note(self, unsure: Mapping[str, str]) -> None:
        if unsure and unsure != self.unsure:
            self.written_until = self._store.journal.last_number()
        self.unsure = unsure

    def enter(self, queue: str) -> bool:
        """Takes office at a queue, where that is needed. Returns whether its rows have to be read again.

        Raises:
            OutOfOffice: This promoter is not in office any more, or the queue has lost its data.
        """
        if self.at_queues is None or queue in self.at_queues.taken:
            return False
        self.at_queues.enter(queue, self.term, self.epoch, self._beat)
        return True

    def _suspect(self, at_queues: AtQueues, epoch: int, beat: int, seen: Answer) -> tuple[Answer, int]:
        """Looks for lost queues, as the marker of all is lost. Returns the answer of Redis, and the epoch.

        Meanwhile the marker of all has an earlier epoch. So if this promoter dies, the next one looks again.
        """
        journal, promotion = self._store.journal, self._store.promotion
        office = promotion.begin_epoch(journal.id, epoch - 1, beat, seen.term, journal.guard)
        if office.word != "taken":
            return office, epoch
        epoch = at_queues.take(office.term, epoch, beat, suspect=True)
        return promotion.begin_epoch(journal.id, epoch, beat, office.term, journal.guard), epoch

    def _lose(self, epoch: int, beat: int, seen: Answer) -> Answer:
        """Begins the epoch after a loss. Returns the answer of Redis."""
        journal = self._store.journal
        office = self._store.promotion.begin_epoch(journal.id, epoch + 1, beat, seen.term, journal.guard)
        if office.word == "taken":
            self._end(epoch, office.now_ms, "is empty" if seen.word == "lost" else "was set back to an older state")
        return office

    def _catch_up(self, epoch: int, beat: int, marker: Answer) -> None:
        """Brings the journal to where the marker is."""
        if marker.epoch > epoch:  # who noticed the loss has died before it could note it
            self._end(epoch, self._store.now_ms(), "had lost its data before")
        elif marker.beat > beat:
            logger.warning(
                "the journal's database was set back: its beat is %d, that of Redis is %d. Messages that were added or "
                "cancelled in between may be missing, or come again",
                *(beat, marker.beat),
            )
            self._store.journal.catch_up(marker.beat)

    def _end(self, epoch: int, now_ms: float, how: str) -> None:
        self._store.journal.end_epoch(now_ms, epoch)
        if self._store.options.journal_restore != "auto":
            self._remind_at = monotonic() + REMIND_S
        logger.log(
            self._level,
            "Redis has lost its data: it %s. `delayq journal restore` puts back %s",
            *(how, restorable(self._store)),
        )

    def _remind(self) -> None:
        if monotonic() < self._remind_at:
            return
        self._remind_at = monotonic() + REMIND_S
        journal = self._store.journal
        if journal.unrestored() or journal.missing_ms():
            logger.warning("what Redis has lost is not restored yet: run `delayq journal restore`")


def notice(store: JournaledStore) -> None:
    """Notes that Redis has lost its data, before a promoter does, which takes office again then.

    Raises:
        OutOfOffice: Redis belongs to another journal, or promoters are faster.
    """
    Office(store, logging.WARNING).take()  # the caller restores it
