"""Requests for messages whose replies were lost, and what a fetcher that ended could not settle."""

from collections.abc import Callable
from contextlib import suppress
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

if TYPE_CHECKING:
    from kombu_delayq.store import DelayStore, Request

#: For how long after the loss of a connection Redis may still run what was sent over it, in s.
UNSURE_S = 30.0
#: For how long after the connections of waits were closed messages may still be in flight, in s.
IN_FLIGHT_S = 2.0


class LostRequests:
    """Puts back what Redis fetches for requests that nobody hears of. Any thread may use it."""

    def __init__(self) -> None:
        self._lost: list[tuple[Request, float]] = []
        self._unsettled: dict[str, float] = {}
        self._left: list[Callable[[DelayStore], object]] = []

    def add(self, request: "Request") -> None:
        """Notes a request whose reply was lost. Redis may have run it, or may run it soon."""
        self._lost.append((request, monotonic()))

    def answered(self, request: "Request") -> None:
        """Notes that the reply to a request has come all the same: the next ``recover`` is its last."""
        for lost in [lost for lost in self._lost if lost[0] is request]:
            self._lost.append((request, -inf))
            with suppress(ValueError):  # the thread of the heartbeat has done it
                self._lost.remove(lost)

    def leave(self, group: str, settle: "Callable[[DelayStore], object]") -> None:
        """Notes that a fetcher could not end well: messages of its slot group may be in flight, or may yet be.

        Args:
            group: The slot group.
            settle: Does what else the fetcher has left to do, with a store; the thread of the heartbeat calls it.
        """
        self._unsettled[group] = monotonic()
        self._left.append(settle)

    def are_settled(self, group: str) -> bool:
        """Whether no message can be in flight any more to a fetcher of a slot group that has ended."""
        return monotonic() - self._unsettled.get(group, -inf) > IN_FLIGHT_S

    def has_any(self, store: "DelayStore", group: str) -> bool:
        """Whether there is a request for queues of a slot group."""
        return any(store.keys.slot_group(request.queues[0]) == group for request, _ in list(self._lost))

    def recover(self, store: "DelayStore", group: str | None = None) -> None:
        """Puts back what Redis has fetched; a round trip for each request.

        Args:
            store: The store to use.
            group: By default all, and then what fetchers have left. An error in one is raised only after the others.
        """
        failed: Exception | None = None
        for settle in list(self._left) if group is None else ():
            try:
                settle(store)
            except (RedisError, OSError) as error:
                failed = failed or error
            else:
                self._left.remove(settle)
        for request, lost_at in list(self._lost):
            if group not in (None, store.keys.slot_group(request.queues[0])):
                continue
            is_over = monotonic() - lost_at > UNSURE_S
            try:
                store.fetching.recover(request)
            except (RedisError, OSError) as error:
                failed = failed or error
                continue
            if is_over:
                with suppress(ValueError):  # another thread has done it
                    self._lost.remove((request, lost_at))
        if failed is not None:
            raise failed
