"""Spaces the attempts to reach what the promoter needs, and logs each outage once."""

from time import monotonic

from kombu.log import get_logger
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

logger = get_logger(__name__)

#: Pauses in s between attempts: the first, and the longest.
PAUSES_S = (0.1, 2.0)
#: Errors of what is away: the database, or Redis.
AWAY = (SQLAlchemyError, RedisError, OSError)


class Outage:
    """The pauses between attempts, and the log lines at the start and the end of an outage."""

    def __init__(self) -> None:
        self._down_since: float | None = None
        self._pause_s = PAUSES_S[0]

    @property
    def down_since(self) -> float | None:
        """``monotonic()`` at the start of the outage, None if there is none."""
        return self._down_since

    def failed(self, error: Exception) -> float:
        """Notes a failed attempt. Returns the pause before the next one, in s."""
        if self._down_since is None:
            self._down_since = monotonic()
            what = "the journal's database" if isinstance(error, SQLAlchemyError) else "Redis"
            text = str(error).partition("\n")[0]  # what follows are the statement and advice of SQLAlchemy
            logger.error("the journal waits, because %s cannot be used: %s: %s", what, type(error).__name__, text)
        pause_s = self._pause_s
        self._pause_s = min(pause_s * 2, PAUSES_S[1])
        return pause_s

    def succeeded(self) -> None:
        """Notes that all has answered, which ends an outage."""
        if self._down_since is not None:
            logger.info("the journal goes on after %.1f s", monotonic() - self._down_since)
            self._down_since = None
            self._pause_s = PAUSES_S[0]
