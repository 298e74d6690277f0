"""The line of those who wait for messages, in one event loop."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import ceil
from time import monotonic
from typing import Any, TypeVar

from celery_ext.serve.leases import Lent

T = TypeVar("T")

#: While somebody waits, one call to Redis looks at all queues that are waited for, after pauses of so long in s, or of
#: so many times the length of the call, up to a second: many queues, or a slow Redis, are looked at more rarely.
PAUSE_S, PAUSE_SHARE, LONGEST_PAUSE_S = 0.02, 20.0, 1.0
#: Most threads of an event loop that take messages at once; one more looks.
TAKERS = 8


class LineFull(Exception):
    """As many wait as may wait."""


@dataclass(frozen=True)
class Want:
    """What a caller wants.

    Attributes:
        queue: Name of the queue.
        most: The most messages.
        lend: Takes at most so many messages, or none; called in a thread.
        undo: Puts back what was taken for a caller who has gone; called in a thread.
    """

    queue: str
    most: int
    lend: Callable[[int], Lent | None]
    undo: Callable[[Lent], object]


class _Waiter:
    def __init__(self, want: Want) -> None:
        self.want = want
        self.share = 0  # how many messages it may take now
        self.turn = asyncio.Event()
        self.error: Exception | None = None


class Line:
    """Those who wait for messages of queues, each queue's in the order in which they came.

    No thread waits with them: one look for all finds out which queues have messages, and whose turn it is takes some.
    If fewer have come than are waited for, they are shared out, so that no one gets many while others get none.

    Args:
        ready: Counts the messages that are ready in queues; called in a thread.
        longest: How many may wait.
    """

    def __init__(self, ready: Callable[[Sequence[str]], list[int]], longest: int) -> None:
        self._ready = ready
        self._longest = longest
        self._waiters: dict[str, list[_Waiter]] = {}
        self._watch: asyncio.Task[None] | None = None
        self._threads = ThreadPoolExecutor(TAKERS + 1, "delayq-lend")
        self._fetchers = asyncio.Semaphore(TAKERS)
        self._is_closed = False

    def __len__(self) -> int:
        return sum(map(len, self._waiters.values()))

    async def take(self, want: Want, wait_s: float, away: asyncio.Future[Any]) -> Lent | None:
        """Takes messages as soon as there are any.

        Args:
            want: What the caller wants.
            wait_s: How long to wait, in s.
            away: Done once the caller does not wait any more. Nothing is taken then, and what was taken goes back.

        Returns:
            The messages; None if none came in time.

        Raises:
            LineFull: Others wait already, as many as may.
        """
        until = monotonic() + wait_s
        if want.queue not in self._waiters or wait_s <= 0:
            lent = await self._lend(want, want.most, away)
            if lent is not None or wait_s <= 0:
                return lent
        if len(self) >= self._longest:
            raise LineFull
        waiter = self._join(want)
        try:
            return await self._stand(waiter, until, away)
        finally:
            self._leave(waiter)

    def close(self) -> None:
        """Lets all who wait go, with nothing; later ones do not wait either."""
        self._is_closed = True
        for waiter in self._all():
            waiter.turn.set()

    async def _stand(self, waiter: _Waiter, until: float, away: asyncio.Future[Any]) -> Lent | None:
        away.add_done_callback(wake := lambda _: waiter.turn.set())
        try:
            while not self._is_closed and not away.done():
                try:
                    await asyncio.wait_for(waiter.turn.wait(), max(until - monotonic(), 0))
                except TimeoutError:
                    return None
                if waiter.error is not None:
                    raise waiter.error
                if waiter.share and (lent := await self._lend(waiter.want, waiter.share, away)) is not None:
                    return lent
                waiter.share = 0  # others were faster; it keeps its place
                waiter.turn.clear()
            return None
        finally:
            away.remove_done_callback(wake)

    async def _lend(self, want: Want, most: int, away: asyncio.Future[Any]) -> Lent | None:
        """Takes messages in a thread. What comes when the caller has gone goes back."""
        taking = asyncio.ensure_future(self._in_thread(want.lend, most))
        try:
            lent = await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(lambda done: self._undo(want, done))
            raise
        if lent is not None and away.done():
            await self._in_thread(want.undo, lent)
            return None
        return lent

    def _undo(self, want: Want, done: asyncio.Future[Lent | None]) -> None:
        if not done.cancelled() and done.exception() is None and (lent := done.result()) is not None:
            self._threads.submit(want.undo, lent)

    async def _in_thread(self, act: Callable[[Any], T], argument: Any) -> T:
        async with self._fetchers:
            return await asyncio.get_running_loop().run_in_executor(self._threads, act, argument)

    async def _look(self) -> None:
        """Looks at the queues for as long as somebody waits."""
        while self._waiters:
            begun = monotonic()
            queues = [*self._waiters]
            try:
                counts = await asyncio.get_running_loop().run_in_executor(self._threads, self._ready, queues)
            except Exception as error:
                for waiter in self._all():
                    waiter.error = error
                    waiter.turn.set()
            else:
                for queue, count in zip(queues, counts, strict=True):
                    self._share_out(queue, count)
            took_s = monotonic() - begun
            await asyncio.sleep(min(max(PAUSE_S, PAUSE_SHARE * took_s), LONGEST_PAUSE_S))

    def _share_out(self, queue: str, count: int) -> None:
        waiters = self._waiters.get(queue, ())
        idle = [waiter for waiter in waiters if not waiter.share]
        left = count - sum(waiter.share for waiter in waiters)
        each = ceil(left / max(len(idle), 1))
        for waiter in idle:
            if left <= 0:
                return
            waiter.share = min(waiter.want.most, each, left)
            left -= waiter.share
            waiter.turn.set()

    def _join(self, want: Want) -> _Waiter:
        waiter = _Waiter(want)
        self._waiters.setdefault(want.queue, []).append(waiter)
        if self._watch is None or self._watch.done():
            self._watch = asyncio.get_running_loop().create_task(self._look())
        return waiter

    def _leave(self, waiter: _Waiter) -> None:
        queue = waiter.want.queue
        self._waiters[queue].remove(waiter)
        if not self._waiters[queue]:
            del self._waiters[queue]

    def _all(self) -> list[_Waiter]:
        return [waiter for waiters in self._waiters.values() for waiter in waiters]
