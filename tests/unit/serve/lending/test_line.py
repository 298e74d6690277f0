"""The line of those who wait for messages."""

import asyncio
from collections.abc import Sequence
from threading import Event, Lock
from time import monotonic

import pytest

from celery_ext.serve.leases import Lent
from celery_ext.serve.long_poll import Line, LineFull, Want


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

    def lend(self, most: int) -> Lent | None:
        """Hands out the first messages."""
        with self._lock:
            taken, self.messages[:most] = self.messages[:most], []
        return Lent("lease", 0.0, {str(number): {} for number in taken}) if taken else None

    def undo(self, lent: Lent) -> None:
        """Notes what was put back."""
        self.undone += map(int, lent.messages)

    def want(self, most: int = 10) -> Want:
        """What a caller wants of it."""
        return Want("q", most, self.lend, self.undo)


def taken(lent: Lent | None) -> list[int]:
    return [int(tag) for tag in lent.messages] if lent else []


def never() -> "asyncio.Future[None]":
    return asyncio.get_running_loop().create_future()


async def standing(line: Line, count: int) -> None:
    """Waits until so many wait."""
    deadline = monotonic() + 10
    while len(line) != count:
        assert monotonic() < deadline
        await asyncio.sleep(0.005)


def test_who_came_first_is_served_first() -> None:
    """One message at a time goes to those who wait, in the order in which they came, and to no later one."""

    async def run() -> None:
        queue = Queue()
        line = Line(queue.ready, 10)
        takes = []
        for number in range(4):
            takes.append(asyncio.ensure_future(line.take(queue.want(), 30, never())))
            await standing(line, number + 1)
        for number in range(3):
            queue.messages.append(number)
            done, _ = await asyncio.wait(takes[number:], return_when=asyncio.FIRST_COMPLETED)
            assert done == {takes[number]}
            assert taken(takes[number].result()) == [number]
        # A newcomer stands behind whoever waits.
        newcomer = asyncio.ensure_future(line.take(queue.want(), 30, never()))
        queue.messages.append(3)
        assert taken(await takes[3]) == [3]
        await standing(line, 1)
        line.close()
        assert await newcomer is None

    asyncio.run(run())


def test_messages_are_shared_out() -> None:
    """Where all want more than there is, each gets some."""

    async def run() -> None:
        queue = Queue()
        line = Line(queue.ready, 10)
        takes = [asyncio.ensure_future(line.take(queue.want(most), 30, never())) for most in (10, 1, 10)]
        await standing(line, 3)
        queue.messages += range(7)
        assert [len(taken(lent)) for lent in await asyncio.gather(*takes)] == [3, 1, 3]

    asyncio.run(run())


def test_who_gets_nothing_keeps_its_place() -> None:
    """If another process was faster, a waiter goes on to wait, before those who came later."""

    async def run() -> None:
        queue = Queue()
        fooled = Event()

        def ready(queues: Sequence[str]) -> list[int]:
            if not fooled.is_set():
                fooled.set()
                return [1]  # gone before anybody takes it
            return queue.ready(queues)

        line = Line(ready, 10)
        first = asyncio.ensure_future(line.take(queue.want(), 30, never()))
        await standing(line, 1)
        second = asyncio.ensure_future(line.take(queue.want(), 30, never()))
        await standing(line, 2)
        await asyncio.to_thread(fooled.wait, 10)
        queue.messages.append(1)
        assert taken(await first) == [1]
        queue.messages.append(2)
        assert taken(await second) == [2]

    asyncio.run(run())


def test_nobody_looks_when_nobody_waits() -> None:
    """The looks begin with the first who waits, and end with the last."""

    async def run() -> None:
        queue = Queue()
        line = Line(queue.ready, 10)
        assert await line.take(queue.want(), 0.1, never()) is None
        looks = queue.looks
        assert looks > 0
        await asyncio.sleep(0.2)
        assert queue.looks <= looks + 1
        assert len(line) == 0

    asyncio.run(run())


@pytest.mark.parametrize("how", ["gone", "cancelled"])
def test_what_is_taken_for_one_who_has_gone_goes_back(how: str) -> None:
    """Whether the caller has gone or the server cancels the request: messages on their way are put back."""

    async def run() -> None:
        queue = Queue(1)
        begun, go_on = Event(), Event()

        def lend(most: int) -> Lent | None:
            begun.set()
            go_on.wait(10)
            return queue.lend(most)

        line, away = Line(queue.ready, 10), never()
        take = asyncio.ensure_future(line.take(Want("q", 1, lend, queue.undo), 30, away))
        await asyncio.to_thread(begun.wait, 10)
        if how == "gone":
            away.set_result(None)
            go_on.set()
            assert await take is None
        else:
            take.cancel()
            with pytest.raises(asyncio.CancelledError):
                await take
            go_on.set()
        deadline = monotonic() + 10
        while queue.undone != [1]:
            assert monotonic() < deadline
            await asyncio.sleep(0.005)

    asyncio.run(run())


def test_who_has_gone_leaves_the_line_at_once() -> None:
    """It is not served, and those behind it are."""

    async def run() -> None:
        queue = Queue()
        line, away = Line(queue.ready, 10), never()
        gone = asyncio.ensure_future(line.take(queue.want(), 30, away))
        await standing(line, 1)
        other = asyncio.ensure_future(line.take(queue.want(), 30, never()))
        await standing(line, 2)
        away.set_result(None)
        assert await asyncio.wait_for(gone, 5) is None
        queue.messages.append(1)
        assert taken(await other) == [1]
        assert queue.undone == []

    asyncio.run(run())


def test_a_line_has_an_end() -> None:
    """As many wait as may; one more is refused, but may take what is there."""

    async def run() -> None:
        queue, other = Queue(), Queue(1)
        line = Line(queue.ready, 2)
        takes = [asyncio.ensure_future(line.take(queue.want(), 30, never())) for _ in range(2)]
        await standing(line, 2)
        with pytest.raises(LineFull):
            await line.take(queue.want(), 30, never())
        assert taken(await line.take(Want("other", 1, other.lend, other.undo), 30, never())) == [1]
        line.close()
        assert await asyncio.gather(*takes) == [None, None]

    asyncio.run(run())


def test_an_error_reaches_all_who_wait() -> None:
    """If Redis is away, those who wait learn it, and later ones are served once it is back."""

    async def run() -> None:
        queue = Queue()
        fails = Event()

        def ready(queues: Sequence[str]) -> list[int]:
            if fails.is_set():
                raise ConnectionError("away")
            return queue.ready(queues)

        line = Line(ready, 10)
        takes = [asyncio.ensure_future(line.take(queue.want(), 30, never())) for _ in range(2)]
        await standing(line, 2)
        fails.set()
        errors = await asyncio.gather(*takes, return_exceptions=True)
        assert [str(error) for error in errors] == ["away", "away"]
        fails.clear()
        later = asyncio.ensure_future(line.take(queue.want(), 30, never()))
        await standing(line, 1)
        queue.messages.append(1)
        assert taken(await later) == [1]

    asyncio.run(run())
