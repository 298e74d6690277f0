"""Delayed delivery for Celery on Redis: a Kombu transport.

Importing this package makes its broker URL schemes known to kombu; ``kombu_delayq.urls.SCHEMES`` has them.
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
    InvalidLimit,
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
    "InvalidLimit",
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
