"""Delayed delivery for Celery on Redis: a Kombu transport.

Importing this package makes the broker URL schemes ``delayq``, ``delayqs``, ``delayq+sentinel``,
``delayq+socket``, ``delayq+cluster``, ``delayqs+cluster``, ``valkey`` and ``valkeys`` known to kombu.
"""

from kombu_delayq import urls
from kombu_delayq.errors import (
    AnswerLost,
    DelayChainCancelled,
    DelayqError,
    DelayTooLong,
    InvalidBrokerURL,
    InvalidDeadLetter,
    InvalidDelay,
    InvalidDelayChain,
    InvalidDelayLevel,
    InvalidIfWaiting,
    InvalidOptions,
    InvalidQueueName,
    OtherTransport,
    StoreUnavailable,
    UnreadableMessage,
    UnsupportedRedis,
)

__all__ = [
    "AnswerLost",
    "DelayChainCancelled",
    "DelayTooLong",
    "DelayqError",
    "InvalidBrokerURL",
    "InvalidDeadLetter",
    "InvalidDelay",
    "InvalidDelayChain",
    "InvalidDelayLevel",
    "InvalidIfWaiting",
    "InvalidOptions",
    "InvalidQueueName",
    "OtherTransport",
    "StoreUnavailable",
    "UnreadableMessage",
    "UnsupportedRedis",
    "__version__",
]
__version__ = "1.0.0b1"

urls.register()
