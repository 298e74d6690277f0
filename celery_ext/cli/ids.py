"""Task ids as the commands are given them."""

import sys
from collections.abc import Iterator, Sequence

#: Stands for the standard input.
STDIN = "-"


def each_id(given: Sequence[str]) -> Iterator[str]:
    """Yields task ids while they are read.

    Args:
        given: Ids; ``-`` stands for those on the standard input, one a line.
    """
    for each in given:
        if each != STDIN:
            yield each
            continue
        for line in sys.stdin.buffer:
            identity = line.rstrip(b"\r\n")
            if identity:
                # As in arguments: bytes that are no UTF-8 become surrogates, which the store turns back.
                yield identity.decode(errors="surrogateescape")


def total_of(given: Sequence[str]) -> int | None:
    """Returns how many ids there are, or None where only their end tells."""
    return None if STDIN in given else len(given)
