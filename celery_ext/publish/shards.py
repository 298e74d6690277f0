"""A queue in shards: several queues, of which a router picks one for each task."""

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from random import randrange
from typing import Any
from zlib import crc32

from kombu.entity import Exchange, Queue

#: Most shards of a queue. Each costs a consumer a connection, and the transfer workers a look.
MOST = 1000
#: Options of a call that say where it goes.
_PLACES = ("queue", "exchange", "routing_key")


class ShardRouter:
    """A router for ``task_routes`` that puts each call of some tasks into one of several queues.

    The queues of ``ShardRouter("orders", 8)`` are ``orders.0`` to ``orders.7``. A call that names a queue goes there.
    Retries and steps of delay chains go where the first run was.

    Args:
        name: What the names of the queues begin with.
        shards: Number of queues, 1 to 1000.
        tasks: Names of the tasks, or patterns such as ``shop.*``; by default all.
        key: Returns, of the arguments of a call, what its calls are kept in order by, such as
            ``lambda order_id: order_id``; it is called as the task is. Without it, any queue gets a call.

    Attributes:
        names: Names of the queues.

    Raises:
        ValueError: The name is empty, or the number of shards is none.
    """

    def __init__(
        self, name: str, shards: int, *, tasks: Iterable[str] = ("*",), key: Callable[..., object] | None = None
    ) -> None:
        if not name or not 1 <= shards <= MOST:
            raise ValueError(f"ShardRouter({name!r}, {shards!r}) needs a name, and 1 to {MOST} shards")
        self.names = [f"{name}.{number}" for number in range(shards)]
        self._tasks, self._key = tuple(tasks), key

    @property
    def queues(self) -> list[Queue]:
        """The queues, for ``task_queues``."""
        return [Queue(name, Exchange(name), routing_key=name) for name in self.names]

    def queue_of(self, key: object) -> str:
        """Returns the name of the queue for a key, such as a task id: anywhere the same, by ``crc32`` of its text."""
        return self.names[crc32(str(key).encode(errors="surrogatepass")) % len(self.names)]

    def routes(self, task: str) -> bool:
        """Whether calls of a task go to these queues."""
        return any(fnmatchcase(task, pattern) for pattern in self._tasks)

    def __call__(self, name: str, args: Any, kwargs: Any, options: Mapping[str, Any], **more: Any) -> Any:
        """Returns where a call goes, as Celery asks a router; None for one that is not routed here."""
        if not self.routes(name) or any(options.get(place) for place in _PLACES):
            return None
        if self._key is None:
            return {"queue": self.names[randrange(len(self.names))]}  # spreads load, guards nothing
        return {"queue": self.queue_of(self._key(*(args or ()), **(kwargs or {})))}
