from math import inf
from time import monotonic

import pytest

from kombu_delayq.store.types import Heads, QueueForm, Transferred
from kombu_delayq.transfer.due_times import Agenda

NOW_MS = 1_800_000_000_000.0

A, B, C, NEW = (QueueForm(queue, "hash") for queue in ("a", "b", "c", "new"))
LISTED = QueueForm("a", "list")


@pytest.fixture
def agenda() -> Agenda:
    """An agenda that knows: a is due, b will be in an hour, c has nothing."""
    agenda = Agenda()
    agenda.look_after(["a", "b", "c"])
    agenda.learn(Heads(NOW_MS, {A: NOW_MS - 5, B: NOW_MS + 3_600_000}))
    return agenda


def test_nothing_is_due_of_queues_of_which_nothing_is_known() -> None:
    """Before Redis has been asked, no queue is due, and there is nothing to wait for."""
    agenda = Agenda()
    agenda.look_after(["a"])
    assert (agenda.queues, agenda.due(), agenda.next_s()) == (["a"], [], inf)


def test_what_is_due_is_told_by_the_clock_of_redis(agenda: Agenda) -> None:
    """A queue is due when its head is, by Redis's clock, wherever ours stands."""
    assert agenda.due() == [A]
    assert -60 < agenda.next_s() <= -0.005


def test_the_clock_goes_on_between_answers(agenda: Agenda) -> None:
    """A head a moment ahead becomes due without another answer of Redis."""
    agenda.expect(C, NOW_MS + 50)
    deadline = monotonic() + 10
    while C not in agenda.due():
        assert monotonic() < deadline


def test_after_a_transfer_the_next_head_counts(agenda: Agenda) -> None:
    """What a transfer says of the rest takes the place of what was known, nothing left included."""
    agenda.moved(A, Transferred(1, 0, 5.0, NOW_MS, NOW_MS + 60_000))
    assert agenda.due() == []
    assert 0 < agenda.next_s() <= 60
    agenda.moved(A, Transferred(1, 0, 5.0, NOW_MS, None))
    assert 60 < agenda.next_s() <= 3600


def test_only_an_earlier_head_is_news(agenda: Agenda) -> None:
    """An announcement brings a head forward, never back, and may be of a queue not known before."""
    agenda.expect(A, NOW_MS + 60_000)
    assert agenda.due() == [A]
    agenda.expect(NEW, NOW_MS - 1)
    assert agenda.due() == [A, NEW]


def test_a_queue_let_be_is_not_due_until_redis_is_asked(agenda: Agenda) -> None:
    """A queue whose transfer failed waits for the next answer about all queues."""
    agenda.leave(A)
    assert agenda.due() == []
    agenda.learn(Heads(NOW_MS, {A: NOW_MS}))
    assert agenda.due() == [A]


def test_queues_that_are_gone_are_forgotten(agenda: Agenda) -> None:
    """Looking after other queues forgets the former ones."""
    agenda.look_after(["z"])
    agenda.learn(Heads(NOW_MS, {A: NOW_MS}))
    assert (agenda.queues, agenda.due()) == (["z"], [])


def test_each_form_of_a_queue_has_a_head_of_its_own(agenda: Agenda) -> None:
    """A queue is one to look after, with a head in each form of backup."""
    assert agenda.queues == ["a", "b", "c"]
    agenda.expect(LISTED, NOW_MS - 1)
    assert agenda.due() == [A, LISTED]
    agenda.moved(A, Transferred(1, 0, 5.0, NOW_MS, None))
    assert agenda.due() == [LISTED]
