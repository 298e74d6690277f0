"""Tasks of the thread pool: a thread that is awake takes the next one, and wakes one other thread at most."""

from collections import deque
from math import inf
from threading import Event, Lock
from time import monotonic
from typing import Any, Self

from celery.concurrency import thread
from celery.concurrency.base import apply_target
from kombu.log import get_logger

logger = get_logger(__name__)

#: How long a thread that is woken may take until it begins, in s, before the one that hands it a task goes on.
BEGINS_S = 0.001
#: After a task, how long until the next one finds an idle pool, in s. To wait for each of many short tasks would cost a
#: third of them.
IDLE_S = 0.002


class TaskThreads:
    """Hands tasks to the threads of Celery's pool ``threads``.

    The pool's executor wakes a thread for each task. With short tasks most of these find that another thread has
    done the work, and all of them compete for the interpreter. Here a thread goes on with the next task, and before it
    begins one, it wakes one further thread if there is more to do. While that thread has not begun, no other is woken:
    it begins as soon as a task waits for something, or has computed for the interpreter's switch interval.

    Args:
        pool: The pool.
    """

    def __init__(self, pool: Any) -> None:
        self._executor = pool.executor
        self._most = pool.limit
        self._calls: deque[tuple[Any, ...]] = deque()
        self._lock = Lock()
        self._awake = 0
        self._is_waking = False
        self._applied_at = -inf
        self._begun = Event()  # a thread that was woken

    def __len__(self) -> int:
        """Returns how many tasks no thread has begun."""
        return len(self._calls)

    @classmethod
    def of(cls, pool: Any) -> Self | None:
        """Returns what hands tasks to the threads of a pool from now on; None for a pool of another kind."""
        if type(pool) is not thread.TaskPool:
            return None
        threads = cls(pool)
        pool.on_apply, pool.flush = threads.apply, threads.clear
        return threads

    def apply(
        self,
        target: Any,
        args: Any = None,
        kwargs: Any = None,
        callback: Any = None,
        accept_callback: Any = None,
        **_: Any,
    ) -> None:
        """Runs a task in a thread; the arguments are those of ``TaskPool.on_apply``.

        Raises:
            RuntimeError: The pool has no thread, and the system lets it start none. The task stays for the next call.
        """
        self._calls.append((target, args, kwargs, callback, accept_callback))
        before, self._applied_at = self._applied_at, monotonic()
        if self._awake or self._applied_at - before < IDLE_S:
            self._wake()
        else:  # let the thread begin at once, and not when this one waits for something
            self._begun.clear()
            self._wake()
            self._begun.wait(BEGINS_S)

    def clear(self) -> None:
        """Drops what no thread has begun."""
        self._calls.clear()

    def _wake(self) -> None:
        """Lets one more thread run tasks, unless there is nothing to do, or no thread, or one is about to begin."""
        with self._lock:
            if self._is_waking or self._awake >= self._most or not self._calls:
                return
            self._is_waking = True
            self._awake += 1
        try:
            self._executor.submit(self._run)
        except RuntimeError as error:
            self._go_on_without(error)

    def _go_on_without(self, error: RuntimeError) -> None:
        """Goes on without a further thread: the executor has stopped, or the system starts none."""
        has = len(self._executor._threads)
        if self._executor._shutdown:
            self._calls.clear()
        elif not has:
            self._executor._work_queue.get_nowait()  # what was submitted, and has no thread
            with self._lock:
                self._is_waking = False
                self._awake -= 1
            raise error
        elif has < self._most:  # one of them calls `_run`, which was submitted all the same
            logger.warning("the pool goes on with %d of %d threads until it is restarted: %s", has, self._most, error)
            self._most = has  # the executor counts an idle thread too many from now on, and might start none

    def _run(self) -> None:
        """Runs tasks until none is left."""
        with self._lock:
            self._is_waking = False
        self._begun.set()
        while self._calls:
            try:
                call = self._calls.popleft()
            except IndexError:  # another thread was quicker
                break
            self._wake()
            try:
                apply_target(*call)
            except BaseException:  # Celery has reported what is a task's; the executor would drop the rest, too
                logger.debug("the call of a task failed", exc_info=True)
            del call
        with self._lock:
            self._awake -= 1
        self._wake()  # for what came since
