"""The transport options of kombu-delayq: the only place that knows their names, defaults and units."""

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from kombu_delayq.errors import DelayTooLong, InvalidOptions, did_you_mean, nearest

#: Checks a value.
Check = Callable[[object], Any]
#: In a mapping of queues: all queues that it does not name.
REST = "*"
#: What can happen to a message that is too late.
POLICIES = ("run", "dead-letter", "drop")
#: Least and most messages a second of a queue: one in about twelve days, and more than Redis can transfer.
RATES = (0.000001, 1_000_000)


def switch(value: object) -> bool:
    """Checks a bool."""
    if not isinstance(value, bool):
        raise ValueError("is not True or False")
    return value


def number(low: float, high: float = math.inf, *, whole: bool = False) -> Callable[[object], Any]:
    """Makes a check of a number within bounds."""

    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            raise ValueError(f"is not a {'whole ' if whole else ''}number")
        if not low <= value <= high or math.isinf(value):
            raise ValueError(f"is not {f'from {low} to {high}' if high < math.inf else f'{low} or more'}")
        return value

    return check


def choice(*names: str) -> Callable[[object], str]:
    """Makes a check of one of some names."""

    def check(value: object) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError(f"is not one of {', '.join(map(repr, names))}")
        return value

    return check


def text(what: str) -> Check:
    """Makes a check of a text that is not empty; ``what`` says of what, for the error."""

    def check(value: object) -> str:
        if not isinstance(value, str) or not value:
            raise ValueError(f"is not {what}")
        return value

    return check


def any_text(value: object) -> str:
    """Checks a text, which may be empty."""
    if not isinstance(value, str):
        raise ValueError("is not a text")
    return value


def provider(value: object) -> object:
    """Checks a credential provider of redis-py, or a text, which is the dotted path of one."""
    if not (isinstance(value, str) and value) and not hasattr(value, "get_credentials"):
        raise ValueError("is not a credential provider of redis-py, nor the dotted path of one")
    return value


def or_none(check: Check) -> Check:
    """Makes a check that also takes None."""
    return lambda value: None if value is None else check(value)


def seconds(value: object) -> float:
    """Checks a number of seconds, which may be infinite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ValueError("is not a number of seconds")
    return value


class QueueLimits(NamedTuple):
    """What limits the transfer of a queue's messages.

    Attributes:
        overdue: What happens to a message that is too late, one of ``POLICIES``.
        max_lateness_ms: How late a message may be that still runs, in ms; None if it always runs.
        rate: Most messages a second; None for no limit.
        burst: How many messages may go at once after a pause.
    """

    overdue: str
    max_lateness_ms: float | None
    rate: float | None
    burst: float


def per_queue(check: Check) -> Check:
    """Makes a check of one value for all queues, or of a mapping of queues to values."""

    def check_each(value: object) -> Any:
        if not isinstance(value, Mapping):
            return check(value)
        for queue, of_queue in value.items():
            if not isinstance(queue, str) or not queue:
                raise ValueError(f"has {queue!r}, which is not the name of a queue, nor {REST!r} for all others")
            try:
                check(of_queue)
            except ValueError as reason:
                raise ValueError(f"has {of_queue!r} for {queue!r}, which {reason}") from None
        return value

    return check_each


def rate(value: object) -> Any:
    """Checks messages a second, or these with a burst."""
    if value is None or not isinstance(value, (list, tuple)):
        return value if value is None else number(*RATES)(value)
    if len(value) != 2:
        raise ValueError("is not a number of messages a second, nor that and a burst, such as [50, 200]")
    number(*RATES)(value[0])
    number(1, 1_000_000)(value[1])
    return value


def limits(value: object) -> Any:
    """Checks limits by name, each with ``running``, ``rate`` and ``weight``."""
    if not isinstance(value, Mapping):
        raise ValueError("is not a mapping of names to limits, such as {'account': {'running': 2}}")
    for name, limit in value.items():
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_.-]{1,50}", name):
            raise ValueError(f"has {name!r}, which is no name of a limit: letters, digits, '_', '.' and '-'")
        if not isinstance(limit, Mapping):
            raise ValueError(f"has {limit!r} for {name!r}, which is not a mapping such as {{'running': 2}}")
        for field, of_field in limit.items():
            if field not in LIMIT_CHECKS:
                hint = did_you_mean(field, LIMIT_CHECKS)
                raise ValueError(f"has {field!r} for {name!r}, which is none of {', '.join(LIMIT_CHECKS)}{hint}")
            try:
                LIMIT_CHECKS[field](of_field)
            except ValueError as reason:
                raise ValueError(f"has {of_field!r} for {field} of {name!r}, which {reason}") from None
    return value


#: What a limit may say, and what checks it.
LIMIT_CHECKS: Mapping[str, Check] = {
    "running": or_none(number(0, 1_000_000, whole=True)),
    "rate": rate,
    "weight": or_none(number(0.01, 1000)),
}


def contradiction(overdue: Any, max_lateness: Any) -> str:
    """Returns what is wrong with two values together; empty if nothing is."""
    policies = dict(overdue) if isinstance(overdue, Mapping) else {REST: overdue}
    for queue, policy in policies.items():
        if policy != "run" and _value_for(queue, max_lateness, None) is None:
            of = "" if queue == REST else f" for queue {queue!r}"
            return f"overdue={policy!r}{of} needs max_lateness, which says from when on a message is too late"
    if max_lateness is not None and set(policies.values()) == {"run"}:
        return (
            f"max_lateness={max_lateness!r} has no effect, because overdue is 'run': set it to 'dead-letter' or 'drop'"
        )
    return ""


def _value_for(queue: str, value: Any, default: Any) -> Any:
    return value.get(queue, value.get(REST, default)) if isinstance(value, Mapping) else value


#: The layouts in which delayed messages can be kept.
LAYOUTS = ("hash", "redisson")


def _option(default: Any, check: Check, unit: str, text: str, *, alike: bool = False, asks_for: str = "") -> Any:
    """alike: Whether all processes should have the same value. asks_for: The hook of the store that it asks for."""
    metadata = {"check": check, "unit": unit, "help": text, "alike": alike, "asks_for": asks_for}
    return dataclasses.field(default=default, metadata=metadata)


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
    #: How long transfer workers, commands, and a connection that closes wait for an answer of Redis before they take
    #: the connection for dead, in s, where kombu's option ``socket_timeout`` says nothing.
    answer_s: ClassVar[float] = 5.0
    #: The same for all others, such as publishers, who send again what a Redis that stands still may run twice.
    late_answer_s: ClassVar[float] = 25.0

    layout: str = _option(
        "hash",
        choice(*LAYOUTS),
        "",
        "How delayed messages are kept: 'hash', or 'redisson' as Redisson's RDelayedQueue does, to share them with "
        "JVM services. A fleet has one layout: messages in the other one are delivered, but not found by id.",
        alike=True,
    )
    transfer: bool = _option(
        True,
        switch,
        "",
        "Whether a consumer of this connection also runs a transfer worker. With False, run `delayq transfer`.",
    )
    consume: str = _option(
        "reliable",
        choice("reliable", "brpop"),
        "",
        "How a consumer gets its messages: 'reliable' notes them as unacked in the step that takes them from their "
        "queue, so that none is lost with a worker, and takes several at once; 'brpop' is kombu's own way.",
        alike=True,
    )
    consumer_ttl: float = _option(
        60.0,
        number(1, 3600),
        "s",
        "How long a consumer may be silent before its messages go back to the queues. Those of a killed process go "
        "back within seconds in any case. Keep it above the longest time for which a task holds the interpreter, or, "
        "with gevent and eventlet, does not yield.",
    )
    delivery_limit: int | None = _option(
        20,
        or_none(number(1, whole=True)),
        "deliveries",
        "How many consumers may die while they hold a message. Then it goes to dead_letter_queue; if several messages "
        "reach the limit, only the one held longest. None: no limit.",
        alike=True,
    )
    dead_letter_queue: str = _option(
        "dead_letters",
        text("the name of a queue"),
        "",
        "The queue of dead letters for messages that have reached delivery_limit, and for those that are too late "
        "with overdue='dead-letter', whatever dead_letter_queue their tasks have.",
        alike=True,
    )
    dead_letter_ttl: float | None = _option(
        90 * 86_400.0,
        or_none(number(1)),
        "s",
        "How long transfer workers keep a dead letter, in any queue. None: until somebody replays or drops it.",
    )
    dead_letter_max: int | None = _option(
        10_000,
        or_none(number(1, whole=True)),
        "dead letters",
        "How many dead letters of a queue transfer workers keep; they drop the oldest. None: any number.",
    )
    unknown_ttl: float | None = _option(
        600.0,
        or_none(number(0)),
        "s",
        "For how long messages that a worker cannot run go back for others: of a task that it does not know, with a "
        "body that it cannot decode or does not accept, or without a task. After that they become dead letters in "
        "dead_letter_queue. None: they are acknowledged and gone, as with Celery.",
        alike=True,
    )
    max_delay: float | None = _option(
        None,
        or_none(number(0)),
        "s",
        "The longest delay that may be published; a longer one raises DelayTooLong. None: no limit.",
        alike=True,
    )
    poll_interval: float = _option(
        1.0,
        number(0.05, 60),
        "s",
        "About how often the leading transfer worker and its standbys look at Redis when nothing wakes them. A lost "
        "wake message or a lost connection delays messages by about as much, once Redis answers. The other workers "
        "look eight to twelve times less often. A leader or standby that is silent for three times as long loses its "
        "place.",
    )
    overdue: str | Mapping[str, str] = _option(
        "run",
        per_queue(choice(*POLICIES)),
        "",
        "What happens to a message that is later than max_lateness: 'run' transfers it, 'dead-letter' puts it into "
        "dead_letter_queue, 'drop' removes it. One value, or a mapping such as {'reminders': 'drop', '*': 'run'}, "
        "where '*' stands for all other queues.",
        alike=True,
    )
    max_lateness: float | Mapping[str, float | None] | None = _option(
        None,
        per_queue(or_none(number(1))),
        "s",
        "How late a message may be, by Redis's clock. The time for which transfer_rate holds it back counts. One "
        "value, or a mapping of queues to values, with '*' for all others.",
        alike=True,
    )
    transfer_rate: float | Sequence[float] | Mapping[str, Any] | None = _option(
        None,
        per_queue(rate),
        "messages/s",
        "Most due messages of a queue that all transfer workers together transfer in a second: a number, or [number, "
        "burst]. The burst is how many may go at once after a pause, by default those of a second. One value for each "
        "queue, or a mapping such as {'mails': 50, 'sms': [5, 20]}, with '*' for all others. None: no limit.",
        alike=True,
    )
    limits: Mapping[str, Any] | None = _option(
        None,
        or_none(limits),
        "",
        "Limits by key, by their names: {'account': {'running': 2}} lets two tasks of each account run at once over "
        "all workers, {'api': {'rate': [50, 100]}} begins 50 a second and 100 at once after a pause, {'tenant': {}} "
        "only lets keys take turns, and 'weight' gives more of these. The worker that starts last decides. None: this "
        "app declares none.",
        alike=True,
    )
    compact: bool = _option(
        False,
        switch,
        "",
        "Whether messages take less room: a body that is text, such as JSON, is not written as base64, and a task has "
        "no headers for which a worker assumes the same value, such as `retries` 0. Celery and kombu read both; some "
        "clients of other languages do not.",
    )
    credential_provider: object = _option(
        None,
        or_none(provider),
        "",
        "Gives each new connection to Redis its user and password, for tokens that soon end: a credential provider of "
        "redis-py, or the dotted path of one, such as 'proj.tokens:Provider'. A class or function is called once a "
        "process. None: those of the broker URL.",
    )
    journal_url: str | None = _option(
        None,
        or_none(text("a text")),
        "",
        "The database of the journal, as a URL of SQLAlchemy, such as 'postgresql+psycopg://user@host/db' or "
        "'sqlite:////var/lib/app/journal.db'. Needs kombu-delayq[journal]. None: no journal.",
        alike=True,
        asks_for="journal",
    )
    journal: str = _option(
        "far",
        choice("far", "all"),
        "",
        "Which delayed messages the journal has: 'far' those that are due later than journal_horizon, until they are "
        "promoted to Redis; 'all' every one, to refill a Redis that has lost its data.",
        alike=True,
    )
    journal_horizon: float = _option(
        86_400.0,
        number(1),
        "s",
        "A message that is due later than this from now waits in the journal instead of Redis. Keep it well above "
        "journal_lead.",
        alike=True,
    )
    journal_lead: float = _option(
        1_800.0,
        number(1),
        "s",
        "How long before its due time a message is promoted from the journal to Redis. The database may be away for "
        "as long before any message is late.",
        alike=True,
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
        "What happens when Redis has lost its data: 'ask' logs it, and waits for `delayq journal restore`; 'auto' "
        "refills Redis at once.",
        alike=True,
    )

    @property
    def lease_ttl(self) -> float:
        """How long the leading transfer worker, or a standby, may be silent before another takes its place, in s."""
        return 3 * self.poll_interval

    def limits_of(self, queue: str) -> QueueLimits | None:
        """Returns what limits the transfer of a queue's messages; None if nothing does. No dead letter is too late."""
        is_of_letters = queue == self.dead_letter_queue
        policy = "run" if is_of_letters else _value_for(queue, self.overdue, "run")
        max_s = _value_for(queue, self.max_lateness, None)
        given = _value_for(queue, self.transfer_rate, None)
        a_second, burst = given if isinstance(given, (list, tuple)) else (given, max(given or 1, 1))
        max_ms = None if policy == "run" or max_s is None else 1000 * max_s
        return None if max_ms is None and a_second is None else QueueLimits(policy, max_ms, a_second, burst)

    def check_delay(self, delay_s: float, of: str = "") -> None:
        """Raises DelayTooLong if a delay is longer than ``max_delay``. ``of`` names the message in the error."""
        if self.max_delay is not None and delay_s > self.max_delay:
            raise DelayTooLong(
                f"a delay of {delay_s:.0f} s is longer than the transport option max_delay allows, "
                f"{self.max_delay:g} s{of and f' ({of})'}"
            )


NAMES = frozenset(field.name for field in dataclasses.fields(Options))
#: The options that all processes of a broker should have alike.
ALIKE = tuple(field.name for field in dataclasses.fields(Options) if field.metadata["alike"])
#: By option that asks for a store which also keeps messages elsewhere: the hook that has it.
STORES = {field.name: hook for field in dataclasses.fields(Options) if (hook := field.metadata["asks_for"])}


#: Options of kombu with which kombu itself fails late and unclearly, and what checks them.
_OF_KOMBU: Mapping[str, Check] = {
    "global_keyprefix": or_none(any_text),
    "sep": any_text,
    "visibility_timeout": seconds,
    "socket_timeout": or_none(seconds),
    "socket_connect_timeout": or_none(seconds),
    "health_check_interval": or_none(seconds),
}
#: Names of the options that are checked here.
CHECKED = NAMES | set(_OF_KOMBU)
#: Transport options that kombu and Celery read although kombu's channels do not list them.
_READ_ELSEWHERE = frozenset(
    (
        *("polling_interval", "reauth_check_interval", "retry", "retry_on_error", "max_retries", "interval_start"),
        *("interval_step", "interval_max", "connect_retries_timeout", "errback", "callback"),
    )
)


def parse(given: Mapping[str, Any], of_kombu: Collection[str]) -> tuple[Options, str]:
    """Checks transport options.

    Args:
        given: ``broker_transport_options``.
        of_kombu: Names that the kombu channel in use reads.

    Returns:
        The options, and a warning about names that neither kombu nor we read, empty if there are none. Stock kombu
        ignores such names silently, and others may read them, such as redbeat. So they alone do not stop an app.

    Raises:
        InvalidOptions: An option of ours, or one of kombu's that is checked here, has a wrong value, or a name looks
            like a misspelled one of ours. The error lists all of them.
    """
    known = NAMES | set(of_kombu) | _READ_ELSEWHERE
    misspelled: list[str] = []
    wrong: list[str] = []
    unread: list[str] = []
    values: dict[str, Any] = {}
    for name in given:
        if name not in known:
            is_ours = nearest(name, known) in NAMES
            (misspelled if is_ours else unread).append(f"{name!r}{did_you_mean(name, known)}")
    checks = {field.name: field.metadata["check"] for field in dataclasses.fields(Options)}
    for name, check in {**checks, **_OF_KOMBU}.items():
        if name in given:
            try:
                values[name] = check(given[name])
            except ValueError as reason:
                shown = repr(given[name])
                if "://" in shown:  # a URL may have a password
                    shown = f"<{type(given[name]).__name__}>"
                wrong.append(f"{name}={shown} {reason}")
    if not (misspelled or wrong) and (clash := contradiction(values.get("overdue", "run"), values.get("max_lateness"))):
        wrong.append(clash)
    if misspelled:
        raise InvalidOptions(
            f"transport options that kombu-delayq does not take: {'; '.join(misspelled + wrong + unread)}. "
            f"Its own are: {', '.join(sorted(NAMES))}"
        )
    if wrong:
        raise InvalidOptions(f"the transport option {'; '.join(wrong)}")
    return Options(**{name: value for name, value in values.items() if name in NAMES}), (
        f"transport options that neither kombu nor kombu-delayq reads: {', '.join(unread)}" if unread else ""
    )
