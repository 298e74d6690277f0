"""Finds tasks that do not wait among the dead letters."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from celery_ext.dead_letters.letters import DeadLetter, latest
from celery_ext.waiting import Only, Sighting
from kombu_delayq.store import DelayStore
from kombu_delayq.text import as_bytes

#: So many ids are looked for in the text of dead letters; with more, each letter is read.
FEW = 20


class Elsewhere:
    """Looks for tasks among the latest dead letters of each queue. It reads all of these once, if it is asked again.

    Args:
        more: Names of queues of dead letters, beside those that Redis knows.

    Attributes:
        state: What a task is that is found.
        outcome: What became of a task that was to be cancelled: a cancel leaves it where it is.
        template: The page of such a task.
    """

    state = "dead_letter"
    outcome: Literal["dead_letter"] = "dead_letter"
    template = "letter.html"

    def __init__(self, more: Iterable[str] = ()) -> None:
        self._more = tuple(more)
        self._was_asked = False
        self._known: list[DeadLetter] | None = None

    def find(self, store: DelayStore, ids: Sequence[str], only: Only | None = None) -> Mapping[str, Sighting]:
        """Returns by id in which queue a task is, and why; see ``waiting.elsewhere.Elsewhere``."""
        wanted = {*ids}
        found = (letter for letter in self._letters(store, ids) if letter.id in wanted)
        return {letter.id: _sighting(letter) for letter in found if only is None or only(letter.task.message)}

    def cancel(self, store: DelayStore, ids: Sequence[str], only: Only | None = None) -> Mapping[str, tuple[()]]:
        """Returns the ids of the tasks that are there, and changes nothing."""
        return dict.fromkeys(self.find(store, ids, only), ())

    def _letters(self, store: DelayStore, ids: Sequence[str]) -> Iterable[DeadLetter]:
        """Returns the latest letters, of few ids these at least."""
        if self._known is None and len(ids) <= FEW and not self._was_asked:
            self._was_asked = True
            texts = {text for one in ids for text in (as_bytes(one), as_bytes(json.dumps(one)[1:-1]))}
            # To read a letter as JSON takes longer than to find its id in it.
            return (letter for letter in latest(store, self._more) if any(text in letter.message for text in texts))
        if self._known is None:
            self._known = list(latest(store, self._more))
        return self._known


def _sighting(letter: DeadLetter) -> Sighting:
    why = ": ".join(text for text in (letter.reason, letter.error) if text)
    words = f"a dead letter in queue {letter.buried_in!r}" + (f" ({why})" if why else "")
    advice = f"this task has failed for good, and is a dead letter in queue {letter.buried_in!r}: replay it, or drop it"
    return Sighting(letter.buried_in, words, advice)
