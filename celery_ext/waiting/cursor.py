"""Where a listing of waiting messages goes on, as a text for a URL."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from math import inf, isnan, nextafter
from typing import NamedTuple

from celery_ext.waiting.selection import Selection
from kombu_delayq.connection.text import as_text
from kombu_delayq.options import LAYOUTS
from kombu_delayq.store.types import JOURNAL, Page

#: All forms, by their numbers in cursors.
FORMS = (*LAYOUTS, JOURNAL)
#: Longest text of a cursor, in characters.
LONGEST = 6000
#: How much of a message's index member a cursor has at most, in bytes: an id may be very long.
_LONGEST_PLACE = 600
_CHECK = 6
#: Sorts behind every member of the same due time.
_BEHIND_ALL = b"\xff" * 17


class Position(NamedTuple):
    """A message in the order of a listing: by due time, queue, form (the store's own first, the journal last), member.

    Attributes:
        due: Its due time, as Redis writes it.
        queue: Its queue.
        layout: The layout in which it is kept.
        place: Its index member, or a stand-in that sorts like it.
    """

    due: bytes
    queue: str
    layout: str
    place: bytes

    @property
    def due_ms(self) -> float:
        """Its due time, ms since the epoch."""
        return float(self.due)

    def start(self, queue: str, own: str) -> tuple[Page | None, float]:
        """Returns where the messages behind this one begin in a queue, as ``browse`` takes it.

        Args:
            queue: Any queue.
            own: The store's own layout.

        Returns:
            The page before, or None, and the least due time in ms.
        """
        if queue != self.queue:
            return None, self.due_ms if queue > self.queue else nextafter(self.due_ms, inf)
        order = sorted(FORMS, key=lambda form: form != own)  # stable
        ends = dict.fromkeys(order[: order.index(self.layout)], (_BEHIND_ALL, self.due))
        return Page([], True, {**ends, self.layout: (self.place, self.due)}), self.due_ms


#: Before all messages.
BEGINNING = Position(b"-inf", "", LAYOUTS[0], b"")


def write(position: Position, selection: Selection) -> str:
    """Returns a position in what a filter selects as a text that a URL can have as it is."""
    place = position.place
    if len(place) > _LONGEST_PLACE:  # it skips messages with the same due time and the same beginning of their ids
        place = place[:_LONGEST_PLACE] + _BEHIND_ALL
    fields = [position.due.decode(), position.queue, FORMS.index(position.layout), place.decode("latin-1")]
    raw = json.dumps(fields, separators=(",", ":")).encode()
    return urlsafe_b64encode(_check(raw, selection) + raw).rstrip(b"=").decode()


def read(text: str, selection: Selection) -> Position:
    """Returns the position in a text that ``write`` made for a filter of the same queues, task, arguments and priority.

    Raises:
        ValueError: The text is no such text.
    """
    try:
        if len(text) > LONGEST:
            raise ValueError
        raw = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        if _check(raw[_CHECK:], selection) != raw[:_CHECK]:
            raise ValueError
        due, queue, form, place = json.loads(raw[_CHECK:])
        position = Position(due.encode("ascii"), as_text(queue), FORMS[form], place.encode("latin-1"))
        if isnan(position.due_ms) or form < 0:
            raise ValueError
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ValueError("the cursor is damaged or belongs to another filter: begin again without it") from None
    return position


def _check(raw: bytes, selection: Selection) -> bytes:
    """Returns a check of a position. The range does not count: the end of "the next hour" moves from page to page."""
    arguments = [[str(one) for one in selection.arguments]] if selection.arguments else []
    filtered = json.dumps([selection.queues, selection.task, selection.q, selection.priority, *arguments]).encode()
    key = blake2b(filtered, digest_size=32).digest()
    return blake2b(raw, digest_size=_CHECK, key=key).digest()
