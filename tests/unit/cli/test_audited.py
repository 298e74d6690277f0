"""The lines that the commands write into the audit."""

from collections.abc import Mapping
from typing import Any

import pytest
import redis

from celery_ext.cli.audited import audited
from kombu_delayq.audit import ChangeLog
from kombu_delayq.errors import AnswerLost


class _Audit(ChangeLog):
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any], int]] = []

    def note(self, who: str, action: str, what: Mapping[str, Any], count: int) -> bool:
        assert "@" in who
        self.lines.append((action, dict(what), count))
        return True


@pytest.mark.parametrize(
    "error", [AnswerLost("cancelled", ["a"]), redis.exceptions.ConnectionError(), redis.exceptions.TimeoutError()]
)
def test_an_answer_that_was_lost_is_noted(error: Exception) -> None:
    """Some tasks may have changed, so there is a line, which says that more may have changed than were counted."""
    audit = _Audit()
    with pytest.raises(type(error)), audited(audit, "cancel", {"ids": ["a"]}):
        raise error
    assert audit.lines == [("cancel", {"ids": ["a"], "outcomes": {}, "answer_lost": True}, 0)]


def test_what_was_done_before_an_error_is_noted() -> None:
    """An error before the first change leaves no line, a later one that of what has changed."""
    audit = _Audit()

    def fail_after(done: int) -> None:
        with audited(audit, "cancel", {}, ("not_delayed",)) as counts:
            counts.update(cancelled=done, not_delayed=2)
            raise LookupError

    for done in (0, 3):
        with pytest.raises(LookupError):
            fail_after(done)
    assert audit.lines == [("cancel", {"outcomes": {"cancelled": 3, "not_delayed": 2}}, 3)]
