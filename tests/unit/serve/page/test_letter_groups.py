"""Dead letters grouped by their errors."""

import json

from celery_ext.dead_letters import DeadLetter
from celery_ext.serve.page.dead_letters import groups_of
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
