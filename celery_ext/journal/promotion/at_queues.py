"""The office of a promoter at single queues, where Redis has hash slots, and each queue can lose its data by itself."""

from collections.abc import Iterable, Mapping

from kombu.log import get_logger

from celery_ext.journal.store import JournaledStore

logger = get_logger(__name__)

#: Words for a queue whose data are lost: the marker is gone, is of an older state of Redis, or is ahead of the journal,
#: because who noticed the loss has died before the journal knew.
LOST = ("lost", "behind", "ahead")


class OutOfOffice(Exception):
    """Another promoter has taken office, or Redis is not what it was."""


class AtQueues:
    """Takes office at each queue before rows are pushed to it, and notices which queues have lost their data.

    A queue has a marker in its own slot, behind which ``promote`` pushes. The journal knows which queues have one. So a
    queue that the journal knows, and that has no marker or an old one, is lost; the others go on.

    Args:
        store: The store, with connections of its own.
        level: At which a loss is logged.
    """

    def __init__(self, store: JournaledStore, level: int) -> None:
        self._store = store
        self._level = level
        self.taken: set[str] = set()

    def take(self, term: int, epoch: int, beat: int, *, suspect: bool = False) -> int:
        """Takes office at all queues that have rows in Redis. Returns the epoch, a new one after a loss.

        The markers of lost queues are written first, with the next epoch, as the marker of all is elsewhere. Queues
        that got rows since the last beat have no marker yet: if anything is lost, they are taken as lost.

        Args:
            term: The promoter's term.
            epoch: The journal's epoch.
            beat: The journal's beat.
            suspect: Whether the marker of all was lost.

        Raises:
            OutOfOffice: Another promoter has taken office, or a queue belongs to another journal.
        """
        journal, promotion = self._store.journal, self._store.promotion
        marked = journal.marked()
        offered = {queue for queue, size in journal.sizes().items() if size.offered}
        queues = sorted(marked | offered)
        words = promotion.take_queues(journal.id, term, epoch, beat, queues, journal.guard)
        _check(words.values())
        gone = [queue for queue in queues if words[queue] in LOST]
        lost = gone if suspect or marked.intersection(gone) else []
        new = [queue for queue in gone if queue not in lost]
        _check(promotion.take_queues(journal.id, term, epoch, beat, new, journal.guard, anew=True).values())
        if offered - marked:
            journal.note_marked(offered - marked)
        if lost:
            _check(promotion.take_queues(journal.id, term, epoch + 1, beat, lost, journal.guard, anew=True).values())
            if journal.end_epoch(self._store.now_ms(), epoch, lost) != epoch + 1:
                raise OutOfOffice("superseded")
            logger.log(
                self._level,
                "Redis has lost its data: those of %d queues, such as %r. `delayq journal restore` puts back %s",
                *(len(lost), lost[0], restorable(self._store)),
            )
            epoch += 1
        for queue in words:  # the slot with their names may have been lost as well
            self._store.queues.know(queue)
        self.taken = set(words)
        return epoch

    def enter(self, queue: str, term: int, epoch: int, beat: int) -> None:
        """Takes office at a queue. Rows of it that were read before may be claimed, and have to be read again.

        Raises:
            OutOfOffice: Another promoter has taken office, or the queue has lost its data.
        """
        journal, promotion = self._store.journal, self._store.promotion
        word = promotion.take_queues(journal.id, term, epoch, beat, [queue], journal.guard)[queue]
        if word in LOST:
            if queue in journal.marked():
                raise OutOfOffice("lost")
            word = promotion.take_queues(journal.id, term, epoch, beat, [queue], journal.guard, anew=True)[queue]
        _check([word])
        journal.note_marked([queue])  # before anything is pushed, so that its loss is noticed
        self.taken.add(queue)

    def keep(self, term: int, beat: int, compared: Mapping[str, str]) -> dict[str, str]:
        """Beats at all queues. Returns by queue the ``server`` of its pulse.

        Raises:
            OutOfOffice: Another promoter has taken office, or a queue has lost its data.
        """
        promotion = self._store.promotion
        pulses = promotion.pulse_queues(self._store.journal.id, term, beat, sorted(self.taken), compared)
        words = {pulse.word for pulse in pulses.values()}
        _check(words)
        if words.intersection(LOST):
            raise OutOfOffice("lost")
        return {queue: pulse.server for queue, pulse in pulses.items()}


def restorable(store: JournaledStore) -> str:
    """Returns in words what of a lost Redis the journal has."""
    if store.options.journal == "all":
        return "what was due later"
    return "what it had from the journal; as journal is 'far', what was published into Redis alone is lost"


def _check(words: Iterable[str]) -> None:
    found = set(words)
    for word in ("other", "superseded"):
        if word in found:
            raise OutOfOffice(word)
