"""The exceptions of kombu-delayq. Most errors of the Redis client pass through as they are."""

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches

import kombu.exceptions

#: How many ids or queues an error names.
_NAMED = 5
#: Longest repr of a value in an error, in characters; of a longer repr, how many stay at its head and at its tail.
_LONGEST, _HEAD, _TAIL = 200, 140, 50
#: How alike an unknown and a known name have to be for a hint, from 0 to 1 as difflib measures it.
ALIKE = 0.7


class DelayqError(Exception):
    """Root of all errors that kombu-delayq itself raises."""


class InvalidOptions(DelayqError, ValueError):
    """Transport options have names or values that kombu-delayq does not take."""


class InvalidBrokerURL(DelayqError, ValueError):
    """The broker URL, as it is written, would not lead to delayed delivery on Redis."""


class InvalidQueueName(DelayqError, ValueError):
    """A list of a queue of this name would be a key of ours, or in Redis Cluster its keys would be in several slots."""


class InvalidDelay(DelayqError, ValueError):
    """A delay is not a finite number of seconds."""


class InvalidDelayChain(DelayqError, ValueError):
    """A delay chain is not written as one, or is too long."""


class InvalidDelayLevel(DelayqError, ValueError):
    """A delay level is not a whole number from 0, or the table of delay levels is not written as one."""


class InvalidDeadLetter(DelayqError, ValueError):
    """A task or a setting does not say when a task's message goes to its dead letter queue, or to which."""


class InvalidIfWaiting(DelayqError, ValueError):
    """A call or a task with ``if_waiting`` or ``waiting_key`` does not say which task it means, or what to do."""


class InvalidLimit(DelayqError, ValueError):
    """A call or a task with a ``limit`` does not name one, or its key cannot be made of the arguments."""


class DelayTooLong(DelayqError, ValueError):
    """A message asks for a longer delay than the transport option ``max_delay`` allows."""


class UnsupportedRedis(DelayqError):
    """The Redis server is older than 6.2."""


class UnreadableMessage(DelayqError, ValueError):
    """A waiting message has its eta where it cannot be rewritten: it is damaged, or a pickled task of protocol 1."""


class DelayChainCancelled(DelayqError):
    """A delay chain takes no further step, because its task was cancelled."""


class OtherTransport(DelayqError):
    """The app's broker does not use a transport of kombu-delayq, so none of its tasks wait in Redis."""


class StoreUnavailable(DelayqError):
    """The database of a feature beside Redis, such as of the journal, does not answer now, or refuses.

    Attributes:
        feature: Name of the feature.
    """

    feature = ""

    @property
    def said(self) -> str:
        """What the database said, in one line."""
        return (str(self) or type(self).__name__).partition("\n")[0]

    @property
    def in_words(self) -> str:
        """One line for people, which shows no message and no password."""
        return f"the database of the {self.feature}: {self.said}"


class AnswerLost(DelayqError, kombu.exceptions.OperationalError):
    """The connection to Redis was lost before it answered, so the state of the tasks ``ids`` is unknown."""

    def __init__(self, done: str, ids: list[str]) -> None:
        super().__init__(
            f"the connection to Redis was lost before it answered: {len(ids):,} task{'s' * (len(ids) != 1)} may have "
            f"been {done}, or still wait: {listed(ids)}. Ask again, so that none waits; those that are not_delayed "
            f"then may have been {done} now"
        )
        self.ids = ids


def listed(names: Sequence[str]) -> str:
    """Returns names for an error: the first five, and whether there are more."""
    return ", ".join(map(repr, names[:_NAMED])) + (", …" if len(names) > _NAMED else "")


def quoted(value: object) -> str:
    """Returns the repr of a value, without its middle if it is longer than 200 characters."""
    try:
        text = repr(value)
    except Exception:  # such as of an int of 5000 digits; the caller's own error matters more
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST else f"{text[:_HEAD]} … {text[-_TAIL:]}"


def nearest(name: object, known: Iterable[str], alike: float = ALIKE) -> str | None:
    """Returns the known name that is most like an unknown one, or None.

    Args:
        name: The unknown name, in any case.
        known: Known names, all in lower case.
        alike: How alike the two have to be, from 0 to 1.
    """
    found = get_close_matches(str(name).lower(), sorted(known), n=1, cutoff=alike)
    return found[0] if found else None


def did_you_mean(name: object, known: Iterable[str], show: Callable[[str], str] = repr) -> str:
    """Returns a hint for the end of an error about an unknown name; empty if no known name is like it.

    Args:
        name: The unknown name, in any case.
        known: Known names, all in lower case.
        show: Writes the known name.
    """
    meant = nearest(name, known)
    return "" if meant is None else f" (did you mean {show(meant)}?)"
