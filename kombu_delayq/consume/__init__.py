"""The consumer's side: checks before each wait, the queues to keep alive, and messages to put into the store."""

from kombu_delayq.consume.channel import ConsumingChannel
from kombu_delayq.consume.consumer import Consumer
from kombu_delayq.consume.credit import Credit
from kombu_delayq.consume.fetched import FetchedMessage, FetchedPayload
from kombu_delayq.consume.fetcher import OTHER_CONNECTIONS, Fetcher
from kombu_delayq.consume.heartbeat import Heartbeat
from kombu_delayq.consume.pipelined import PipelinedConnection
from kombu_delayq.consume.poller import DelayedPoller
from kombu_delayq.consume.presence import ANSWER_S
from kombu_delayq.consume.qos import FetchedQoS
from kombu_delayq.consume.waits import MOST_WAITS, NO_CONNECTION_LEFT, WaitBudget

__all__ = [
    "ANSWER_S",
    "MOST_WAITS",
    "NO_CONNECTION_LEFT",
    "OTHER_CONNECTIONS",
    "Consumer",
    "ConsumingChannel",
    "Credit",
    "DelayedPoller",
    "FetchedMessage",
    "FetchedPayload",
    "FetchedQoS",
    "Fetcher",
    "Heartbeat",
    "PipelinedConnection",
    "WaitBudget",
]
