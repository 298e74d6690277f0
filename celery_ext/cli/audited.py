"""Notes what the commands change: who did it, with which command, to what, and how many messages."""

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from celery_ext.cli.options import STDIN
from kombu_delayq.audit import ChangeLog, logger, this_user
from kombu_delayq.errors import AnswerLost

#: Most ids that a line has.
IDS_NAMED = 20


@contextmanager
def audited(
    audit: ChangeLog, action: str, what: Mapping[str, Any], unchanged: Collection[str] = (), of: int = 0
) -> Iterator[Counter[Any]]:
    """Yields counts by outcome. At the end, also after an error, it notes them, if anything has changed.

    A change of many messages is noted when it begins, too.

    If Redis did not answer, it may have changed more than is counted. Then there is a line, too, which says so.

    Args:
        audit: Where it is noted; the audit of the broker's store.
        action: What is done, such as ``cancel``.
        what: To what it is done: values that JSON can have, by name.
        unchanged: Outcomes of messages that are as they were.
        of: How many messages are to change, if that is known.
    """
    audit.note_begin(this_user(), action, what, of)
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
            audit.note(this_user(), action, {**what, "outcomes": dict(counts), **lost}, changed)


@contextmanager
def audit_file(path: str) -> Iterator[None]:
    """Appends the lines of the audit to a file, with their times."""
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"the audit cannot be written: {error}") from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        handler.close()


def ids_in_words(given: Sequence[str]) -> dict[str, Any]:
    """Returns the ids of a command for its line: the first ones, and whether there were more."""
    named = [identity for identity in given if identity != STDIN]
    return {"ids": named[:IDS_NAMED], **({"and_more": True} if len(named) > IDS_NAMED or STDIN in given else {})}
