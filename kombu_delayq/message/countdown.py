"""Countdowns that the broker counts, from the arrival of a task by Redis's clock: the option ``countdown_by``.

Celery turns a countdown into an eta by the publisher's clock before a transport sees the message. So the countdown
comes along as a property. A message in Redis has neither that property nor the eta: a worker would wait for an eta of
a clock that is ahead.
"""

from typing import Any

from kombu_delayq.message.due import Due, due_of
from kombu_delayq.message.fields import Message, headers_of, task_id_of, to_json
from kombu_delayq.message.seal import seal

#: Message property of a task on its way to the transport: its countdown in s.
COUNTDOWN = "delayq_countdown"
#: Longest countdown in s that the broker counts; Celery refuses longer ones, which no datetime can name.
_MOST_S = 9999 * 366 * 86400


def is_countable(countdown: Any) -> bool:
    """Whether the broker can count a countdown, which may be past. Celery sends others at once, or refuses them."""
    return isinstance(countdown, int | float) and countdown != 0 and abs(countdown) <= _MOST_S


def is_delay(countdown: Any) -> bool:
    """Whether a countdown is one that makes a task wait."""
    return is_countable(countdown) and countdown > 0


def settle(message: Message, *, by_broker: bool) -> tuple[Message, Due | None]:
    """Returns a message that is being published, and when it is to be delivered, or None for at once.

    A countdown that is past leaves no eta either: by a clock that is ahead, the eta is to come. A task of protocol 1
    has its eta in its body, and goes by that.

    Args:
        message: The message. It stays as it is: kombu may send it again.
        by_broker: Whether the broker counts a countdown. If not, the message that is returned has no ``COUNTDOWN``.

    Raises:
        InvalidDelay: As of ``due_of``.
    """
    headers, seconds = headers_of(message), message["properties"].get(COUNTDOWN)
    if by_broker and seconds is not None and headers.get("eta"):
        if seconds > 0:
            return message, Due(float(seconds) * 1000, True, task_id_of(headers))
        return _without_eta(message), None
    message = without_countdown(message)
    return message, due_of(message)


def without_countdown(message: Message) -> Message:
    """Returns a message without the property ``COUNTDOWN``; the message itself stays as it is."""
    properties = message["properties"]
    if COUNTDOWN not in properties:
        return message
    return {**message, "properties": {name: value for name, value in properties.items() if name != COUNTDOWN}}


def seal_settled(message: Message, task_id: str | None) -> tuple[str, str]:
    """Serializes a message from ``settle``; arguments and result are those of ``seal``.

    If the broker counts its countdown, it has no eta then. Its delivery tag is made before that: two calls with one id,
    at different times, stay two tasks, and a second attempt to publish one of them has the same bytes.
    """
    identity, text = seal(message, task_id)
    if COUNTDOWN not in message["properties"]:
        return identity, text
    return identity, to_json(_without_eta(message))


def _without_eta(message: Message) -> Message:
    """Returns a message without the property ``COUNTDOWN`` and without the eta that Celery made of it."""
    stripped = without_countdown(message)
    return {**stripped, "headers": {**stripped["headers"], "eta": None}}
