"""Reads replies of Redis."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from redis.exceptions import BusyLoadingError, ResponseError

#: After an error that passes, Redis is asked again so much later, in s.
PASSING_S = 1.0

#: Errors of a Redis that refuses commands for a while, and keeps its connections: it runs somebody's script for long,
#: or it could not write its latest snapshot. redis-py has no classes for them, and its pipelines put words before them;
#: so does Redis 6.2 where a script gets them.
_PASSING = re.compile(r"(.*(caused error: | -))?(BUSY|MISCONF) ")


def passes(reply: Any) -> bool:
    """Whether a reply is an error that passes without anybody's connecting again. The command was not run."""
    return isinstance(reply, ResponseError) and _PASSING.match(str(reply)) is not None


@contextmanager
def as_lost() -> Iterator[None]:
    """Turns an error that passes into that of a Redis that loads its data.

    kombu and Celery take this one for a lost connection, and connect again until it has passed. The other one would end
    a worker.

    Raises:
        redis.exceptions.BusyLoadingError: There was an error that passes.
    """
    try:
        yield
    except ResponseError as error:
        if passes(error):
            raise BusyLoadingError(str(error)) from error
        raise


def checked(replies: Iterable[Any]) -> list[Any]:
    """Returns replies. Raises the first error among them."""
    found = list(replies)
    for reply in found:
        if isinstance(reply, Exception):
            raise reply
    return found


def time_ms(time: Sequence[Any]) -> float:
    """Returns a reply to ``TIME``, seconds and microseconds, in ms since the epoch."""
    seconds, microseconds = time
    return float(seconds) * 1000 + float(microseconds) / 1000
