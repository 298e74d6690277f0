"""The requests of those who wait for messages."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from threading import Event, Lock
from time import monotonic
from typing import Any

import pytest

from celery_ext.serve.leases import Received
from celery_ext.serve.long_poll import TakeRequest, TooManyWait, WaitingRequests
from tests.support.conditions import DEADLINE_S


class Queue:
    """A queue in memory. Others may take its messages, too."""

    def __init__(self, *messages: int) -> None:
        self.messages = [*messages]
        self.undone: list[int] = []
        self.looks = 0
        self._lock = Lock()

    def ready(self, queues: Sequence[str]) -> list[int]:
        """Counts its messages, whatever its name is."""
        self.looks += 1
        return [len(self.messages) for _ in queues]

    def receive(self, most: int) -> Received | None:
        """Hands out the first messages."""
        with self._lock:
            taken, self.messages[:most] = self.messages[:most], []
        return Received("lease", 0.0, {str(number): {} for number in taken}) if taken else None

    def undo(self, received: Received) -> None:
        """Notes what was put back."""
        self.undone += map(int, received.messages)

    def want(self, most: int = 10) -> TakeRequest:
        """What a caller wants of it."""
        return TakeRequest("q", most, self.receive, self.undo)


def taken(received: Received | None) -> list[int]:
    return [int(tag) for tag in received.messages] if received else []


def never() -> "asyncio.Future[None]":
    return asyncio.get_running_loop().create_future()


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test in an event loop of its own."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def soon(condition: Callable[[], object]) -> None:
    """Waits for a condition, as ``until`` does, while the loop goes on."""
    deadline = monotonic() + DEADLINE_S
    while not condition():
        assert monotonic() < deadline
        await asyncio.sleep(0.005)


async def standing(requests: WaitingRequests, count: int) -> None:
    """Waits until so many wait."""
    await soon(lambda: len(requests) == count)


@in_a_loop
async def test_who_came_first_is_served_first() -> None:
    """One message at a time goes to those who wait, in the order in which they came, and to no later one."""
    queue = Queue()
    requests = WaitingRequests(queue.ready, 10)
    takes = []
    for number in range(4):
        takes.append(asyncio.ensure_future(requests.take(queue.want(), 30, never())))
        await standing(requests, number + 1)
    for number in range(3):
        queue.messages.append(number)
        done, _ = await asyncio.wait(takes[number:], return_when=asyncio.FIRST_COMPLETED)
        assert done == {takes[number]}
        assert taken(takes[number].result()) == [number]
    # A newcomer stands behind whoever waits.
    newcomer = asyncio.ensure_future(requests.take(queue.want(), 30, never()))
    queue.messages.append(3)
    assert taken(await takes[3]) == [3]
    await standing(requests, 1)
    requests.close()
    assert await newcomer is None


@in_a_loop
async def test_messages_are_shared_out() -> None:
    """Where all want more than there is, each gets some."""
    queue = Queue()
    requests = WaitingRequests(queue.ready, 10)
    takes = [asyncio.ensure_future(requests.take(queue.want(most), 30, never())) for most in (10, 1, 10)]
    await standing(requests, 3)
    queue.messages += range(7)
    assert [len(taken(received)) for received in await asyncio.gather(*takes)] == [3, 1, 3]


@in_a_loop
async def test_who_gets_nothing_keeps_its_place() -> None:
    """If another process was faster, a waiter goes on to wait, before those who came later."""
    queue = Queue()
    fooled = Event()

    def ready(queues: Sequence[str]) -> list[int]:
        if not fooled.is_set():
            fooled.set()
            return [1]  # gone before anybody takes it
        return queue.ready(queues)

    requests = WaitingRequests(ready, 10)
    first = asyncio.ensure_future(requests.take(queue.want(), 30, never()))
    await standing(requests, 1)
    second = asyncio.ensure_future(requests.take(queue.want(), 30, never()))
    await standing(requests, 2)
    await asyncio.to_thread(fooled.wait, DEADLINE_S)
    queue.messages.append(1)
    assert taken(await first) == [1]
    queue.messages.append(2)
    assert taken(await second) == [2]


@in_a_loop
async def test_nobody_looks_when_nobody_waits() -> None:
    """The looks begin with the first who waits, and end with the last."""
    queue = Queue()
    requests = WaitingRequests(queue.ready, 10)
    assert await requests.take(queue.want(), 0.1, never()) is None
    away = never()
    take = asyncio.ensure_future(requests.take(queue.want(), 60, away))
    await soon(lambda: queue.looks)
    away.set_result(None)
    assert await take is None
    looks = queue.looks
    await asyncio.sleep(0.2)
    assert queue.looks <= looks + 1
    assert len(requests) == 0


@pytest.mark.parametrize("how", ["gone", "cancelled"])
@in_a_loop
async def test_what_is_taken_for_one_who_has_gone_goes_back(how: str) -> None:
    """Whether the caller has gone or the server cancels the request: messages on their way are put back."""
    queue = Queue(1)
    begun, go_on = Event(), Event()

    def receive(most: int) -> Received | None:
        begun.set()
        go_on.wait(DEADLINE_S)
        return queue.receive(most)

    requests, away = WaitingRequests(queue.ready, 10), never()
    take = asyncio.ensure_future(requests.take(TakeRequest("q", 1, receive, queue.undo), 30, away))
    await asyncio.to_thread(begun.wait, DEADLINE_S)
    if how == "gone":
        away.set_result(None)
        go_on.set()
        assert await take is None
    else:
        take.cancel()
        with pytest.raises(asyncio.CancelledError):
            await take
        go_on.set()
    await soon(lambda: queue.undone == [1])


@in_a_loop
async def test_who_has_gone_does_not_wait_on() -> None:
    """It is not served, and those behind it are."""
    queue = Queue()
    requests, away = WaitingRequests(queue.ready, 10), never()
    gone = asyncio.ensure_future(requests.take(queue.want(), 30, away))
    await standing(requests, 1)
    other = asyncio.ensure_future(requests.take(queue.want(), 30, never()))
    await standing(requests, 2)
    away.set_result(None)
    assert await asyncio.wait_for(gone, 25) is None
    queue.messages.append(1)
    assert taken(await other) == [1]
    assert queue.undone == []


@in_a_loop
async def test_not_all_may_wait() -> None:
    """As many wait as may; one more is refused, but may take what is there."""
    queue, other = Queue(), Queue(1)
    requests = WaitingRequests(queue.ready, 2)
    takes = [asyncio.ensure_future(requests.take(queue.want(), 30, never())) for _ in range(2)]
    await standing(requests, 2)
    with pytest.raises(TooManyWait):
        await requests.take(queue.want(), 30, never())
    assert taken(await requests.take(TakeRequest("other", 1, other.receive, other.undo), 30, never())) == [1]
    requests.close()
    assert await asyncio.gather(*takes) == [None, None]


@in_a_loop
async def test_an_error_reaches_all_who_wait() -> None:
    """If Redis is away, those who wait learn it, and later ones are served once it is back."""
    queue = Queue()
    fails = Event()

    def ready(queues: Sequence[str]) -> list[int]:
        if fails.is_set():
            raise ConnectionError("away")
        return queue.ready(queues)

    requests = WaitingRequests(ready, 10)
    takes = [asyncio.ensure_future(requests.take(queue.want(), 30, never())) for _ in range(2)]
    await standing(requests, 2)
    fails.set()
    errors = await asyncio.gather(*takes, return_exceptions=True)
    assert [str(error) for error in errors] == ["away", "away"]
    fails.clear()
    later = asyncio.ensure_future(requests.take(queue.want(), 30, never()))
    await standing(requests, 1)
    queue.messages.append(1)
    assert taken(await later) == [1]
