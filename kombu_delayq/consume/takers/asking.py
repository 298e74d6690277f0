"""What a taker asks Redis for, and when Redis does not let it ask."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from kombu.utils.scheduling import round_robin_cycle
from redis.exceptions import ResponseError

from kombu_delayq.store.consuming.types import Landing, Request

#: Errors of a Redis that does not let this user run a command of the script.
_DENIED = re.compile("NOPERM|executing the script can't|Unknown Redis command")


def request_for(
    channel: Any,
    queues: Sequence[str],
    credit: int,
    landings: Iterable[Landing],
    *,
    share: str,
    unnoted: Collection[str],
) -> Request:
    """Returns a request for messages, without the name of a consumer and a number.

    Args:
        channel: The channel.
        queues: Names of the queues of the taker.
        credit: The most messages.
        landings: Landing lists that may have messages.
        share: The share of the queues.
        unnoted: Names of queues whose messages are not acknowledged.
    """
    return Request(
        *("", 0, credit, queues if share else channel._queue_cycle.consume(len(queues))),
        in_turns=type(channel._queue_cycle) is round_robin_cycle,
        unnoted=frozenset(unnoted) if channel.ack_emulation else frozenset(queues),
        landings=tuple(landings),
    )


def is_denied(reply: Any) -> bool:
    """Whether Redis does not let this user run a command of the script."""
    return isinstance(reply, ResponseError) and _DENIED.search(str(reply)) is not None
