"""Ids of leases: they say how many messages a lease may have, and in a cluster from which queue."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from secrets import token_hex

from kombu_delayq.connection.text import as_bytes, as_text
from kombu_delayq.store.consuming.consumers import lent_name

#: Most messages of a lease.
MOST = 100
#: In a cluster, the queue is behind the number of messages and the random characters.
_ID = re.compile(r"([1-9][0-9]{0,2})-[0-9a-f]{32}(?:-([A-Za-z0-9_-]*))?")


class LeaseGone(Exception):
    """The lease has ended, or holds nothing any more, or never was the caller's."""


def new_id(most: int, queue: str = "") -> str:
    """Returns an id that nobody can guess.

    Args:
        most: The most messages of the lease, 1 to ``MOST``.
        queue: In a cluster the queue whose messages it has; elsewhere an empty text.
    """
    lease = f"{most}-{token_hex(16)}"
    return f"{lease}-{urlsafe_b64encode(as_bytes(queue)).decode().rstrip('=')}" if queue else lease


def name_of(caller: str, lease: str, tags: Sequence[str]) -> str:
    """Returns the name of a lease's consumer.

    Raises:
        LeaseGone: There never was such a lease.
        ValueError: There is no such tag in any lease.
    """
    match = _ID.fullmatch(lease)
    if match is None:
        raise LeaseGone
    for tag in tags:
        if not (tag.isascii() and tag.isdecimal() and 1 <= int(tag) <= int(match[1])):
            raise ValueError(f"{tag!r} is no tag of this lease")
    return lent_name(caller, lease)


def tags_of(name: str, lease: str) -> list[str]:
    """Returns all tags that a lease may have."""
    most, _, _ = lease.partition("-")
    return [f"{name}.{number}" for number in range(1, int(most) + 1)]


def queue_in(lease: str) -> str:
    """Returns the queue that the id of a lease has in a cluster; elsewhere an empty text.

    Raises:
        LeaseGone: There never was such a lease.
    """
    match = _ID.fullmatch(lease)
    try:
        return as_text(urlsafe_b64decode(f"{match[2]}===")) if match is not None and match[2] else ""
    except ValueError:
        raise LeaseGone from None
