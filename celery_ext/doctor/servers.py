"""The Redis servers themselves: what each says of its memory, its disk and its role, and how its clock goes."""

from collections.abc import Mapping
from time import time
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from kombu_delayq.redis import time_ms
from kombu_delayq.store import StorePart
from kombu_delayq.text import as_text

#: How often a clock is read; the quickest answer counts.
CLOCK_READINGS = 3


class ClockOffset(NamedTuple):
    """How far the clock of this process is from that of a server.

    Attributes:
        ahead_s: By how much this process is ahead, in s; negative if it is behind.
        unsure_s: How far that may be off, in s: half of the time that the answer took.
    """

    ahead_s: float
    unsure_s: float


class Servers(StorePart):
    """Looks at the server, or at each primary of a cluster. Results are by the server's address."""

    def info(self) -> dict[str, Mapping[str, Any]]:
        """Returns the fields of INFO as redis-py reads them; none where the server refuses it."""
        found: dict[str, Mapping[str, Any]] = {}
        for name, client in self._client.pool.clients().items():
            try:
                found[name] = dict(client.info())
            except ResponseError:  # forbidden by an ACL, or renamed by the server
                found[name] = {}
        return found

    def setting(self, setting: str) -> dict[str, str | None]:
        """Returns a setting of the server; None where it does not tell, such as at a managed service."""
        found: dict[str, str | None] = {}
        for name, client in self._client.pool.clients().items():
            try:
                reply = client.config_get(setting)
            except ResponseError:
                reply = {}
            values = {as_text(key): as_text(value) for key, value in reply.items()}
            found[name] = values.get(setting)
        return found

    def clocks(self) -> dict[str, ClockOffset]:
        """Compares the clock of this process with those of the servers, in a few round trips to each."""
        return {name: _offset(client) for name, client in self._client.pool.clients().items()}


def _offset(client: Any) -> ClockOffset:
    readings = []
    for _ in range(CLOCK_READINGS):
        begun = time()
        server_s = time_ms(client.time()) / 1000
        ended = time()
        readings.append(ClockOffset((begun + ended) / 2 - server_s, abs(ended - begun) / 2))
    return min(readings, key=lambda reading: reading.unsure_s)
