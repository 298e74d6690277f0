"""Results of the prefork pool, with children but without a worker; and what a child writes, in a pipe of our own."""

import os
import pickle
from collections.abc import Callable, Iterator
from struct import pack
from types import SimpleNamespace
from typing import Any

import pytest
from celery.concurrency.asynpool import AsynPool
from celery.concurrency.prefork import TaskPool
from celery.worker import state
from kombu.asynchronous import Hub
from kombu.asynchronous.hub import get_event_loop, set_event_loop

from celery_ext.worker.child_results import ChildResults
from tests.support.conditions import until


@pytest.fixture
def hub() -> Iterator[Any]:
    """An event loop that turns when it is told to."""
    before, hub = get_event_loop(), Hub()
    yield hub
    hub.close()
    set_event_loop(before)


@pytest.fixture
def child(hub: Any) -> Iterator["Child"]:
    """What a child and the loop have of their pipe."""
    child = Child(hub)
    yield child
    hub.remove(child.fd)
    child.close()


@pytest.fixture
def pool(hub: Any) -> Iterator[Any]:
    """A pool of one child, as Celery's prefork pool has it, with results read by us."""
    of_celery = TaskPool(1)
    of_celery._pool = pool = AsynPool(1, threads=False, sched_strategy="fair")
    ChildResults.read_of(of_celery)
    pool.register_with_event_loop(hub)
    yield pool
    until(lambda: hub.run_once() or not pool._cache)  # Celery's terminate reads what a child may be reading, for ever
    pool.terminate()
    pool.join()


class Child:
    """A child that writes to the loop.

    Attributes:
        change: Called with each of its messages.
    """

    def __init__(self, hub: Any) -> None:
        self.fd, self._writes = os.pipe()
        os.set_blocking(self.fd, False)
        self.change: Callable[[str], None] = id
        results = SimpleNamespace(
            fileno_to_outq={self.fd: SimpleNamespace(inqW_fd=-1)}, on_state_change=lambda message: self.change(message)
        )
        pool = SimpleNamespace(outbound_buffer=(), _busy_workers=set(), _all_inqueues=set(), sched_strategy=None)
        hub.add_reader(self.fd, ChildResults(pool, results, hub).on_readable, self.fd)

    def write(self, content: bytes) -> None:
        """Writes to the loop."""
        os.write(self._writes, content)

    def close(self) -> None:
        """Closes both ends."""
        os.close(self._writes)
        os.close(self.fd)


def _message(value: Any) -> bytes:
    content = pickle.dumps(value)
    return pack(">i", len(content)) + content


def test_results_of_any_size_come_once_and_in_order(pool: Any, hub: Any) -> None:
    """Each task is accepted once and has its result, whether a pipe holds that or not."""
    accepted: list[int] = []
    found: list[int] = []
    sizes = [0, 300_000, 5, 70_000, 1] * 4
    for number, size in enumerate(sizes):
        pool.apply_async(
            bytes,
            (size,),
            accept_callback=lambda pid, at, number=number: accepted.append(number),
            callback=lambda result: found.append(len(result)),
        )
    until(lambda: hub.run_once() or len(found) == len(sizes))
    assert (accepted, found) == ([*range(len(sizes))], sizes)


def test_a_child_gets_its_next_task_with_the_turn_that_reads_its_result(pool: Any, hub: Any) -> None:
    """After the turn with the result of a task, the child has the next one already."""
    found: list[int] = []
    for number in range(3):
        pool.apply_async(int, (number,), callback=found.append)
    until(lambda: hub.run_once() or len(found) == 1)
    assert len(pool.outbound_buffer) == 1
    assert pool._busy_workers


def test_a_worker_that_is_to_stop_begins_no_further_task(pool: Any, hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal may come while the loop waits for a result; the turn that reads it gives the child nothing more."""
    found: list[int] = []
    for number in range(3):
        pool.apply_async(int, (number,), callback=found.append)
    monkeypatch.setattr(state, "should_stop", 0)
    until(lambda: hub.run_once() or len(found) == 1)
    assert len(pool.outbound_buffer) == 2
    assert not pool._busy_workers


def test_messages_read_with_one_that_fails_are_handled(hub: Any, child: Child) -> None:
    """What a callback raises reaches the loop, as with Celery, after all that has left the pipe was handled."""
    seen: list[str] = []

    def change(message: str) -> None:
        seen.append(message)
        if message != "c":
            raise SystemExit(message)

    child.change = change
    child.write(b"".join(map(_message, "abc")))
    with pytest.raises(SystemExit):
        hub.run_once()
    assert seen == ["a", "b", "c"]


def test_a_message_in_pieces_does_not_hold_up_those_before_it(hub: Any, child: Child) -> None:
    """Whole messages are handled at once, the rest when it is there."""
    seen: list[str] = []
    child.change = seen.append
    later = _message("later")
    child.write(_message("now") + later[:2])
    hub.run_once()
    assert seen == ["now"]
    child.write(later[2:9])
    hub.run_once()
    child.write(later[9:] + _message("next"))
    hub.run_once()
    assert seen == ["now", "later"]
    hub.run_once()
    assert seen == ["now", "later", "next"]
