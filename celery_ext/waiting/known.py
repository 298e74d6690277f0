"""Which queues there are: what Redis and an app know of them."""

import re
from collections.abc import Collection, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from kombu_delayq.store import LOOK_S, DelayStore

if TYPE_CHECKING:
    from celery import Celery

#: For how long to look for bindings where nobody looks again, in s: through some million keys.
LONG_LOOK_S = 1.0
#: Names that kombu and Celery give to queues of one process: of replies, of events, of a broadcast.
_OF_PROCESS = re.compile(r"(.*\.pidbox|((celeryev|bcast)\.)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.DOTALL)


def all_queues(
    store: DelayStore, app: "Celery[Any] | None", letters: Collection[str] = (), *, look_s: float = LOOK_S
) -> list[str]:
    """Returns the names of all queues, sorted: delayed, paused, consumed, bound, declared and routed to.

    They are without those of single processes, such as for replies, which would never end, and without queues of dead
    letters, unless they are paused or hold or held delayed messages. What Redis refuses to say is left out, and so is
    what a node of a cluster knows that is away.

    Args:
        store: The store.
        app: An app, which has queues and routes; None without one.
        letters: Queues of dead letters beside those that Redis knows.
        look_s: For how long to look for bindings, see ``Queues.bound``.

    Raises:
        redis.exceptions.RedisError, OSError: Redis does not answer, or refuses to name the queues with delayed
            messages.
    """
    found = {*(store.unless_away(store.queues.names) or ()), *(store.if_allowed(store.fetching.paused) or ())}
    bound = store.if_allowed(lambda: store.queues.bound(look_s)) or ()
    others = {*(store.if_allowed(store.consumers.by_queue) or ()), *bound, *_of_app(app)}
    ours = {*(store.if_allowed(store.queues.of_letters) or ()), *letters}
    return sorted(found.union(name for name in others - ours if not _is_of_process(name, app)))


def _of_app(app: "Celery[Any] | None") -> Iterator[str]:
    """Yields the names of the queues that an app declares, and of those to which its routes lead.

    What a function among the routes would answer is not known.
    """
    if app is None:
        return
    yield from list(app.amqp.queues)
    maps = [router for router in app.amqp.router.routes if hasattr(router, "patterns")]  # Celery's MapRoute
    for route in chain.from_iterable((*routes.map.values(), *routes.patterns.values()) for routes in maps):
        queue = route if isinstance(route, str) else dict(route).get("queue")
        if name := getattr(queue, "name", queue):
            yield name


def _is_of_process(name: str, app: "Celery[Any] | None") -> bool:
    events = app is not None and name.startswith(f"{app.conf.event_queue_prefix}.")
    return events or bool(_OF_PROCESS.fullmatch(name))
