"""Recognises the queues that kombu and Celery use for commands and replies. Knows no Redis.

The name and the exchanges of a queue decide. Its declaration does not: that depends on settings, and a queue of tasks
may have the same one.
"""

import re
from collections.abc import Iterable

#: kombu's name for a process that waits for replies: a UUID made by a hash, so of version 3 or 5.
#: Source: kombu.common.generate_oid
_OID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[35][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


def is_mailbox(queue: str, exchanges: Iterable[str]) -> bool:
    """Whether a queue is for commands of remote control, or for replies to them.

    Args:
        queue: Name of the queue.
        exchanges: Names of the exchanges to which the queue is bound.

    Source: kombu.pidbox.Mailbox
    """
    return any(exchange.endswith(".pidbox") and queue.endswith(f".{exchange}") for exchange in exchanges)


def has_results(queue: str, *, auto_delete: bool) -> bool:
    """Whether a queue is for the results of one process. Source: celery.backends.rpc.RPCBackend.binding."""
    return auto_delete and _OID.fullmatch(queue) is not None
