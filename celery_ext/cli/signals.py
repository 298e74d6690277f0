"""What signals do to a command while it works."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType
from typing import NoReturn


@contextmanager
def handled(handle: Callable[[int, FrameType | None], object], *numbers: signal.Signals) -> Iterator[None]:
    """Lets a function handle some signals during a block; no SIGHUP that is ignored, as under ``nohup``."""
    ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()
    before = {number: signal.signal(number, handle) for number in numbers if number not in ignored}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_as_interrupt() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP end a block as Ctrl-C does, so that it can put back what it has changed."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    with handled(interrupt, signal.SIGTERM, signal.SIGHUP):
        yield


@contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether SIGINT, SIGTERM or SIGHUP has come. A second one ends the process at once."""
    came: list[int] = []
    if current_thread() is not main_thread():
        yield lambda: False
        return

    def note(number: int, _frame: FrameType | None) -> None:
        if came:
            raise SystemExit(128 + number)
        came.append(number)

    with handled(note, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        yield lambda: bool(came)
