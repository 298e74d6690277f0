from math import inf
from time import monotonic

import pytest

from kombu_delayq.store.types import DelayedQueue, Head, QueueHeads, Transferred, WatchedHeads
from kombu_delayq.transfer.due_times import DueTimes, KnownHead

NOW_MS = 1_800_000_000_000.0

A, B, C, NEW = (DelayedQueue(queue, "hash") for queue in ("a", "b", "c", "new"))
LISTED = DelayedQueue("a", "redisson")


@pytest.fixture
def due_times() -> DueTimes:
    """Due times of which these are known: a is due, b will be in an hour, c has nothing."""
    due_times = DueTimes()
    due_times.look_after(["a", "b", "c"])
    due_times.update(QueueHeads(NOW_MS, {A: NOW_MS - 5, B: NOW_MS + 3_600_000}))
    return due_times


def test_nothing_is_due_of_queues_of_which_nothing_is_known() -> None:
    """Before Redis has been asked, no queue is due, and there is nothing to wait for."""
    due_times = DueTimes()
    due_times.look_after(["a"])
    assert (due_times.queues, due_times.due(), due_times.next_s()) == (["a"], [], inf)


def test_what_is_due_is_told_by_the_clock_of_redis(due_times: DueTimes) -> None:
    """A queue is due when its head is, by Redis's clock, wherever ours stands."""
    assert due_times.due() == [A]
    assert -60 < due_times.next_s() <= -0.005


def test_the_clock_goes_on_between_answers(due_times: DueTimes) -> None:
    """A head a moment ahead becomes due without another answer of Redis."""
    due_times.note_head(C, NOW_MS + 50)
    deadline = monotonic() + 10
    while C not in due_times.due():
        assert monotonic() < deadline


def test_after_a_transfer_the_next_head_counts(due_times: DueTimes) -> None:
    """What a transfer says of the rest takes the place of what was known, nothing left included."""
    due_times.note_transfer(A, Transferred(1, 0, 5.0, NOW_MS, NOW_MS + 60_000))
    assert due_times.due() == []
    assert 0 < due_times.next_s() <= 60
    due_times.note_transfer(A, Transferred(1, 0, 5.0, NOW_MS, None))
    assert 60 < due_times.next_s() <= 3600


def test_only_an_earlier_head_is_news(due_times: DueTimes) -> None:
    """An announcement brings a head forward, never back, and may be of a queue not known before."""
    due_times.note_head(A, NOW_MS + 60_000)
    assert due_times.due() == [A]
    due_times.note_head(NEW, NOW_MS - 1)
    assert due_times.due() == [A, NEW]


def test_a_queue_let_be_is_not_due_until_redis_is_asked(due_times: DueTimes) -> None:
    """A queue whose transfer failed waits for the next answer about all queues."""
    due_times.put_off(A)
    assert due_times.due() == []
    due_times.update(QueueHeads(NOW_MS, {A: NOW_MS}))
    assert due_times.due() == [A]


def test_queues_that_are_gone_are_forgotten(due_times: DueTimes) -> None:
    """Looking after other queues forgets the former ones."""
    due_times.look_after(["z"])
    due_times.update(QueueHeads(NOW_MS, {A: NOW_MS}))
    assert (due_times.queues, due_times.due()) == (["z"], [])


def test_each_form_of_a_queue_has_a_head_of_its_own(due_times: DueTimes) -> None:
    """A queue is one to look after, with a head in each layout."""
    assert due_times.queues == ["a", "b", "c"]
    due_times.note_head(LISTED, NOW_MS - 1)
    assert due_times.due() == [A, LISTED]
    due_times.note_transfer(A, Transferred(1, 0, 5.0, NOW_MS, None))
    assert due_times.due() == [LISTED]


def test_overdue_heads_are_those_that_have_been_due_for_some_time(due_times: DueTimes) -> None:
    """A head is overdue once it has been due for the given time; since when it is there, is its due time at least."""
    due_times.note_head(C, NOW_MS - 1000)
    assert due_times.overdue(900) == {C: KnownHead(NOW_MS - 1000, NOW_MS - 1000, None)}
    assert due_times.overdue(5)[A] == KnownHead(NOW_MS - 5, NOW_MS, None)


def test_a_look_tells_of_the_heads_that_were_looked_at(due_times: DueTimes) -> None:
    """What Redis returns of some heads takes the place of what was known of these, and of no others."""
    due_times.note_look([A, C], WatchedHeads(NOW_MS + 10, False, {C: Head(NOW_MS, b"entry")}))
    assert due_times.due() == [C]
    assert due_times.overdue(10) == {C: KnownHead(NOW_MS, NOW_MS + 10, b"entry")}
    assert 3500 < due_times.next_s() + 3600 <= 3600
    due_times.note_head(C, NOW_MS - 1)
    assert due_times.overdue(10) == {C: KnownHead(NOW_MS - 1, NOW_MS - 1, None)}


@pytest.mark.parametrize(
    ("now", "has_left"),
    [
        (None, True),
        (Head(NOW_MS + 1, b"a"), True),
        (Head(NOW_MS, b"b"), True),
        (Head(NOW_MS, b"a"), False),
        (Head(NOW_MS - 1, b"b"), False),
    ],
)
def test_a_head_has_left_when_a_later_one_is_next(now: Head | None, has_left: bool) -> None:
    """A head has left if nothing or something later is next; of the same due time, if it is another message."""
    assert KnownHead(NOW_MS, NOW_MS, b"a").is_before(now) == has_left
    if now is not None and now.due_ms == NOW_MS:
        assert not KnownHead(NOW_MS, NOW_MS, None).is_before(now)


def test_a_queue_that_is_held_back_is_due_when_its_rate_lets_it(due_times: DueTimes) -> None:
    """An overdue head that its rate holds back is due at that time, also after a poll, and until a transfer."""
    due_times.note_transfer(A, Transferred(5, 0, 5.0, NOW_MS, NOW_MS + 200, held_back=True))
    due_times.update(QueueHeads(NOW_MS + 1, {A: NOW_MS - 5, B: NOW_MS + 3_600_000}))
    assert due_times.due() == []
    assert 0.1 < due_times.next_s() <= 0.2
    due_times.look_after(["a", "b"])
    due_times.update(QueueHeads(NOW_MS + 2, {A: NOW_MS - 5}))
    assert due_times.due() == []
    due_times.note_transfer(A, Transferred(5, 0, 5.0, NOW_MS + 2, NOW_MS - 4))
    due_times.update(QueueHeads(NOW_MS + 3, {A: NOW_MS - 4}))
    assert due_times.due() == [A]


def test_a_time_until_which_a_queue_is_held_back_goes_by(due_times: DueTimes) -> None:
    """When it is over and nobody has transferred, the head is overdue since it was due."""
    due_times.note_look([A], WatchedHeads(NOW_MS, False, {A: Head(NOW_MS + 100, b"e", held_back=True)}))
    assert due_times.due() == []
    due_times.update(QueueHeads(NOW_MS + 101, {A: NOW_MS - 5}))
    assert due_times.due() == [A]
    assert due_times.overdue(50)[A].due_ms == NOW_MS - 5


def test_a_queue_that_was_held_back_may_be_empty(due_times: DueTimes) -> None:
    """Messages that were held back may be purged: then nothing is due."""
    due_times.note_look([A], WatchedHeads(NOW_MS, False, {A: Head(NOW_MS + 100, b"e", held_back=True)}))
    due_times.update(QueueHeads(NOW_MS, {}))
    assert due_times.next_s() == inf


def test_a_worker_that_goes_on_knows_what_it_knew(due_times: DueTimes) -> None:
    """From one look to the next heads are known, those of queues that are gone are not; another start knows none."""
    for queues in (["a", "b", "c"], ["new", "a"]):
        due_times.look_after(queues, goes_on=True)
        assert due_times.queues == queues
        assert due_times.due() == [A]
    due_times.note_head(B, NOW_MS - 1)
    due_times.look_after(["new", "a"], goes_on=True)
    assert due_times.queues == ["new", "a"]
    due_times.look_after(["new", "a"])
    assert due_times.due() == []
