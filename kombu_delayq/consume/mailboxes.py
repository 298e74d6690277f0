"""Tells kombu's and Celery's own queues of commands and replies from queues of tasks. Knows no Redis.

They are told by what they are for: how they are declared is a matter of settings, and queues of tasks may be declared
in the same ways.
"""

import re
from collections.abc import Iterable

#: How kombu names who waits for replies: a UUID that is a hash, of version 3 or 5. Source: kombu.common.generate_oid
_OID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[35][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


def is_mailbox(queue: str, exchanges: Iterable[str]) -> bool:
    """Whether a queue has commands of remote control, or replies to them.

    Args:
        queue: Its name.
        exchanges: Names of those to which it is bound.

    Source: kombu.pidbox.Mailbox
    """
    return any(each.endswith(".pidbox") and queue.endswith(f".{each}") for each in exchanges)


def has_results(queue: str, *, auto_delete: bool) -> bool:
    """Whether a queue has results for one process. Source: celery.backends.rpc.RPCBackend.binding."""
    return auto_delete and _OID.fullmatch(queue) is not None
