"""One event loop a process, in a thread of its own, for tasks that are coroutines."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from functools import wraps
from threading import Lock, Thread
from typing import Any, ParamSpec, TypeVar

from celery_ext import check_cancelled

P = ParamSpec("P")
T = TypeVar("T")

_making = Lock()
_loop: asyncio.AbstractEventLoop | None = None


def loop() -> asyncio.AbstractEventLoop:
    """Returns the loop of this process. The first task begins it: in the pool prefork that is after the fork."""
    global _loop
    with _making:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            Thread(target=_loop.run_forever, name="loop", daemon=True).start()
        return _loop


def in_loop(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Makes a function of a coroutine function. It ends the coroutine if the task is to stop, or is over its limit."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        future = asyncio.run_coroutine_threadsafe(function(*args, **kwargs), loop())
        try:
            while not wait([future], timeout=1).done:
                check_cancelled()
            return future.result()
        except BaseException:
            future.cancel()
            raise

    return call
