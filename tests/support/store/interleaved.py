"""Two callers of a store whose calls to Redis come in each possible order."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Condition, local
from typing import Any, NamedTuple

import redis

from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore

_me = local()
#: For how long a caller waits for its turn, in s.
PATIENCE_S = 60.0


class Order:
    """Lets one caller at a time go on to its next call.

    Args:
        wanted: Whose turn it is, by number of the caller; after the last of them always the least who waits.
        callers: How many callers there are.

    Attributes:
        taken: Whose turns it was.
        choices: Which callers waited at each turn.
    """

    def __init__(self, wanted: Sequence[int], callers: int) -> None:
        self._wanted = wanted
        self._busy = set(range(callers))
        self._waiting: set[int] = set()
        self._turn: int | None = None
        self._changed = Condition()
        self.taken: list[int] = []
        self.choices: list[list[int]] = []

    def wait(self) -> None:
        """Waits before a call until it is the turn of this thread's caller; at once in other threads."""
        caller = getattr(_me, "caller", None)
        if caller is None:
            return
        with self._changed:
            self._busy.discard(caller)
            self._waiting.add(caller)
            self._choose()
            assert self._changed.wait_for(lambda: self._turn == caller, PATIENCE_S), f"no turn for {caller}"
            self._turn = None
            self._waiting.discard(caller)
            self._busy.add(caller)

    def run(self, caller: int, act: Callable[[], Any]) -> Any:
        """Runs a caller. Returns its result."""
        _me.caller = caller
        try:
            return act()
        finally:
            _me.caller = None
            with self._changed:
                self._busy.discard(caller)
                self._choose()

    def _choose(self) -> None:
        """Gives somebody the next turn as soon as all wait who are not done."""
        if self._busy or self._turn is not None or not self._waiting:
            return
        at = len(self.taken)
        self._turn = self._wanted[at] if at < len(self._wanted) else min(self._waiting)
        self.taken.append(self._turn)
        self.choices.append(sorted(self._waiting))
        self._changed.notify_all()

    def next(self) -> list[int] | None:
        """Returns the turns with which the next order begins; None after the last order."""
        for at in reversed(range(len(self.taken))):
            later = [caller for caller in self.choices[at] if caller > self.taken[at]]
            if later:
                return [*self.taken[:at], later[0]]
        return None


class Turned(redis.Connection):
    """A connection that waits for its turn before it sends."""

    #: The order that is tried.
    order = Order([], 0)

    def send_packed_command(self, command: Any, check_health: bool = True) -> Any:
        """Sends commands, when it is their turn."""
        Turned.order.wait()
        return super().send_packed_command(command, check_health)


class Outcome(NamedTuple):
    """What became of one order.

    Attributes:
        turns: Whose call came when, such as ``0110``.
        results: What each caller returned.
    """

    turns: str
    results: list[Any]


def each_order(
    store: DelayStore, prepare: Callable[[DelayStore], Any], *acts: Callable[[DelayStore], Any]
) -> Iterator[Outcome]:
    """Runs callers against one another in each order of their calls; a pipeline is one call.

    Args:
        store: Of the server and the names of keys that all use.
        prepare: Makes the state with which each order begins, on an empty database.
        acts: The callers. Each has a store of its own, as in another process.
    """
    port = store.client.connection_pool.connection_kwargs["port"]
    stores = [_turned(port, store) for _ in acts]
    wanted: list[int] | None = []
    try:
        while wanted is not None:
            store.client.flushall()
            prepare(store)
            order = Turned.order = Order(wanted, len(acts))
            with ThreadPoolExecutor(len(acts)) as pool:
                ran = [
                    pool.submit(order.run, caller, lambda act=act, own=own: act(own))  # type: ignore[misc]
                    for caller, (act, own) in enumerate(zip(acts, stores, strict=True))
                ]
                results = [each.result() for each in ran]
            assert order.taken[: len(wanted)] == wanted, "a caller does not do the same in the same order"
            yield Outcome("".join(map(str, order.taken)), results)
            wanted = order.next()
    finally:
        for own in stores:
            own.close()


def _turned(port: int, store: DelayStore) -> DelayStore:
    pool = redis.ConnectionPool(connection_class=Turned, port=port)
    own = DelayStore(redis.Redis(connection_pool=pool), store.keys, options=Options(layout=store.layout))
    own.client.ping()
    return own
