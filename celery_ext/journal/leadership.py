"""Which promoter leads: a fencing token in Redis, heartbeats, and the notice of a loss of Redis."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic

from kombu.log import get_logger

from celery_ext.journal.store import JournaledStore
from kombu_delayq.message.text import as_text
from kombu_delayq.store.promotion import Election

logger = get_logger(__name__)

#: Words for a queue whose data are lost: the marker is gone, is of an older state of Redis, or is ahead of the journal,
#: because who noticed the loss has died before the journal knew.
LOST = ("lost", "behind", "ahead")
#: About how often the promoter heartbeats and notes the watermark, in s. It is less if ``lease_ttl`` is short.
HEARTBEAT_S = 1.0
#: Stands for all queues, where Redis has no hash slots.
ALL = ""
#: How often the log says that a loss is still to be restored, in s.
REMIND_S = 300.0


class NotLeading(Exception):
    """Another promoter was elected, or Redis is not what it was."""


class LeadershipInQueues:
    """Leads at each queue before rows are pushed to it, and notices which queues have lost their data.

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

    def begin(self, token: int, epoch: int, heartbeat: int, *, suspect: bool = False) -> int:
        """Begins to lead at all queues that have rows in Redis. Returns the epoch, a new one after a loss.

        The markers of lost queues are written first, with the next epoch, as the marker of all is elsewhere. Queues
        that got rows since the last heartbeat have no marker yet: if anything is lost, they are taken as lost.

        Args:
            token: The promoter's token.
            epoch: The journal's epoch.
            heartbeat: The journal's heartbeat.
            suspect: Whether the marker of all was lost.

        Raises:
            NotLeading: Another promoter was elected, or a queue belongs to another journal.
        """
        journal = self._store.journal
        marked = journal.marked()
        offered = {queue for queue, size in journal.sizes().items() if size.offered}
        queues = sorted(marked | offered)
        words = self._elect(token, epoch, heartbeat, queues)
        gone = [queue for queue in queues if words[queue] in LOST]
        lost = gone if suspect or marked.intersection(gone) else []
        new = [queue for queue in gone if queue not in lost]
        self._elect(token, epoch, heartbeat, new, anew=True)
        if offered - marked:
            journal.note_marked(offered - marked)
        if lost:
            self._elect(token, epoch + 1, heartbeat, lost, anew=True)
            if journal.end_epoch(self._store.now_ms(), epoch, lost) != epoch + 1:
                raise NotLeading("superseded")
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

    def enter(self, queue: str, token: int, epoch: int, heartbeat: int) -> None:
        """Begins to lead at a queue. Rows of it that were read before may be claimed, and have to be read again.

        Raises:
            NotLeading: Another promoter was elected, or the queue has lost its data.
        """
        journal = self._store.journal
        if self._elect(token, epoch, heartbeat, [queue])[queue] in LOST:
            if queue in journal.marked():
                raise NotLeading("lost")
            self._elect(token, epoch, heartbeat, [queue], anew=True)
        journal.note_marked([queue])  # before anything is pushed, so that its loss is noticed
        self.taken.add(queue)

    def keep(self, token: int, heartbeat: int, compared: Mapping[str, str]) -> dict[str, str]:
        """Sends a heartbeat to all queues. Returns by queue the ``server`` of its heartbeat.

        Raises:
            NotLeading: Another promoter was elected, or a queue has lost its data.
        """
        promotion = self._store.promotion
        heartbeats = promotion.heartbeat_in_queues(
            self._store.journal.id, token, heartbeat, sorted(self.taken), compared
        )
        words = {one.word for one in heartbeats.values()}
        _check(words)
        if words.intersection(LOST):
            raise NotLeading("lost")
        return {queue: one.server for queue, one in heartbeats.items()}

    def _elect(
        self, token: int, epoch: int, heartbeat: int, queues: Sequence[str], *, anew: bool = False
    ) -> dict[str, str]:
        """Begins to lead at queues; see ``Promotion.elect_in_queues``. Raises NotLeading if another promoter leads."""
        journal = self._store.journal
        words = self._store.promotion.elect_in_queues(
            journal.id, token, epoch, heartbeat, queues, journal.guard, anew=anew
        )
        _check(words.values())
        return words


def restorable(store: JournaledStore) -> str:
    """Returns in words what of a lost Redis the journal has."""
    if store.notes_all:
        return "what was due later"
    return "what it had from the journal; as journal is 'far', what was published into Redis alone is lost"


def _check(words: Iterable[str]) -> None:
    found = set(words)
    for word in ("other", "superseded"):
        if word in found:
            raise NotLeading(word)


class Leadership:
    """Elects this process as the promoter that leads, and sends its heartbeats.

    The lease in Redis says who may try. Redis gives each leader a fencing token, and refuses what comes with an earlier
    one, because a process that stands still may go on after its lease has ended.

    A heartbeat is a number. The journal has it and the marker in Redis has it, and the leader raises both about once a
    second, the journal's first. If the marker is missing, or two heartbeats behind, Redis has lost data. Then the epoch
    ends, and its watermarks are kept. The marker of the next epoch is written first: if the leader dies in between, the
    marker is ahead of the journal, and the next leader ends the epoch.

    Where Redis has hash slots, each queue has a marker of its own, which tells whether that queue has lost data.

    Args:
        store: The store, with connections of its own.
        level: At which a loss is logged.

    Attributes:
        token: The fencing token.
        epoch: Number of the epoch.
        moved_to_ms: The latest watermark, ms since the epoch; 0 before the first heartbeat.
        unverified: By queue, where Redis has hash slots, else for ``ALL``: the server that has started, or become the
            primary, since its data were compared with the journal.
        written_until: Number of the last row when this was noticed.
        in_queues: The same at single queues, where Redis has hash slots; else None.
    """

    def __init__(self, store: JournaledStore, level: int = logging.ERROR) -> None:
        self._store = store
        self._level = level
        self.in_queues = LeadershipInQueues(store, level) if store.keys.slots else None
        self._heartbeat = 0
        self._next_heartbeat = 0.0
        self._remind_at = 0.0
        self.heartbeat_s = min(HEARTBEAT_S, store.options.lease_ttl / 3)
        self.token = 0
        self.epoch = 0
        self.moved_to_ms = 0.0
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
            NotLeading: Redis belongs to another journal, or other promoters are faster.
        """
        journal, promotion = self._store.journal, self._store.promotion
        seen: Election | None = None
        known = journal.epoch()
        for _ in range(10):
            epoch, heartbeat = journal.epoch(), journal.heartbeat()
            answer = promotion.elect_promoter(journal.id, epoch, heartbeat, journal.guard)
            if answer.word == "lost" and (epoch, heartbeat) == (1, 0):  # a journal that nobody has promoted yet
                answer = promotion.begin_epoch(journal.id, epoch, heartbeat, guard=journal.guard)
            elif answer.word in ("lost", "behind") and self.in_queues is not None:
                answer, epoch = self._suspect(self.in_queues, epoch, heartbeat, answer)
            elif answer.word in ("lost", "behind"):
                answer = self._lose(epoch, heartbeat, answer)
                epoch += 1
            elif answer.word == "other":
                raise NotLeading("other")
            elif answer.word == "ahead" and answer == seen:  # nobody has promoted since the journal was read
                self._catch_up(epoch, heartbeat, answer)
            if answer.word == "elected":
                if self.in_queues is not None:
                    epoch = self.in_queues.begin(answer.token, epoch, heartbeat)
                self.token, self.epoch, self._heartbeat, self._next_heartbeat = answer.token, epoch, heartbeat, 0.0
                if epoch != known:  # the log has just said so
                    self._remind_at = monotonic() + REMIND_S
                return
            seen = answer
        raise NotLeading("superseded")

    def keep(self) -> None:
        """Sends a heartbeat, if it is time, and notes up to where Redis has delivered.

        Raises:
            NotLeading: This process leads no more.
        """
        if monotonic() < self._next_heartbeat:
            return
        store, journal = self._store, self._store.journal
        # The heads are read before the marker: if the marker is sound then, they were those of a sound Redis.
        names = [as_text(name) for name in store.client.smembers(store.keys.queues)]
        heads = store.delivery.heads(names)
        seen = store.promotion.journal_heartbeat(journal.id, self.token, self._heartbeat, self._compared.get(ALL, ""))
        if seen.word != "sound":
            raise NotLeading(seen.word)
        servers = {ALL: seen.server}
        if self.in_queues is not None:
            servers = self.in_queues.keep(self.token, self._heartbeat, self._compared)
        self._note({queue: server for queue, server in servers.items() if server})
        lagging: dict[str, float] = {}
        for form, due_ms in heads.due_ms.items():
            if due_ms <= heads.now_ms:
                lagging[form.queue] = min(due_ms, lagging.get(form.queue, due_ms))
        heartbeat = journal.next_heartbeat(self._heartbeat)
        if heartbeat is None:
            raise NotLeading("superseded")
        journal.set_watermarks(heads.now_ms, lagging, sound=not self.unverified)
        self._heartbeat, self.moved_to_ms = heartbeat, heads.now_ms
        self._next_heartbeat = monotonic() + self.heartbeat_s
        self._remind()
        if store.notes_all:
            for name in names:  # publishers give Redis messages that nobody promotes
                self.enter(name)

    def compared(self, queues: Mapping[str, str]) -> None:
        """Notes that all messages of some queues were compared with the journal; the next heartbeat tells Redis.

        Args:
            queues: As ``unverified`` was when it began.
        """
        self._compared |= queues
        self._next_heartbeat = 0.0

    def _note(self, unverified: Mapping[str, str]) -> None:
        if unverified and unverified != self.unverified:
            self.written_until = self._store.journal.last_number()
        self.unverified = unverified

    def enter(self, queue: str) -> bool:
        """Begins to lead at a queue, where that is needed. Returns whether its rows have to be read again.

        Raises:
            NotLeading: This process leads no more, or the queue has lost its data.
        """
        if self.in_queues is None or queue in self.in_queues.taken:
            return False
        self.in_queues.enter(queue, self.token, self.epoch, self._heartbeat)
        return True

    def _suspect(
        self, in_queues: LeadershipInQueues, epoch: int, heartbeat: int, seen: Election
    ) -> tuple[Election, int]:
        """Looks for queues that have lost data, because the marker of all has. Returns Redis's answer, and the epoch.

        Meanwhile the marker of all has an earlier epoch. So if this process dies, the next leader looks again.
        """
        journal, promotion = self._store.journal, self._store.promotion
        answer = promotion.begin_epoch(journal.id, epoch - 1, heartbeat, seen.token, journal.guard)
        if answer.word != "elected":
            return answer, epoch
        epoch = in_queues.begin(answer.token, epoch, heartbeat, suspect=True)
        return promotion.begin_epoch(journal.id, epoch, heartbeat, answer.token, journal.guard), epoch

    def _lose(self, epoch: int, heartbeat: int, seen: Election) -> Election:
        """Begins the epoch after a loss. Returns the answer of Redis."""
        journal = self._store.journal
        answer = self._store.promotion.begin_epoch(journal.id, epoch + 1, heartbeat, seen.token, journal.guard)
        if answer.word == "elected":
            self._end(epoch, answer.now_ms, "is empty" if seen.word == "lost" else "was set back to an older state")
        return answer

    def _catch_up(self, epoch: int, heartbeat: int, marker: Election) -> None:
        """Lets the journal go on where the marker is."""
        if marker.epoch > epoch:  # who noticed the loss has died before it could note it
            self._end(epoch, self._store.now_ms(), "had lost its data before")
        elif marker.heartbeat > heartbeat:
            logger.warning(
                "the journal's database was set back: its heartbeat is %d, that of Redis is %d. Messages that were "
                "added or cancelled in between may be missing, or come again",
                *(heartbeat, marker.heartbeat),
            )
            self._store.journal.catch_up(marker.heartbeat)

    def _end(self, epoch: int, now_ms: float, how: str) -> None:
        self._store.journal.end_epoch(now_ms, epoch)
        logger.log(
            self._level,
            "Redis has lost its data: it %s. `delayq journal restore` puts back %s",
            *(how, restorable(self._store)),
        )

    def _remind(self) -> None:
        if monotonic() < self._remind_at:
            return
        self._remind_at = monotonic() + REMIND_S
        if self._store.journal.has_lost():
            logger.warning("what Redis has lost is not restored yet: run `delayq journal restore`")


def notice(store: JournaledStore) -> None:
    """Notes that Redis has lost its data. A promoter that leads is elected anew after that.

    Raises:
        NotLeading: Redis belongs to another journal, or promoters are faster.
    """
    Leadership(store, logging.WARNING).begin()  # the caller restores it
