"""Waits for messages of all channels of a connection to a cluster."""

from contextlib import suppress
from time import monotonic
from typing import Any

from kombu_delayq.consume.poller import DelayedPoller

#: How often to look whether the node of the subscriptions is still there, in s.
LOOK_S = 1.0


class ClusterPoller(DelayedPoller):
    """Waits for messages. It moves the subscriptions of fanouts to another node when theirs has gone."""

    def __init__(self) -> None:
        super().__init__()
        self._looked_at = 0.0

    def on_poll_start(self) -> None:
        """Runs with each turn of an event loop."""
        if monotonic() - self._looked_at >= LOOK_S:
            self._looked_at = monotonic()
            for channel in list(self._channels):
                subscriptions = vars(channel).get("subclient")
                if subscriptions is not None and subscriptions.has_gone():
                    subscriptions.leave()
        super().on_poll_start()

    def _on_connection_disconnect(self, connection: Any) -> None:
        """Forgets a connection of fanouts where no event loop runs; the next turn finds the one in its place."""
        for channel, client, kind in [key for key in self._chan_to_sock if key[1].connection is connection]:
            del self._chan_to_sock[channel, client, kind]
            for fd in [fd for fd, found in self._fd_to_chan.items() if found == (channel, kind)]:
                del self._fd_to_chan[fd]
                with suppress(KeyError, ValueError, OSError):
                    self.poller.unregister(fd)
        super()._on_connection_disconnect(connection)
