"""The lines of the log ``kombu_delayq.audit``."""

import json
import logging
from typing import Any

import pytest
import redis

from kombu_delayq.audit import IDS_NAMED, MANY, audited, ids_named
from kombu_delayq.errors import AnswerLost


@pytest.fixture(autouse=True)
def _shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kombu_delayq.audit")


def _lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Returns the lines, and checks that each is JSON, and in the record as well."""
    lines = [json.loads(record.getMessage().removeprefix("audit: ")) for record in caplog.records]
    assert [vars(record)["audit"] for record in caplog.records] == lines
    return lines


def test_a_line_says_who_did_what_to_how_many(caplog: pytest.LogCaptureFixture) -> None:
    """By default it names the user of this process; a change of nothing leaves no line."""
    for who, done in ((None, 2), ("ada", 1), ("ada", 0)):
        with audited("cancel", {"queue": "q"}, who=who) as counts:
            counts.update(cancelled=done, not_delayed=7)
    first, second = _lines(caplog)
    assert "@" in first["who"]
    assert second == {
        "who": "ada",
        "action": "cancel",
        "count": 1,
        "what": {"queue": "q", "outcomes": {"cancelled": 1, "not_delayed": 7}},
    }


def test_a_change_of_many_is_noted_when_it_begins(caplog: pytest.LogCaptureFixture) -> None:
    """A process that is killed notes no end, so a line comes first; small changes have none."""
    with audited("purge", {}, of=MANY - 1), audited("purge", {"queue": "q"}, of=MANY):
        [line] = _lines(caplog)
    assert (line["count"], line["what"]) == (0, {"queue": "q", "of": MANY, "begun": True})


@pytest.mark.parametrize(
    "error", [AnswerLost("cancelled", ["a"]), redis.exceptions.ConnectionError(), redis.exceptions.TimeoutError()]
)
def test_an_answer_that_was_lost_is_noted(caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    """Some tasks may have changed, so there is a line, which says that more may have changed than were counted."""
    with pytest.raises(type(error)), audited("cancel", {"ids": ["a"]}):
        raise error
    [line] = _lines(caplog)
    assert (line["count"], line["what"]) == (0, {"ids": ["a"], "outcomes": {}, "answer_lost": True})


def test_what_was_done_before_an_error_is_noted(caplog: pytest.LogCaptureFixture) -> None:
    """An error before the first change leaves no line, a later one that of what has changed."""

    def fail_after(done: int) -> None:
        with audited("cancel", {}) as counts:
            counts.update(cancelled=done, not_delayed=2)
            raise LookupError

    for done in (0, 3):
        with pytest.raises(LookupError):
            fail_after(done)
    assert [line["count"] for line in _lines(caplog)] == [3]


def test_a_line_names_the_first_ids() -> None:
    """It stays short for any number of ids, and says that there were more."""
    ids = [str(n) for n in range(IDS_NAMED + 1)]
    assert ids_named(ids[:-1]) == {"ids": ids[:-1]}
    assert ids_named(iter(ids)) == {"ids": ids[:-1], "and_more": True}
    assert ids_named(ids[:1], more=True) == {"ids": ["0"], "and_more": True}
