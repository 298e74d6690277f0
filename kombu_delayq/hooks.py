"""Where a package above the transport is called: it names functions in the entry-point group ``GROUP``.

Nothing is loaded before it is needed, and the transport knows none of them: plain kombu goes without.
"""

import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from kombu_delayq.errors import InvalidDelayLevel

#: ``worker`` is called when a worker of Celery begins, with it as ``sender``, or without when one has begun already;
#: ``delay_chain`` with the property of this name of a message that is published.
GROUP = "kombu_delayq.hooks"


def call(name: str, *args: Any, **kwargs: Any) -> None:
    """Calls all functions of a name."""
    for function in _functions(name):
        function(*args, **kwargs)


def expect_worker() -> None:
    """Has ``worker`` called when a worker of Celery begins in this process, however it is started.

    A worker makes its first transport before it says that it begins, and before it starts its pool. Where it makes
    none until then, as with gevent, it has begun when it does.
    """
    signals = sys.modules.get("celery.signals")  # not imported here: without it there is no worker
    if signals is None:
        return
    signals.worker_init.connect(_begin, dispatch_uid="delayq-hooks")
    if "celery.worker.consumer" in sys.modules:  # which only workers have
        call("worker")


def check_unread(properties: Mapping[str, Any]) -> None:
    """Looks at options of a call that Celery, which does not know them, has put into the message.

    Raises:
        InvalidDelayLevel: There is a ``delay_level``: the publisher's app has not read it.
        InvalidDelayChain: There is a ``delay_chain`` which is none.
    """
    if properties.get("delay_level") is not None:
        raise InvalidDelayLevel(
            f"delay_level={properties['delay_level']!r} of a call was not read: its app does not know delay levels. "
            "Call celery_ext.install(app) where the app is made"
        )
    if properties.get("delay_chain") is not None:  # workers read it, and only there it could be found to be wrong
        call("delay_chain", properties["delay_chain"])


def _begin(sender: Any, **kwargs: Any) -> None:
    call("worker", sender=sender)


@cache
def _functions(name: str) -> list[Any]:
    return [entry.load() for entry in entry_points(group=GROUP, name=name)]
