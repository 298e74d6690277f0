"""Queues that are spread over several: which parts a queue has, and which of them gets a message."""

from collections.abc import Mapping
from zlib import crc32

from kombu_delayq.options.checks import each_queue, number

#: Fewest and most parts of a queue. Each part costs a consumer a connection, and the transfer workers a look.
PARTS = (1, 1000)


def parts_of(queue: str, count: int) -> list[str]:
    """Returns the names of the parts of a queue: ``orders.0``, ``orders.1`` and so on."""
    return [f"{queue}.{number}" for number in range(count)]


def split_part(name: str) -> tuple[str, int | None]:
    """Returns the queue and the number that the name of a part consists of; of another name, the name and None."""
    queue, _, number = name.rpartition(".")
    return (queue, int(number)) if queue and number.isdecimal() else (name, None)


def part_of(queue: str, count: int, identity: str | bytes) -> str:
    """Returns the part that gets a message: always the same one for an id, in any process and any language.

    Args:
        queue: Name of the queue.
        count: Number of its parts.
        identity: Task id, or another id that all copies of a message share.
    """
    raw = identity if isinstance(identity, bytes) else identity.encode(errors="surrogatepass")
    return f"{queue}.{crc32(raw) % count}"


def spread_queues(value: object) -> Mapping[str, int]:
    """Checks a mapping of queues to numbers of parts."""
    if not isinstance(value, Mapping):
        raise ValueError("is not a mapping of queues to their numbers of parts, such as {'orders': 8}")
    each_queue(value, number(*PARTS, whole=True))
    for queue in value:
        whole, part = split_part(queue)
        if whole in value and part is not None:
            raise ValueError(f"has {queue!r}, which is the name of a part of {whole!r}")
    return value
