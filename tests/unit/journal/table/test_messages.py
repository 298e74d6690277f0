"""Messages come into the journal, are found, change and leave."""

import pytest
from sqlalchemy import text

from celery_ext.journal.journal import Journal
from celery_ext.journal.schema import WAITING
from tests.support.journal.additions import DUE_MS, addition


def test_added_messages_are_found_by_due_time(journal: Journal) -> None:
    """``add`` numbers messages, and ``browse`` and ``get`` return them whole and by due time."""
    sent = [addition(3), addition(1), addition(2)]
    numbers = journal.add(sent)
    found = journal.browse("orders")
    assert [row.id for row in found] == ["id-1", "id-2", "id-3"]
    assert [row.seq for row in found] == [numbers[1], numbers[2], numbers[0]]
    assert [(row.body, row.due_ms, row.state) for row in journal.get(["id-2"])] == [(b"body 2", DUE_MS + 2000, WAITING)]
    assert journal.browse("others") == []


def test_the_same_message_is_added_once(journal: Journal) -> None:
    """A publisher that repeats itself changes nothing, in one call or in two; another body is another message."""
    first, *rest = journal.add([addition(1), addition(1), addition(1, body=b"other")])
    assert first is not None
    assert [number is None for number in rest] == [True, False]
    assert journal.add([addition(1)]) == [None]
    assert journal.count("orders") == 2


def test_the_same_message_of_another_sender_is_added_once(journal: Journal) -> None:
    """The names of process and thread, which a second attempt from elsewhere changes, make no other message."""
    body = '{"origin": "%s", "ignore_result": false, "properties": {"correlation_id": "i", "reply_to": "%s", "x": 1}}'
    sent = [addition(1, body=(body % names).encode()) for names in (("me", "1"), ("you", "2"), ("", ""))]
    assert [number is None for number in journal.add(sent)] == [False, True, True]
    assert journal.add(sent) == [None] * 3


def test_pages_follow_each_other(journal: Journal) -> None:
    """Pages meet without a gap and without a repeat, also among messages of one due time."""
    journal.add([addition(number, due_ms=DUE_MS + number // 7) for number in range(40)])
    seen, after = [], None
    while page := journal.browse("orders", after, count=9):
        seen += page
        after = page[-1].due_ms, page[-1].seq
    assert seen == journal.browse("orders", count=100)
    assert len(seen) == 40
    assert [row.due_ms for row in journal.browse("orders", None, DUE_MS + 2, DUE_MS + 3)] == [DUE_MS + 2] * 7


@pytest.mark.parametrize("name", ["bell\x07", "nul\0", "not utf-8 \udcff", "\\x00", "längst", "a" * 1000])
def test_any_name_is_taken(journal: Journal, name: str) -> None:
    """Queues and ids may have any character, also those that databases do not take as text."""
    sent = addition(1, queue=name)._replace(id=name)
    [number] = journal.add([sent])
    [row] = journal.get([name])
    assert (row.seq, row.queue, row.id) == (number, name, name)
    assert journal.queues() == [name]
    assert journal.counts() == {name: 1}
    assert journal.delete([name]) == [row]


def test_two_messages_that_become_alike_stay_two(journal: Journal) -> None:
    """A change that makes a message the same as another loses neither."""
    one, other = journal.add([addition(1, body=b"one"), addition(1, body=b"other")])
    assert one is not None
    [new] = journal.replace([(one, addition(1, body=b"other"))])
    assert {row.seq for row in journal.get(["id-1"])} == {new, other}


def test_a_mark_of_an_ended_epoch_changes_nothing(journal: Journal) -> None:
    """What Redis was given before it lost its data waits still."""
    [number] = journal.add([addition(1)])
    assert number is not None
    journal.end_epoch(1000.0)
    assert journal.mark([number], 1) == set()
    assert journal.mark([number], 2) == {number}


def test_numbers_are_never_given_again(journal: Journal) -> None:
    """The number of a deleted row stays its own, also that of the last row."""
    [first] = journal.add([addition(1)])
    journal.delete(["id-1"])
    [second] = journal.add([addition(1)])
    assert first is not None
    assert second is not None
    assert second > first


def test_errors_show_no_message(journal: Journal) -> None:
    """What the database says of a failed statement has no body in it, because it ends in logs."""
    with journal.engine.begin() as connection:
        connection.execute(text("DROP TABLE delayq_messages"))
    with pytest.raises(Exception, match="delayq_messages") as caught:
        journal.add([addition(1, body=b"confidential")])
    assert "confidential" not in str(caught.value)
