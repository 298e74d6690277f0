"""Which queues are shown and acted on as one."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kombu_delayq.store import WaitingStore


class Spreads(NamedTuple):
    """The queues of a broker that are spread over several.

    Attributes:
        parts: By name of the queue, the names of its parts.
    """

    parts: dict[str, list[str]]

    @classmethod
    def of(cls, store: WaitingStore) -> "Spreads":
        """Reads them: those of the transport options, and those that publishers and workers have noted in Redis."""
        return cls(store.queues.spread())

    def members(self, queue: str) -> list[str]:
        """Returns the queues that a name stands for: itself, and its parts if it is spread over several."""
        return [queue, *self.parts.get(queue, ())]

    def expand(self, queues: Iterable[str]) -> list[str]:
        """Returns the queues that names stand for, each once."""
        return list(dict.fromkeys(member for queue in queues for member in self.members(queue)))

    def whole_of(self, queue: str) -> str:
        """Returns the queue of which another is a part; any other queue itself."""
        whole = queue.rpartition(".")[0]
        return whole if queue in self.parts.get(whole, ()) else queue

    def rows(self, queues: Iterable[str], may_see: Callable[[str], bool] = lambda queue: True) -> dict[str, list[str]]:
        """Returns what to show of some queues: the name of each row, and the queues that it stands for.

        A part does not have a row of its own: its whole queue has one, with all parts.

        Args:
            queues: Their names.
            may_see: Whether a whole queue may be shown. If not, its parts have rows of their own.
        """
        found = dict[str, list[str]]()
        for queue in queues:
            whole = self.whole_of(queue)
            if whole == queue or may_see(whole):
                found.setdefault(whole, self.members(whole))
            else:
                found[queue] = [queue]
        return found


def members_of(rows: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the queues that rows stand for, each once; rows are as of ``Spreads.rows``."""
    return list(dict.fromkeys(member for members in rows.values() for member in members))
