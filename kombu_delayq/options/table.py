"""The transport options of kombu-delayq: the only place that knows their names, defaults and units."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kombu_delayq.errors import DelayTooLong
from kombu_delayq.options.checks import (
    POLICIES,
    Check,
    QueueLimits,
    choice,
    limits_of,
    number,
    or_none,
    per_queue,
    queue_name,
    rate,
    switch,
    text,
)

#: The forms in which delayed messages can be kept.
LAYOUTS = ("hash", "redisson")


def _option(default: Any, check: Check, unit: str, text: str) -> Any:
    return dataclasses.field(default=default, metadata={"check": check, "unit": unit, "help": text})


@dataclass(frozen=True, kw_only=True)
class Options:
    """Transport options, checked. ``dataclasses.fields`` gives the default, unit and help of each option."""

    #: The most messages, and about the most bytes, that one call of the transfer script moves. That limits how long it
    #: keeps Redis busy. In Redisson's layout it moves half as many, and a sixteenth of the bytes.
    transfer_batch: ClassVar[int] = 200
    transfer_batch_bytes: ClassVar[int] = 1_000_000
    #: For how long a delay chain that was cancelled while one of its steps ran takes no further step, in s. Longer than
    #: the time from a step's due time to its end.
    cancelled_ttl: ClassVar[float] = 86_400.0

    layout: str = _option(
        "hash",
        choice(*LAYOUTS),
        "",
        "How delayed messages are kept: 'hash', or 'redisson' as Redisson's RDelayedQueue does, to share them with "
        "JVM services. Messages in the other layout are delivered too.",
    )
    transfer: bool = _option(
        True,
        switch,
        "",
        "Whether a consumer of this connection also runs a transfer worker. With False, run "
        "`delayq transfer` beside your workers.",
    )
    consume: str = _option(
        "reliable",
        choice("reliable", "brpop"),
        "",
        "How a consumer gets its messages: 'reliable' notes them as unacked in the same step in which they leave their "
        "queue, so that none is lost with a worker, and takes several at once; 'brpop' is kombu's own way.",
    )
    consumer_ttl: float = _option(
        60.0,
        number(1, 3600),
        "s",
        "How long a consumer may be silent before what it holds goes back to the queues. Keep it above the longest "
        "time for which a task holds the interpreter, or, with gevent and eventlet, does not yield.",
    )
    delivery_limit: int | None = _option(
        None,
        or_none(number(1, whole=True)),
        "deliveries",
        "How often a message may be in the hands of a consumer that dies. With the last time it goes to the queue "
        "dead_letter_queue, if it is the one that the consumer has held for longest. None: no limit.",
    )
    dead_letter_queue: str = _option(
        "dead_letters",
        queue_name,
        "",
        "The queue of dead letters for messages that have reached delivery_limit, and for those that are too late with "
        "overdue='dead-letter'. The process that puts them there runs no task, so it does not know the "
        "dead_letter_queue of a task.",
    )
    max_delay: float | None = _option(
        None,
        or_none(number(0)),
        "s",
        "The longest delay that may be published; a longer one raises DelayTooLong. None: no limit.",
    )
    poll_interval: float = _option(
        1.0,
        number(0.05, 60),
        "s",
        "About how often the leading transfer worker and its standbys look at Redis when nothing wakes them. A lost "
        "wake message or a lost connection delays messages by about as much, once Redis answers. The other workers "
        "look eight to twelve times more rarely. A leader or standby that is silent for three times as long loses its "
        "place.",
    )
    overdue: str | Mapping[str, str] = _option(
        "run",
        per_queue(choice(*POLICIES)),
        "",
        "What happens to a message that is later than max_lateness when it is its turn: 'run' transfers it, "
        "'dead-letter' puts it into dead_letter_queue, 'drop' removes it. One value for all queues, or a mapping such "
        "as {'reminders': 'drop', '*': 'run'}, where '*' stands for all others.",
    )
    max_lateness: float | Mapping[str, float | None] | None = _option(
        None,
        per_queue(or_none(number(1))),
        "s",
        "From how late on a message is too late, by Redis's clock; the time for which transfer_rate holds it back "
        "counts. One value, or a mapping of queues to values, with '*' for all others.",
    )
    transfer_rate: float | Sequence[float] | Mapping[str, Any] | None = _option(
        None,
        per_queue(rate),
        "messages/s",
        "How many due messages of a queue all transfer workers together transfer in a second at most: a number, or "
        "[number, burst], where burst is how many may go at once after a pause, by default those of a second. One "
        "value for each queue, or a mapping such as {'mails': 50, 'sms': [5, 20]}, with '*' for all others. None: no "
        "limit.",
    )
    compact: bool = _option(
        False,
        switch,
        "",
        "Whether messages take less room: a body that is text, such as JSON, stays text instead of base64; a task has "
        "no headers for which a worker assumes the same value, such as `shadow` null or `retries` 0, and {} for "
        "callbacks and workflow if it has none. Celery and kombu read both; some clients of other languages do not.",
    )
    journal_url: str | None = _option(
        None,
        or_none(text),
        "",
        "The database of the journal, as a URL of SQLAlchemy, such as 'postgresql+psycopg://user@host/db' or "
        "'sqlite:////var/lib/app/journal.db'. Needs kombu-delayq[journal]. None: all delayed messages wait in Redis "
        "alone.",
    )
    journal: str = _option(
        "far",
        choice("far", "all"),
        "",
        "Which delayed messages the journal has: 'far' those that are due later than journal_horizon, until they are "
        "promoted to Redis; 'all' every one, so that a Redis that has lost its data can be filled again.",
    )
    journal_horizon: float = _option(
        86_400.0,
        number(1),
        "s",
        "A message that is due later than this from now waits in the journal instead of Redis. Keep it well above "
        "journal_lead.",
    )
    journal_lead: float = _option(
        1_800.0,
        number(1),
        "s",
        "How long before its due time a message is promoted from the journal to Redis. For as long, the database may "
        "be away and no message is late.",
    )
    journal_retention: float = _option(
        86_400.0,
        number(0),
        "s",
        "How long the journal keeps messages that have left for their queue.",
    )
    journal_restore: str = _option(
        "ask",
        choice("ask", "auto"),
        "",
        "What happens when Redis has lost its data: 'ask' tells it, and waits for `delayq journal restore`; 'auto' "
        "fills Redis again at once.",
    )

    @property
    def lease_ttl(self) -> float:
        """How long the leading transfer worker, or a standby, may be silent before another takes its place, in s."""
        return 3 * self.poll_interval

    def limits_of(self, queue: str) -> QueueLimits | None:
        """Returns what limits the transfer of a queue's messages; None if nothing does."""
        return limits_of(queue, self.overdue, self.max_lateness, self.transfer_rate)

    def check_delay(self, delay_s: float, of: str = "") -> None:
        """Raises DelayTooLong if a delay is longer than ``max_delay``. ``of`` names the message in the error."""
        if self.max_delay is not None and delay_s > self.max_delay:
            raise DelayTooLong(
                f"a delay of {delay_s:.0f} s is longer than the transport option max_delay allows, "
                f"{self.max_delay:g} s{of and f' ({of})'}"
            )


NAMES = frozenset(field.name for field in dataclasses.fields(Options))
