"""Offers names to a shell that completes a line: soon, and without a word where there are none."""

import os
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from queue import Empty, SimpleQueue
from threading import Thread

from click.shell_completion import CompletionItem


def offer(find: Callable[[], Iterable[str]], incomplete: str) -> list[CompletionItem]:
    """Returns names that begin with what is typed; none if they cannot be found.

    Nothing is printed meanwhile: an app may print at its import, which the shell would take for names, and what goes
    wrong would stand in the middle of the line.

    Args:
        find: Returns all names.
        incomplete: What is typed.
    """
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        try:
            names = list(find())
        except Exception:  # the command itself will report it
            return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete) and name.isprintable()]


def within(limit_s: float, find: Callable[[], list[str]]) -> list[str]:
    """Returns what is found, or nothing if that takes longer. The process may end while the search still waits.

    Args:
        limit_s: How long to wait, in s.
        find: Looks for names. Its errors are raised here.
    """
    found: SimpleQueue[list[str] | Exception] = SimpleQueue()

    def look() -> None:
        try:
            found.put(find())
        except Exception as error:
            found.put(error)

    Thread(target=look, daemon=True).start()
    try:
        result = found.get(timeout=limit_s)
    except Empty:
        return []
    if isinstance(result, Exception):
        raise result
    return result
