"""How long commands are tried that no node of a cluster could run."""

from time import monotonic, sleep

from kombu_delayq.cluster.pool import NodePools
from kombu_delayq.cluster.topology import NoNode

#: Pauses between tries, in s.
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
#: So many redirections of a command are followed at once; more mean that nodes disagree, which takes a moment.
AT_ONCE = 3


class Patience:
    """How long commands are tried that no node could run, with growing pauses.

    Args:
        pool: The connections; its ``patience_s`` says how long.
        commands: How many commands there are.
    """

    def __init__(self, pool: NodePools, commands: int = 1) -> None:
        self._pool = pool
        self._most_redirects = AT_ONCE * commands
        self._pause_s = SHORTEST_PAUSE_S
        self._until: float | None = None
        self._error: Exception | None = None
        self._redirects = 0

    def hold(self, error: Exception) -> None:
        """Notes why a command could not be run for the moment."""
        self._error = error

    def count(self, away_s: float) -> None:
        """Counts the time in which a node has been away already, if the pool serves others."""
        if self._until is None and self._pool.serves_others:
            self._until = monotonic() + self._pool.patience_s - away_s

    def redirect(self) -> bool:
        """Notes that a node has named another one. Returns whether that one may be asked at once."""
        self._redirects += 1
        return self._redirects <= self._most_redirects

    def wait_if_held(self) -> None:
        """Waits before the next try, if the last one was to wait."""
        if self._error is not None:
            self.wait()
            self._error = None

    def wait(self) -> None:
        """Waits before the next try.

        Raises:
            NoNode: There has been no node for too long.
        """
        if self._until is None:
            self._until = monotonic() + self._pool.patience_s
        has_changed = self._pool.topology.refresh()
        if not has_changed and monotonic() + self._pause_s > self._until:
            error = self._error
            raise NoNode(f"the cluster has not run a command within {self._pool.patience_s:g} s: {error}") from error
        sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
