"""Finds tasks that are due and wait in sub-queues for the turns of their keys, and cancels them."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from celery_ext.limits.store import LimitStore, ParkedMessage
from celery_ext.waiting import DelayedTask, Only, Outcome, Sighting
from kombu_delayq.message import priority_of, read
from kombu_delayq.store import DelayStore, Waiting
from kombu_delayq.text import as_bytes, readable

#: So many ids are looked for by Redis, in the text of messages; with more, each message is read.
FEW = 5


class Elsewhere:
    """Looks for tasks in the sub-queues of all queues; see ``waiting.elsewhere.Elsewhere``.

    If it is asked again, or for many ids, it reads all messages there once, and keeps their ids.
    """

    state = "ready"
    outcome: Outcome = "cancelled"
    template = "parked.html"

    def __init__(self, more: Iterable[str] = ()) -> None:
        self._was_asked = False
        self._known: dict[str, list[tuple[str, bytes]]] | None = None

    def find(self, store: DelayStore, ids: Sequence[str], only: Only | None = None) -> Mapping[str, Sighting]:
        """Returns those tasks that wait for their turns."""
        return {waiting.id: _sighting(waiting, parked) for waiting, parked in self._found(store, ids, only)}

    def cancel(
        self, store: DelayStore, ids: Sequence[str], only: Only | None = None
    ) -> Mapping[str, Sequence[Waiting]]:
        """Removes tasks. Returns the messages of those that were there."""
        by_queue = defaultdict[str, list[tuple[Waiting, ParkedMessage]]](list)
        for waiting, parked in self._found(store, ids, only):
            by_queue[waiting.queue].append((waiting, parked))
        removed = defaultdict[str, list[Waiting]](list)
        for queue, found in by_queue.items():
            were_there = store.part(LimitStore).take_parked(queue, [parked.member for _, parked in found])
            for (waiting, _), was_there in zip(found, were_there, strict=True):
                if was_there:
                    removed[waiting.id].append(waiting)
        return removed

    def _found(
        self, store: DelayStore, ids: Sequence[str], only: Only | None
    ) -> Iterator[tuple[Waiting, ParkedMessage]]:
        wanted = {*ids}
        for queue, parked in self._candidates(store, ids):
            waiting = _waiting(queue, parked)
            if waiting.id in wanted and (only is None or only(waiting)):
                yield waiting, parked

    def _candidates(self, store: DelayStore, ids: Sequence[str]) -> Iterator[tuple[str, ParkedMessage]]:
        part = store.part(LimitStore)
        if self._known is None and len(ids) <= FEW and not self._was_asked:
            self._was_asked = True
            texts = {text for one in ids for text in (as_bytes(one), as_bytes(json.dumps(one)[1:-1]))}
            for queue in _queues(store):
                yield from ((queue, parked) for parked in part.search(queue, sorted(texts)))
            return
        if self._known is None:
            self._known = defaultdict(list)
            for queue in _queues(store):
                for parked in part.parked(queue):
                    self._known[_waiting(queue, parked).id].append((queue, parked.place))
        for one in ids:
            for queue, place in self._known.get(one, ()):
                yield from ((queue, parked) for parked in part.parked_at(queue, place))


def _queues(store: DelayStore) -> list[str]:
    return sorted(store.if_allowed(store.part(LimitStore).queues) or ())


def _waiting(queue: str, parked: ParkedMessage) -> Waiting:
    """Returns a message as others know it that wait. Since when it waits here counts for its due time."""
    fields = read(parked.message)
    found = Waiting(queue, "", parked.since_ms, priority_of(fields), parked.message)
    return found._replace(id=DelayedTask(found).id)


def _sighting(waiting: Waiting, parked: ParkedMessage) -> Sighting:
    where = f"in queue {waiting.queue!r}" + (f", by key {readable(parked.key)}" if parked.key else "")
    advice = f"this task is due, and waits for its turn {where}: a cancel removes it"
    return Sighting(waiting.queue, f"due, and waiting for its turn {where}", advice)
