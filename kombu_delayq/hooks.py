"""Calls functions of a package above the transport, which names them in the entry-point group ``GROUP``.

The transport itself knows none of them, so it also works with plain kombu. A function is imported when it is first
called.
"""

import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from kombu_delayq.errors import InvalidDelayLevel, InvalidIfWaiting, InvalidLimit, InvalidOptions
from kombu_delayq.options import STORES

#: An entry has the name of its hook, alone or with a dot and the name of a feature behind it.
#: ``worker`` is called when a Celery worker starts, with the worker as ``sender``; it is called without ``sender`` if
#: the worker has already started. ``delay_chain`` is called with the property ``delay_chain`` of a published message.
#: ``purged`` is called after a purge of a queue, with the client and the registry of a store, the queue's name, and
#: whether its ready messages are to go, too; it returns how many of these it has removed.
#: ``chore`` makes what a transfer worker does beside the delivery while it leads: its ``go_on`` is called at each look,
#: with the store, and itself sees what is to be done, and when. Others are classes of stores, see ``store_class``.
GROUP = "kombu_delayq.hooks"
#: Message properties that ``check_unread`` checks.
UNREAD = frozenset(("delay_level", "waiting_key", "limit", "delay_chain"))


def call(name: str, *args: Any, **kwargs: Any) -> None:
    """Calls all functions of a name."""
    for function in _functions(name):
        function(*args, **kwargs)


def made(name: str, *args: Any) -> list[Any]:
    """Returns what all functions of a name make, or return."""
    return [function(*args) for function in _functions(name)]


def expect_worker() -> None:
    """Calls ``worker`` when a Celery worker starts in this process, however it is started.

    Most workers make their first transport before the signal ``worker_init``, and before they start their pool. With
    gevent the signal comes first; then ``worker`` is called at once.
    """
    signals = sys.modules.get("celery.signals")  # every worker has imported this module
    if signals is None:
        return
    signals.worker_init.connect(_begin, weak=False, dispatch_uid="delayq-hooks")
    if "celery.worker.consumer" in sys.modules:  # only workers import it
        call("worker")


def check_unread(properties: Mapping[str, Any]) -> None:
    """Checks options of a call that Celery does not know and has therefore put into the message.

    Raises:
        InvalidDelayLevel: The message has a ``delay_level``, which the publisher's app has not read.
        InvalidDelayChain: The message has a ``delay_chain`` in a wrong form.
        InvalidIfWaiting: The message has a ``waiting_key``, which the publisher's app has not read.
        InvalidLimit: The message has a ``limit`` that is a text, which the publisher's app has not read.
    """
    errors = {"delay_level": InvalidDelayLevel, "waiting_key": InvalidIfWaiting, "limit": InvalidLimit}
    for name, error in errors.items():
        value = properties.get(name)
        if value is not None and (name != "limit" or isinstance(value, str)):  # others may be of a user of kombu
            raise error(
                f"{name}={value!r} of a call was not read: its app does not know this option. "
                "Call celery_ext.install(app) where the app is made"
            )
    if properties.get("delay_chain") is not None:  # otherwise only the worker would find the mistake
        call("delay_chain", properties["delay_chain"])


def store_class(options: Mapping[str, Any]) -> Any:
    """Returns the class of the store that an option asks for, which also keeps messages elsewhere; None without one.

    Args:
        options: Transport options by name.

    Returns:
        It takes the arguments of ``DelayStore``. ``companion`` makes the worker that runs beside a transfer worker,
        from what makes a store with its own connections; ``shown`` returns a value of the option without a password.

    Raises:
        InvalidOptions: What the store needs is not installed.
    """
    return next((_store_class(option, hook) for option, hook in STORES.items() if options.get(option)), None)


@cache
def _store_class(option: str, hook: str) -> Any:
    try:
        [entry] = entry_points(group=GROUP, name=hook)
        return entry.load()
    except (ImportError, ValueError) as error:
        raise InvalidOptions(
            f"the transport option {option} needs more packages: pip install 'kombu-delayq[{hook}]' ({error})"
        ) from error


def _begin(sender: Any, **kwargs: Any) -> None:
    call("worker", sender=sender)


@cache
def _functions(name: str) -> list[Any]:
    return [entry.load() for entry in entry_points(group=GROUP) if entry.name.partition(".")[0] == name]
