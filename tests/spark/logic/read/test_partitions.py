"""What waits is cut into windows and partitions of as many messages each, and each message is in one of them."""

from collections.abc import Callable
from itertools import chain, pairwise
from math import inf, nextafter
from typing import Any

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark.read import batch, partitions
from celery_ext.spark.read.partitions import WaitingPartition, WaitingSelection, WindowPartition, plan, windows
from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Offer
from tests.support.spark.reading import FUTURE_MS, fill, ids_of, reader_of, rows_of


@pytest.mark.parametrize(("partitions", "same"), [(1, 1), (7, 30), (7, 1000), (60, 1)])
def test_each_message_is_in_one_of_even_partitions(
    redis_server: PrivateRedis, store: DelayStore, partitions: int, same: int
) -> None:
    """Partitions over several queues have each message once, in order, and differ in size by one at most."""
    expected = [each for queue, count in (("a", 250), ("b", 3), ("c", 47)) for each in fill(store, queue, count, same)]
    reading = reader_of(redis_server, partitions=partitions, page_size=9)
    found = ids_of(reading, reading.partitions())
    assert list(chain(*found)) == expected
    assert {len(ids) for ids in found} <= {300 // partitions, -(-300 // partitions)}
    assert len(found) == partitions


@pytest.mark.parametrize("how", ["transfer", "cancel", "reschedule"])
def test_what_leaves_after_the_planning_hides_and_repeats_no_other(
    redis_server: PrivateRedis, store: DelayStore, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While messages leave between the planning and the reading, and during it, those that stay are read once."""
    monkeypatch.setattr(batch, "BATCH_ROWS", 20)
    past = fill(store, "q", 300, same=7, first_ms=1000.0)
    stay = fill(store, "r", 50)
    reading = reader_of(redis_server, partitions=7, page_size=10, columns="task_id,raw")
    planned = reading.partitions()
    left = iter(past)

    def leave() -> None:
        some = [next(left, "none") for _ in range(10)]
        if how == "transfer":
            store.delivery.transfer("q")
        elif how == "cancel":
            store.lookup.cancel(["q"], some[::2])
        else:
            found = store.lookup.get(["q"], some)
            store.lookup.reschedule("q", [Change(one, FUTURE_MS, b"new") for each in found.values() for one in each])

    leave()
    seen = list(chain(*ids_of(reading, planned, leave)))
    now = {row["task_id"] for part in reader_of(redis_server).partitions() for row in rows_of(reading, part)}
    always = [each for each in past + stay if each in now and (how != "reschedule" or each in stay)]
    assert [each for each in seen if each in set(always)] == always
    assert len(always) < 350
    if how != "reschedule":  # which moves a message to where it is yet to be read
        assert len(seen) == len(set(seen))


def test_queues_are_those_named_or_all(redis_server: PrivateRedis, store: DelayStore) -> None:
    """Without the option all queues are read, with it those named, once each; an unknown one is empty."""
    for queue in ("a", "b", "c"):
        fill(store, queue, 2)

    def found(**options: Any) -> list[str]:
        reading = reader_of(redis_server, **options)
        return [row["queue"] for part in reading.partitions() for row in rows_of(reading, part)]

    assert found() == ["a", "a", "b", "b", "c", "c"]
    assert found(queue="c, a,c") == ["c", "c", "a", "a"]
    assert found(queue="unknown") == []
    assert found(queue="unknown,b") == ["b", "b"]


def test_nothing_waits(redis_server: PrivateRedis, store: DelayStore) -> None:
    """Without messages there is one partition, and in it what has come to the queues since."""
    assert reader_of(redis_server, partitions=5).partitions() == [WaitingPartition([], frozenset())]
    reading = reader_of(redis_server, partitions=5, queue="b,a")
    planned = reading.partitions()
    assert ids_of(reading, planned) == [[]]
    expected = [fill(store, queue, 3) for queue in "ba"]
    fill(store, "not asked for", 3)
    assert ids_of(reading, planned) == [[*chain(*expected)]]


@pytest.mark.parametrize("partitions", [1, 3])
def test_queues_that_come_later_are_read_by_the_same_plan(
    redis_server: PrivateRedis, store: DelayStore, partitions: int
) -> None:
    """A plan for all queues has each message once, also those of queues that came after it."""
    expected = fill(store, "a", 10)
    reading = reader_of(redis_server, partitions=partitions, due_after="2100-01-01T00:00:00Z")
    planned = reading.partitions()
    expected += fill(store, "b", 10) + fill(store, "a", 10, prefix="again")
    fill(store, "d", 3, first_ms=1000.0)  # due before what is wanted
    assert sorted(chain(*ids_of(reading, planned))) == sorted(expected)


def test_many_messages_make_several_partitions(
    redis_server: PrivateRedis, store: DelayStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the option the number of partitions follows from the number of messages, not of queues."""
    monkeypatch.setattr(partitions, "PARTITION_MESSAGES", 100)
    for queue in range(10):
        fill(store, str(queue), 25)
    reading = reader_of(redis_server)
    assert list(map(len, ids_of(reading, reading.partitions()))) == [83, 83, 84]


def test_batches_are_bounded_in_rows_and_in_bytes(
    redis_server: PrivateRedis, store: DelayStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch takes no further page when it has so many rows, or so many bytes of messages."""
    fill(store, "q", 100)
    monkeypatch.setattr(batch, "BATCH_ROWS", 30)
    reading = reader_of(redis_server, page_size=10, partitions=1)  # so short ones never end early
    [partition] = reading.partitions()
    assert [each.num_rows for each in reading.read(partition)] == [30, 30, 30, 10]
    monkeypatch.setattr(batch, "BATCH_BYTES", 200)
    assert [each.num_rows for each in reading.read(partition)] == [20] * 5


def test_bodies_are_fetched_for_the_columns_that_need_them(redis_server: PrivateRedis, store: DelayStore) -> None:
    """Queue, due time, id and size are read without bodies, but for messages that share an id with another."""
    fill(store, "q", 10)

    def fetched(columns: str) -> int:
        before = store.client.info("commandstats").get("cmdstat_hmget", {"calls": 0})["calls"]
        reading = reader_of(redis_server, columns=columns)
        assert sum(len(list(rows_of(reading, part))) for part in reading.partitions()) == store.queues.size("q")
        after = store.client.info("commandstats").get("cmdstat_hmget", {"calls": 0})["calls"]
        return int(after - before)

    assert fetched("queue,due,task_id,size") == 0
    assert fetched("due,task") == 1
    store.delivery.offer("q", Offer("q-00000", repr(FUTURE_MS), 0, "another body"))
    assert fetched("queue,due,size") == 0
    assert fetched("task_id") == 1


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("selection", [WaitingSelection(), WaitingSelection(None, FUTURE_MS + 7, FUTURE_MS + 90)])
def test_windows_have_each_due_time_once_and_equal_shares(
    store: DelayStore, count: int, selection: WaitingSelection
) -> None:
    """Windows of several queues follow one another without a gap, and get about as many messages each."""
    queues = [f"q{number}" for number in range(5)]
    for number, queue in enumerate(queues):
        fill(store, queue, 200, same=number + 1)
    found = windows(store, selection, count)
    assert [found[0].from_ms, found[-1].to_ms] == [selection.from_ms, selection.to_ms]
    assert all(one.to_ms == next_one.from_ms for one, next_one in pairwise(found))
    assert all(one.from_ms < one.to_ms for one in found)
    assert count - 1 <= len(found) <= count
    sizes = [sum(store.scan.count(queue, one.from_ms, one.to_ms) for queue in queues) for one in found]
    assert max(sizes) <= 1.6 * sum(sizes) / count


def test_messages_of_one_due_time_are_in_one_window(store: DelayStore) -> None:
    """Where all are due at once there is one window with messages, whatever number of windows is wanted."""
    assert windows(store, WaitingSelection(), 8) == [WindowPartition(-inf, inf)]
    fill(store, "q", 100, same=100)
    after = nextafter(FUTURE_MS, inf)
    assert windows(store, WaitingSelection(), 4) == [WindowPartition(-inf, after), WindowPartition(after, inf)]


@pytest.mark.parametrize("planned", [plan, windows])
def test_a_queue_without_messages_is_told(
    store: DelayStore, planned: Callable[..., object], caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever names a queue in whose list messages are ready learns why there are no rows."""
    fill(store, "full", 3)
    store.delivery.push("ready", Offer("i", "", 0, "body"))
    planned(store, WaitingSelection(("full", "ready")), None)
    assert caplog.messages == ["nothing waits in the queue ready until such a time; what is ready needs messages=ready"]
    planned(store, WaitingSelection(), None)
    assert len(caplog.messages) == 1
