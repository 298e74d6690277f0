"""The requests that wait for messages, in one event loop."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import ceil
from time import monotonic
from typing import Any, TypeVar

from celery_ext.serve.leases import Received

T = TypeVar("T")

#: While somebody waits, one call to Redis looks at all queues that are waited for, after pauses of so long in s, or of
#: so many times the length of the call, up to a second: many queues, or a slow Redis, are looked at more rarely.
PAUSE_S, PAUSE_SHARE, LONGEST_PAUSE_S = 0.02, 20.0, 1.0
#: Most threads of an event loop that receive messages at once; one more looks.
RECEIVERS = 8


class TooManyWait(Exception):
    """As many wait as may wait."""


@dataclass(frozen=True)
class TakeRequest:
    """What a caller wants.

    Attributes:
        queue: Name of the queue.
        most: The most messages.
        receive: Takes at most so many messages, or none; called in a thread.
        undo: Puts back what was taken for a caller who has gone; called in a thread.
    """

    queue: str
    most: int
    receive: Callable[[int], Received | None]
    undo: Callable[[Received], object]


class _Waiting:
    def __init__(self, wanted: TakeRequest) -> None:
        self.wanted = wanted
        self.allotted = 0  # how many messages it may take now
        self.turn = asyncio.Event()
        self.error: Exception | None = None


class WaitingRequests:
    """The requests that wait for messages, those of each queue in the order in which they came.

    No thread waits with them: one look for all finds out which queues have messages, and the requests whose turn it is
    receive some. Where more is waited for than has come, it is shared out: no request gets many while others get none.

    Args:
        ready: Counts the messages that are ready in queues; called in a thread.
        longest: How many may wait.
    """

    def __init__(self, ready: Callable[[Sequence[str]], list[int]], longest: int) -> None:
        self._ready = ready
        self._longest = longest
        self._waiting: dict[str, list[_Waiting]] = {}
        self._watch: asyncio.Task[None] | None = None
        self._threads = ThreadPoolExecutor(RECEIVERS + 1, "delayq-receive")
        self._receivers = asyncio.Semaphore(RECEIVERS)
        self._is_closed = False

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    async def take(self, wanted: TakeRequest, wait_s: float, away: asyncio.Future[Any]) -> Received | None:
        """Takes messages as soon as there are any.

        Args:
            wanted: What the caller wants.
            wait_s: How long to wait, in s.
            away: Done once the caller does not wait any more. Nothing is taken then, and what was taken goes back.

        Returns:
            The messages; None if none came in time.

        Raises:
            TooManyWait: Others wait already, as many as may.
        """
        until = monotonic() + wait_s
        if wanted.queue not in self._waiting or wait_s <= 0:
            received = await self._receive(wanted, wanted.most, away)
            if received is not None or wait_s <= 0:
                return received
        if len(self) >= self._longest:
            raise TooManyWait
        one = _Waiting(wanted)
        self._waiting.setdefault(wanted.queue, []).append(one)
        if self._watch is None or self._watch.done():
            self._watch = asyncio.get_running_loop().create_task(self._look())
        try:
            return await self._stand(one, until, away)
        finally:
            self._waiting[wanted.queue].remove(one)
            if not self._waiting[wanted.queue]:
                del self._waiting[wanted.queue]

    def close(self) -> None:
        """Lets all who wait go, with nothing; later ones do not wait either."""
        self._is_closed = True
        for one in self._all():
            one.turn.set()

    async def _stand(self, one: _Waiting, until: float, away: asyncio.Future[Any]) -> Received | None:
        away.add_done_callback(wake := lambda _: one.turn.set())
        try:
            while not self._is_closed and not away.done():
                try:
                    await asyncio.wait_for(one.turn.wait(), max(until - monotonic(), 0))
                except TimeoutError:
                    return None
                if one.error is not None:
                    raise one.error
                if one.allotted and (received := await self._receive(one.wanted, one.allotted, away)) is not None:
                    return received
                one.allotted = 0  # others were faster; it keeps its place
                one.turn.clear()
            return None
        finally:
            away.remove_done_callback(wake)

    async def _receive(self, wanted: TakeRequest, most: int, away: asyncio.Future[Any]) -> Received | None:
        """Takes messages in a thread. What comes when the caller has gone goes back."""
        taking = asyncio.ensure_future(self._in_thread(wanted.receive, most))
        try:
            received = await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(lambda done: self._undo(wanted, done))
            raise
        if received is not None and away.done():
            await self._in_thread(wanted.undo, received)
            return None
        return received

    def _undo(self, wanted: TakeRequest, done: asyncio.Future[Received | None]) -> None:
        if not done.cancelled() and done.exception() is None and (received := done.result()) is not None:
            self._threads.submit(wanted.undo, received)

    async def _in_thread(self, act: Callable[[Any], T], argument: Any) -> T:
        async with self._receivers:
            return await asyncio.get_running_loop().run_in_executor(self._threads, act, argument)

    async def _look(self) -> None:
        """Looks at the queues for as long as somebody waits."""
        while self._waiting:
            begun = monotonic()
            queues = [*self._waiting]
            try:
                counts = await asyncio.get_running_loop().run_in_executor(self._threads, self._ready, queues)
            except Exception as error:
                for one in self._all():
                    one.error = error
                    one.turn.set()
            else:
                for queue, count in zip(queues, counts, strict=True):
                    self._share_out(queue, count)
            took_s = monotonic() - begun
            await asyncio.sleep(min(max(PAUSE_S, PAUSE_SHARE * took_s), LONGEST_PAUSE_S))

    def _share_out(self, queue: str, count: int) -> None:
        waiting = self._waiting.get(queue, ())
        idle = [one for one in waiting if not one.allotted]
        left = count - sum(one.allotted for one in waiting)
        each = ceil(left / max(len(idle), 1))
        for one in idle:
            if left <= 0:
                return
            one.allotted = min(one.wanted.most, each, left)
            left -= one.allotted
            one.turn.set()

    def _all(self) -> list[_Waiting]:
        return [one for waiting in self._waiting.values() for one in waiting]
