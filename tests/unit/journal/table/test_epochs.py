"""Epochs end with a loss of Redis, and what was lost in them is found."""

from collections.abc import Callable

import pytest
from sqlalchemy import event

from celery_ext.journal.facts import Watermarks
from celery_ext.journal.journal import Journal
from tests.support.journal.additions import DUE_MS, addition


def _lost_ids(journal: Journal, epoch: int) -> list[str]:
    return [
        row.id for queue, given in journal.lost_in().get(epoch, []) for row in journal.lost(epoch, queue, given=given)
    ]


def test_a_loss_ends_an_epoch_once(journal: Journal) -> None:
    """Two who notice the same loss end one epoch, with the watermarks of then."""
    journal.set_watermarks(5000.0, {"slow": 3000.0})
    assert journal.end_epoch(6000.0, 1) == 2
    assert journal.end_epoch(6001.0, 1) == 2
    journal.set_watermarks(9000.0, {})
    [ended] = journal.unrestored()
    assert (ended.epoch, ended.ended_ms) == (1, 6000.0)
    assert ended.watermarks == Watermarks(5000.0, {"slow": 3000.0})
    assert (ended.watermarks.of("slow"), ended.watermarks.of("orders")) == (3000.0, 5000.0)
    journal.finish_restore([1], 7000.0)
    assert journal.unrestored() == []
    assert [one.restored_ms for one in journal.epochs()] == [7000.0]


def test_what_had_left_redis_is_not_lost(journal: Journal) -> None:
    """Lost is what was offered in the epoch and is due from the watermark of its queue on."""
    journal.add([addition(number, queue=queue) for queue in ("orders", "slow") for number in range(4)], offered=True)
    journal.add([addition(9)])
    journal.set_watermarks(DUE_MS + 2000, {"slow": DUE_MS + 1000})
    journal.end_epoch(DUE_MS)
    journal.add([addition(8)], offered=True)
    assert _lost_ids(journal, 1) == ["id-2", "id-3", "id-1", "id-2", "id-3"]
    assert journal.count_lost() == {1: 5}
    [first] = journal.lost(1, "slow", count=1)
    assert [row.id for row in journal.lost(1, "slow", after=(first.due_ms, first.seq))] == ["id-2", "id-3"]
    assert [row.id for row in journal.lost(1, "slow", from_ms=DUE_MS + 3000)] == ["id-3"]
    assert _lost_ids(journal, 2) == []


def test_a_restore_can_begin_anew(journal: Journal) -> None:
    """Rows that wait again, or that Redis has still, are no longer among the lost; a second loss finds them."""
    numbers = journal.add([addition(number) for number in range(4)], offered=True)
    journal.end_epoch(DUE_MS)
    first, second, third, _ = [number for number in numbers if number is not None]
    [again] = journal.wait_again([first])
    assert again.seq not in numbers
    assert journal.wait_again([first]) == []
    assert journal.keep([second, third]) == {second, third}
    assert _lost_ids(journal, 1) == ["id-3"]
    assert journal.sizes() == {"orders": (1, 3)}
    assert journal.totals().restored == 1
    journal.finish_restore([1], DUE_MS)
    journal.end_epoch(DUE_MS)
    assert _lost_ids(journal, 2) == ["id-1", "id-2"]


def test_rows_of_messages_that_are_missing_wait_for_a_restore(journal: Journal) -> None:
    """No check compares them with Redis again, status counts them, and a restore, a cancel or a purge ends them."""
    first, second, third, _ = journal.add([addition(number) for number in range(4)], offered=True)
    journal.set_watermarks(DUE_MS, {})
    journal.set_watermarks(DUE_MS, {})
    assert first and second and third  # noqa: PT018
    assert (journal.written_before(), journal.last_number(), journal.missing_ms()) == (third + 1, third + 1, 0.0)
    assert [row.seq for row in journal.written(first, third, DUE_MS + 1500)] == [second]
    [waiting] = journal.add([addition(5)])
    assert waiting is not None
    journal.note_missing([first, second, third, waiting], 7000.0)
    assert [row.id for row in journal.offered("orders")] == ["id-3"]
    assert [row.id for row in journal.missing("orders")] == ["id-0", "id-1", "id-2"]
    assert (journal.queues_missing(), journal.count_missing(), journal.missing_ms()) == (["orders"], 3, 7000.0)
    assert journal.trim(0.0) == 0
    assert journal.keep([second]) == {second}
    assert [row.id for row in journal.wait_again([first])] == ["id-0"]
    assert journal.sizes() == {"orders": (2, 3)}
    assert journal.purge("orders").offered == 3
    assert journal.missing_ms() == 0.0


def test_rows_of_the_epoch_to_come_are_not_lost(journal: Journal) -> None:
    """What Redis is given after a loss that nobody has noted yet belongs to the next epoch."""
    journal.add([addition(1)], offered=True)
    [number] = journal.add([addition(2)], offered=True, epoch=journal.epoch() + 1)
    assert [row.id for row in journal.offered("orders")] == ["id-1", "id-2"]
    journal.end_epoch(DUE_MS)
    assert _lost_ids(journal, 1) == ["id-1"]
    assert [row.seq for row in journal.offered("orders")] == [number]


def test_rows_of_the_current_epoch_are_not_taken_for_lost(journal: Journal) -> None:
    """A restore changes no row that Redis was given after the loss."""
    [number] = journal.add([addition(1)], offered=True)
    assert number is not None
    assert journal.wait_again([number]) == []
    assert journal.keep([number]) == set()
    assert [row.seq for row in journal.offered("orders")] == [number]


def test_rows_of_other_queues_are_not_taken_for_lost(journal: Journal) -> None:
    """Where one queue loses its data, what Redis was given of the others is still there, whatever epoch it is from."""
    for queue in ("lost", "orders"):
        journal.add([addition(number, queue=queue) for number in (1, 3)], offered=True)
    assert journal.end_epoch(DUE_MS, 1, ["lost"]) == 2
    journal.add([addition(number, queue=queue) for queue in ("new", "orders") for number in (2, 4)], offered=True)
    assert journal.queues_in_redis() == ["new", "orders"]
    assert journal.offered("lost") == []
    assert [row.id for row in journal.offered("orders")] == ["id-1", "id-2", "id-3", "id-4"]
    first, second, *_ = journal.offered("orders")
    assert journal.offered("orders", count=2) == [first, second]
    after = second.due_ms, second.seq
    assert [row.id for row in journal.offered("orders", after)] == ["id-3", "id-4"]
    journal.end_epoch(DUE_MS)
    assert journal.queues_in_redis() == journal.offered("orders") == []


def test_trim_keeps_what_may_be_lost(journal: Journal) -> None:
    """Rows of delivered messages go after the retention, a part at a time; those of an open loss stay."""
    journal.add([addition(number) for number in range(6)], offered=True)
    journal.set_watermarks(DUE_MS + 2000, {})
    journal.end_epoch(DUE_MS)
    journal.add([addition(number, queue="slow") for number in range(6)], offered=True)
    journal.add([addition(1, due_ms=0.0, queue="waits")])
    journal.set_watermarks(DUE_MS + 5000, {"slow": DUE_MS + 3000})
    assert journal.trim(1000.0, count=3) == 3
    assert journal.trim(1000.0, count=3) == 1
    assert journal.trim(1000.0) == 0
    assert journal.sizes() == {"orders": (0, 4), "slow": (0, 4), "waits": (1, 0)}
    assert _lost_ids(journal, 1) == ["id-2", "id-3", "id-4", "id-5"]
    journal.finish_restore([1], DUE_MS)
    assert journal.trim(1000.0) == 2


#: Looks that go through all epochs with rows.
LOOKS: list[Callable[[Journal], object]] = [
    lambda journal: journal.queues_in_redis(),
    lambda journal: journal.offered("orders"),
    lambda journal: journal.lost_in(),
    lambda journal: journal.count_lost(),
    lambda journal: journal.trim(1000.0),
    lambda journal: journal.purge("others"),
]


@pytest.mark.parametrize("look", LOOKS)
def test_ended_epochs_without_rows_cost_no_statement(journal: Journal, look: Callable[[Journal], object]) -> None:
    """A look at a journal with thousands of losses behind it asks about the epochs that rows are from."""
    statements: list[str] = []

    def count() -> int:
        statements.clear()
        look(journal)
        return len(statements)

    [number] = journal.add([addition(1)], offered=True)
    assert number is not None
    event.listen(journal.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    for _ in range(2):  # what a process does once, and the first end
        before = count()
        journal.end_epoch(DUE_MS)
        journal.keep([number])
    for _ in range(50):
        journal.end_epoch(DUE_MS)
        journal.keep([number])
    assert count() == before


def test_restored_epochs_go_with_their_rows(journal: Journal) -> None:
    """A trim forgets a restored epoch unless a row is from before its end; one that is not restored stays."""
    numbers = journal.add([addition(0), addition(9)], offered=True)
    for _ in range(5):
        journal.end_epoch(DUE_MS, None, ["slow"])
    journal.finish_restore([1, 2, 4, 5], DUE_MS)
    journal.trim(0.0)
    assert [one.epoch for one in journal.epochs()] == [1, 2, 3, 4, 5]
    journal.keep([number for number in numbers if number is not None])
    journal.trim(0.0)
    assert [one.epoch for one in journal.epochs()] == [3]
    assert journal.queues_in_redis() == ["orders"]
    journal.finish_restore([3], DUE_MS)
    journal.trim(0.0)
    assert (journal.epochs(), journal.epoch()) == ([], 6)
