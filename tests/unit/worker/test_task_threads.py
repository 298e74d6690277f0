"""Tasks of the thread pool, without a worker."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Barrier, Event, Thread, Timer, get_ident
from typing import Any

import pytest
from celery.concurrency.thread import TaskPool

from celery_ext.worker import task_threads
from celery_ext.worker.task_threads import TaskThreads
from tests.support.conditions import DEADLINE_S, until

LIMIT = 4


@pytest.fixture
def pool() -> Iterator[Any]:
    """Celery's thread pool, with tasks handed out by us."""
    pool = TaskPool(LIMIT)
    assert TaskThreads.of(pool) is not None
    pool.start()
    yield pool
    pool.stop()


def test_each_task_runs_once_in_the_order_of_their_arrival(pool: Any) -> None:
    """Tasks that wait for nothing run all, each with its callbacks, and none twice."""
    begun: list[int] = []
    ended: list[int] = []
    for number in range(1000):
        pool.apply_async(
            lambda number: number,
            (number,),
            accept_callback=lambda pid, at, number=number: begun.append(number),
            callback=ended.append,
        )
    until(lambda: len(ended) == 1000)
    assert sorted(begun) == sorted(ended) == list(range(1000))


def test_tasks_that_wait_have_all_threads(pool: Any) -> None:
    """As many tasks run at a time as the pool has threads, while each waits for the others."""
    together, ended = Barrier(LIMIT), list[Any]()
    for _ in range(3 * LIMIT):
        pool.apply_async(together.wait, (DEADLINE_S,), callback=ended.append)
    until(lambda: len(ended) == 3 * LIMIT)
    assert sorted(ended) == sorted([*range(LIMIT)] * 3)


def test_short_tasks_wake_few_threads(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a thread is about to begin, no other is woken, and the one that has begun runs what waits."""
    woken: list[Any] = []
    monkeypatch.setattr(pool.executor, "submit", woken.append)
    ran: list[int] = []
    for _ in range(100):
        pool.apply_async(get_ident, callback=ran.append)
    assert len(woken) == 1
    woken[0]()
    assert ran == [get_ident()] * 100
    assert len(woken) == 2


def test_an_idle_pool_has_begun_a_task_when_it_is_handed_over(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the thread would wait for the interpreter while the event loop does what comes after the task."""
    woken: list[Any] = []

    def wake_late(run: Any) -> None:
        def begin() -> None:
            woken.append(run)
            run()

        Timer(0.1, begin).start()

    monkeypatch.setattr(pool.executor, "submit", wake_late)
    monkeypatch.setattr(task_threads, "BEGINS_S", 60.0)
    ran, goes_on = list[Any](), Event()
    pool.apply_async(goes_on.wait, (DEADLINE_S,), callback=ran.append)
    assert len(woken) == 1
    pool.apply_async(int, callback=ran.append)  # does not wait: the pool is not idle
    goes_on.set()
    until(lambda: len(ran) == 2)


def test_of_many_short_tasks_only_the_first_waits_for_a_thread(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait is two changes of the thread that has the interpreter."""
    threads, waits, ended = pool.on_apply.__self__, list[float](), list[Any]()
    monkeypatch.setattr(threads._begun, "wait", waits.append)
    monkeypatch.setattr(task_threads, "IDLE_S", 60.0)
    for number in range(1, 4):
        pool.apply_async(int, callback=ended.append)
        until(lambda number=number: (len(ended), threads._awake) == (number, 0))
    assert waits == [task_threads.BEGINS_S]
    monkeypatch.setattr(task_threads, "IDLE_S", 0.0)
    pool.apply_async(int)
    assert len(waits) == 2


def test_an_error_in_a_callback_ends_neither_the_thread_nor_the_rest(pool: Any) -> None:
    """As with Celery's executor, what a callback raises concerns no other task."""

    def fail(found: Any) -> None:
        raise SystemExit(1)

    ended: list[Any] = []
    pool.apply_async(int, callback=fail)
    for _ in range(2 * LIMIT):
        pool.apply_async(int, callback=ended.append)
    until(lambda: len(ended) == 2 * LIMIT)


@contextmanager
def no_new_thread() -> Iterator[None]:
    """Lets the system start no thread."""

    def refuse(self: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Thread, "start", refuse)
        yield


def test_a_pool_goes_on_with_the_threads_that_it_has(pool: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Where the system starts no further thread, those that there are run all tasks, and the log says so once."""
    goes_on, pair, ended = Barrier(3), Barrier(2), list[Any]()
    for _ in range(2):
        pool.apply_async(goes_on.wait, (DEADLINE_S,), callback=ended.append)
    until(lambda: goes_on.n_waiting == 2)
    with no_new_thread():
        for _ in range(10):
            pool.apply_async(pair.wait, (DEADLINE_S,), callback=ended.append)
        goes_on.wait(DEADLINE_S)
        until(lambda: len(ended) == 12)
        until(lambda: pool.on_apply.__self__._awake == 0)
        for _ in range(10):
            pool.apply_async(pair.wait, (DEADLINE_S,), callback=ended.append)
        until(lambda: len(ended) == 22)
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "the pool goes on with 2 of 4 threads until it is restarted: can't start new thread"
    ]


def test_a_pool_that_can_start_no_thread_says_so(pool: Any) -> None:
    """Whoever hands over a task gets the error, as with Celery's executor, and the tasks run once threads can start."""
    together, ended = Barrier(LIMIT), list[Any]()
    with no_new_thread():
        for _ in range(2):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                pool.apply_async(together.wait, (DEADLINE_S,), callback=ended.append)
    for _ in range(LIMIT - 2):
        pool.apply_async(together.wait, (DEADLINE_S,), callback=ended.append)
    until(lambda: len(ended) == LIMIT)
    assert sorted(ended) == [*range(LIMIT)]


def test_what_has_not_begun_is_dropped_when_celery_flushes_the_pool() -> None:
    """A pool that is flushed or stopped ends what runs, and begins nothing more."""
    pool = TaskPool(1)
    threads = TaskThreads.of(pool)
    assert threads is not None
    begun, goes_on, ended = Event(), Event(), list[Any]()
    pool.apply_async(goes_on.wait, (DEADLINE_S,), callback=ended.append, accept_callback=lambda pid, at: begun.set())
    assert begun.wait(DEADLINE_S)
    pool.apply_async(int, callback=ended.append)
    pool.flush()
    goes_on.set()
    pool.stop()
    pool.on_apply(int, callback=ended.append)
    assert (len(threads), ended) == (0, [True])


def test_other_pools_stay_as_they_are() -> None:
    """Only Celery's own thread pool gets tasks handed out by us."""

    class OwnPool(TaskPool):
        """A pool of the user's own."""

    assert TaskThreads.of(OwnPool(1)) is None
