"""The store's audit: who did what to waiting messages, as noted by those who let somebody act."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kombu.log import get_logger
from redis.exceptions import NoPermissionError, RedisError

from kombu_delayq.audit import ChangeLog
from kombu_delayq.connection.text import as_bytes, as_text, readable
from kombu_delayq.store.client import StorePart

logger = get_logger(__name__)

#: About how many lines Redis keeps. A line has some hundred bytes.
MOST_LINES = 10_000


@dataclass(frozen=True)
class AuditLine:
    """What somebody has done.

    Attributes:
        id: Identifies the line; ``Audit.recent`` takes it as ``before``.
        at_ms: When it was noted, by Redis's clock, ms since the epoch.
        who: Who did it.
        action: What was done, such as ``cancel``.
        what: To what it was done: values that JSON can have, by name.
        count: To how many messages.
    """

    id: str
    at_ms: float
    who: str
    action: str
    what: dict[str, Any]
    count: int


class Audit(StorePart, ChangeLog):
    """Notes who did what, in the log and in Redis, and reads the notes of Redis.

    Redis keeps the latest ``MOST_LINES`` or a few more.
    """

    def note(self, who: str, action: str, what: Mapping[str, Any], count: int) -> bool:
        """Notes what somebody has done: a line of the log ``kombu_delayq.audit``, and one in Redis.

        It has been done already, so a Redis that refuses the note, or does not answer, is logged and is no error.

        Args:
            who: Who did it.
            action: What was done, such as ``cancel``.
            what: To what it was done: values that JSON can have, by name. No arguments of tasks, no secrets.
            count: To how many messages.

        Returns:
            Whether Redis has the note.
        """
        super().note(who, action, what, count)
        fields = ("who", who, "action", action, "what", json.dumps(what), "count", count)
        try:
            self._client.ask("XADD", self._keys.audit, "MAXLEN", "~", MOST_LINES, "*", *fields)
        except RedisError as error:
            # Who may not write to the stream has a line in the log all the same.
            log = logger.warning if isinstance(error, NoPermissionError) else logger.error
            shown = map(readable, (who, action))
            log("what %s did (%s, %d messages) is not noted in Redis: %s", *shown, count, readable(error))
            return False
        return True

    def recent(self, limit: int = 100, before: str | None = None) -> list[AuditLine]:
        """Reads the latest lines, the newest first; one round trip.

        Args:
            limit: Most lines to return.
            before: ``id`` of a line; only older lines are returned. None for the latest.

        Raises:
            redis.exceptions.ResponseError: ``before`` is no id of a line, or the key has another type.
        """
        if limit < 1:
            return []
        newest = "+" if before is None else f"({before}"
        with self._client.redis.pipeline(transaction=False) as pipe:
            pipe.execute_command("XREVRANGE", as_bytes(self._keys.audit), newest, "-", "COUNT", limit)
            [rows] = pipe.execute()
        return [_line(as_text(key), fields) for key, fields in rows]


def _line(key: str, fields: Mapping[Any, Any]) -> AuditLine:
    found = {as_text(name): as_text(value) for name, value in fields.items()}
    try:
        what = json.loads(found.get("what", "{}"))
        count = int(found.get("count", 0))
    except ValueError:  # somebody else has written it
        what, count = {}, 0
    at_ms = float(key.partition("-")[0])
    return AuditLine(
        key, at_ms, found.get("who", ""), found.get("action", ""), what if isinstance(what, dict) else {}, count
    )
