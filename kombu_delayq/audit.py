"""The log of who changed waiting messages: one line of JSON a change."""

import json
import logging
import os
import socket
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from getpass import getuser
from itertools import islice
from typing import Any

from kombu.log import get_logger
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from kombu_delayq.errors import AnswerLost

#: Its name, ``kombu_delayq.audit``, is public.
logger = get_logger(__name__)

#: A change of so many messages leaves a line when it begins, too.
MANY = 1000
#: Most ids that a line has.
IDS_NAMED = 20
#: Outcomes of tasks that are as they were.
NOT_DONE = frozenset(("gone", "not_delayed", "dead_letter", "unreadable", "too_long", "unroutable"))


@contextmanager
def audited(
    action: str,
    what: Mapping[str, Any],
    *,
    who: str | None = None,
    of: int = 0,
    unchanged: Collection[str] = NOT_DONE,
) -> Iterator[Counter[Any]]:
    """Yields counts by outcome. At the end, also after an error, logs them, if anything has changed.

    A process that is killed logs no end. So a change of many messages has a line when it begins, too, whose count is 0.
    If Redis did not answer, it may have changed more than is counted. Then there is a line, too, which says so.

    Args:
        action: What is done, such as ``cancel``.
        what: To what it is done: values that JSON can have, by name. No arguments of tasks, no secrets.
        who: Who does it; by default the user of this process.
        of: How many messages are to change, if that is known.
        unchanged: Outcomes of messages that are as they were.
    """
    if of >= MANY:
        _log(who, action, {**what, "of": of, "begun": True}, 0)
    counts: Counter[Any] = Counter()
    lost: dict[str, bool] = {}
    try:
        yield counts
    except (AnswerLost, RedisConnectionError, RedisTimeoutError):
        lost = {"answer_lost": True}
        raise
    finally:
        changed = sum(count for outcome, count in counts.items() if outcome not in unchanged)
        if changed or lost:
            _log(who, action, {**what, "outcomes": dict(counts), **lost}, changed)


def ids_named(ids: Iterable[str], *, more: bool = False) -> dict[str, Any]:
    """Returns some ids for a line: the first ``IDS_NAMED``, and whether there are ``more``."""
    ids = iter(ids)
    named = list(islice(ids, IDS_NAMED))
    return {"ids": named, **({"and_more": True} if more or next(ids, None) is not None else {})}


def _log(who: str | None, action: str, what: Mapping[str, Any], count: int) -> None:
    """Logs what somebody has done, as one line of JSON; the record has the same in its attribute ``audit``."""
    if not logger.isEnabledFor(logging.INFO):  # to find out who this is takes long
        return
    line = {"who": who or _this_user(), "action": action, "count": count, "what": dict(what)}
    logger.info("audit: %s", json.dumps(line), extra={"audit": line})


def _this_user() -> str:
    """Returns who runs this process, as ``user@host``."""
    try:
        user = getuser()
    except (OSError, KeyError, ImportError):  # the user has no name here, as in many containers
        user = f"uid {os.getuid()}" if hasattr(os, "getuid") else "somebody"
    return f"{user}@{socket.gethostname()}"
