"""The store's operation that moves delayed messages from one form of backup to the other."""

from kombu_delayq.connection.text import as_text
from kombu_delayq.options import BACKUPS
from kombu_delayq.store.client import Caller
from kombu_delayq.store.types import Converted

#: Most messages that one call moves, and about the most bytes of them.
CONVERT_COUNT, CONVERT_BYTES = 60, 300_000


#: Share of the time after which an unused queue is forgotten: as often consumers keep it in use, and the leader looks.
FORGET_SHARE = 1 / 24


class Conversion(Caller):
    """Moves the messages of a queue to another form of backup. All calls are short, however much it holds."""

    def convert(self, queue: str, backup: str | None = None) -> Converted:
        """Moves some messages of a queue to a form of backup, those that are due first; one round trip.

        Each is in one of the forms all the time. It keeps its id, its priority and its place among those of its due
        time, which ``list`` rounds up to whole ms. The queue's keys expire no sooner than they would have in either
        form.

        Args:
            queue: Its name.
            backup: The form to which they go, by default the store's own.
        """
        to = backup or self.backup
        [other] = {*BACKUPS} - {to}
        args = [self._wake(queue, to), queue, CONVERT_COUNT, CONVERT_BYTES]
        *numbers, place = self._run("convert", [*self._stored(queue, to), *self._stored(queue, other)], args, to)
        done = Converted(*map(int, numbers))
        if done.moved and as_text(place) == "first":
            self.ask("SADD", self.keys.queues, queue)  # messages of another client may be in a queue that nobody knows
        return done

    def convertible(self, queue: str, backup: str | None = None) -> int:
        """Counts the messages that ``convert`` has to move."""
        [other] = {*BACKUPS} - {backup or self.backup}
        return int(self.ask("ZCARD", self._due(queue, other)))
