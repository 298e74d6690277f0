"""What a cluster loses with a primary: the writes that its replica did not have."""

import time
from collections import deque
from threading import Event, Thread
from typing import Self

import redis

from tests.support.servers.cluster import PrivateCluster
from tests.support.servers.cluster_node import Node

#: How often offsets are read, in s, and for how many readings they are kept.
EVERY_S, KEPT = 0.02, 1000
#: How long after the answer a client may note it, in s.
HEARD_S = 0.25


class Replication:
    """Reads all the time how far each primary has written, so that a failover tells from when on writes are gone.

    Redis replicates after it has answered. A replica that becomes primary tells up to which offset it has the writes of
    the old one. The latest reading at or below that offset is the begin of the window.

    Args:
        cluster: The cluster, running.

    Attributes:
        windows: The times in which a primary took writes that are gone with it: begin and end, s since the epoch.
    """

    def __init__(self, cluster: PrivateCluster) -> None:
        self._cluster = cluster
        self._readings: dict[Node, deque[tuple[float, int]]] = {}
        self._ending = Event()
        self._thread = Thread(target=self._read, name="replication", daemon=True)
        self.windows: list[tuple[float, float]] = []

    def note(self, old: Node, new: Node, end: float) -> None:
        """Notes that a replica has taken the place of a primary.

        Args:
            old: The old primary.
            new: Its replica.
            end: When the old one has taken its last write, s since the epoch.
        """
        had = int(new.client.info("replication")["second_repl_offset"]) - 1
        safe = [at for at, offset in tuple(self._readings.get(old, ())) if offset <= had]
        self.note_late(max(safe, default=0.0), end)

    def note_late(self, begin: float, end: float) -> None:
        """Notes that a primary took writes for a while, s since the epoch, when its replica had taken its place."""
        self.windows.append((begin, end))

    def excuses(self, at: float) -> bool:
        """Whether a write may be gone that was confirmed at a time, s since the epoch."""
        return any(begin <= at <= end + HEARD_S for begin, end in self.windows)

    def _read(self) -> None:
        while not self._ending.wait(EVERY_S):
            for node in tuple(self._cluster.nodes):
                if node.is_up and not node.is_stopped:
                    self._read_one(node)

    def _read_one(self, node: Node) -> None:
        at = time.time()
        try:
            with redis.Redis(unix_socket_path=str(node.server.socket_path), socket_timeout=0.2) as client:
                found = client.info("replication")
        except redis.RedisError:  # it is being killed or stopped
            return
        if found["role"] == "master":
            self._readings.setdefault(node, deque(maxlen=KEPT)).append((at, int(found["master_repl_offset"])))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(10)
