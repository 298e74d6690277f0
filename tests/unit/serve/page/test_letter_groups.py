"""What the page says of dead letters: their groups by error, and whether they are a fault."""

import json
from math import inf

from celery_ext.dead_letters import DeadLetter
from celery_ext.dead_letters.pages import RECENT_MS, groups_of, summary_of
from kombu_delayq.message.letter_record import DEAD_LETTER


def letter(task: str, error: str | None, at: str | None = None) -> DeadLetter:
    """Returns a dead letter with an error."""
    properties = {} if error is None else {DEAD_LETTER: {"error": error, "at": at}}
    headers = {"task": task, "id": "i"}
    return DeadLetter("dead", json.dumps({"body": "", "headers": headers, "properties": properties}).encode())


def test_errors_that_differ_in_numbers_alone_are_of_one_kind() -> None:
    """From the first word with a digit on, texts are those of single letters; the text of a group is in all of them."""
    found = groups_of(
        [
            letter("pay", "TimeoutError: connect to pay-1.example:443", "2030-01-01T09:00:00+00:00"),
            letter("pay", "TimeoutError: connect to pay-22.example:443\n  in charge", "2030-01-02T09:00:00+00:00"),
            letter("mail", "TimeoutError: connect to pay-1.example:443"),
            letter("pay", "KeyError: 'order'"),
            letter("pay", "KeyError: 'item'"),
            letter("pay", "404 not found"),
            letter("pay", None),
        ]
    )
    assert [(group.task, group.error, group.letters) for group in found] == [
        ("pay", "TimeoutError: connect to", 2),
        ("mail", "TimeoutError: connect to", 1),
        ("pay", "KeyError: 'order'", 1),
        ("pay", "KeyError: 'item'", 1),
        ("pay", "404 not found", 1),
        ("pay", "", 1),
    ]
    assert str(found[0].latest) == "2030-01-02 09:00:00+00:00"
    assert found[1].latest is None


def test_letters_that_are_new_are_a_fault_of_the_overview() -> None:
    """Those that wait are said while the latest came within a day, or nobody knows when it came."""
    now_ms = 1_900_000_000_000.0
    for latest_ms, found in ((now_ms, 1), (inf, 1), (now_ms - 2 * RECENT_MS, 0)):
        said = summary_of({"failed": 94, "other": 0}, latest_ms, now_ms)
        assert (said.total, len(said.faults)) == (94, found)
    [fault] = summary_of({"failed": 94, "other": 0}, now_ms, now_ms).faults
    assert fault.text.startswith("94 dead letters wait in “failed”")
    assert (fault.queues, fault.folder) == (("failed",), "dead-letters")
    assert summary_of({"failed": 0}, now_ms, now_ms).faults == ()
